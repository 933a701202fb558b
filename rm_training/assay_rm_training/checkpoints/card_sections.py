"""Model cards: the templates in `cards/`, and the sections that are written or replaced later: parity, calibration,
length bias.

Covers: rendering a card, replacing a section of a README in place, the tables of those sections. Leaves out: what
training writes into its card (`model_card.py`).
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from assay.models.calibration import Calibration
from assay.models.spec import ParityCheck
from assay.statistics.intervals import interval_text
from assay.system.atomic_files import replacing
from assay_rm_training.calibration.measures import MEASURES, measure_text

CARD = "README.md"


@cache
def _templates() -> Environment:
    templates = Environment(
        loader=PackageLoader("assay_rm_training.checkpoints", "cards"),
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # Markdown
    )
    templates.filters |= {
        "cell": _cell,
        "number": _number,
        "interval": interval_text,
        "uses": lambda uses: "; ".join(map(str, uses)) or "not checked: no benchmark was registered",
    }
    return templates


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _number(value: float, form: str = ".4f") -> str:
    return format(value, form)


def render_card(card: str, **values: Any) -> str:
    """The model card of this template of `cards/`; its filters: `cell` (of a table), `number`, `interval`, `uses`."""
    return _templates().get_template(f"{card}.md").render(values)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a Markdown table; a `|` inside a cell is escaped."""
    cells = [[_cell(text) for text in row] for row in (head, *rows)]
    lines = [f"| {' | '.join(row)} |" for row in cells]
    return [lines[0], "|" + "---|" * len(head), *lines[1:]]


def with_section(card: str, title: str, lines: Sequence[str]) -> str:
    """The card with these lines under `## title`: replaces the section of that name, else appended."""
    section = "\n".join([f"## {title}", "", *lines]).rstrip() + "\n"
    match = re.search(rf"(?ms)^## {re.escape(title)}\n.*?(?=^## |\Z)", card)
    if match is None:
        return f"{card.rstrip()}\n\n{section}" if card.strip() else section
    remainder = card[match.end() :]
    return card[: match.start()] + section + (f"\n{remainder}" if remainder else "")


def write_section(folder: Path, title: str, lines: Sequence[str]) -> None:
    """Write the section into the folder's card atomically; a folder without a card gets one."""
    path = folder / CARD
    card = path.read_text(encoding="utf-8") if path.is_file() else ""
    with replacing(path) as temporary:
        temporary.write_text(with_section(card, title, lines), encoding="utf-8")


def parity_lines(checks: Sequence[ParityCheck]) -> list[str]:
    """Every parity check with its largest difference."""
    if not checks:
        return ["Not checked; `assay verify` does."]
    rows = [
        [
            check.name,
            (check.detail or "holds") if check.passed else f"FAILS: {check.detail}",
            f"{check.largest:.2g}",
            str(check.compared),
        ]
        for check in checks
    ]
    return [
        "Rewards computed in two ways, in float32.",
        "",
        *table(["equality", "", "largest difference", "responses"], rows),
    ]


def calibration_lines(calibration: Calibration | None) -> list[str]:
    """The fitted function, and its measures on pairs left out of the fit, before and after."""
    if calibration is None:
        return ["None: scores carry no probability. `assay calibrate` fits one."]
    lines = [f"{calibration.describe()}, fitted on {calibration.fitted_on} ({calibration.pairs} pairs)."]
    measured: Mapping[str, Any] = calibration.measured
    if not measured:
        return [*lines, "", "Not measured on pairs left out of the fit."]
    rows = [
        [label, *(measure_text(measured[when], name) for when in ("before", "after"))]
        for name, label in MEASURES.items()
        if name in measured["before"]
    ]
    lines += [
        "",
        f"On left-out pairs ({measured['folds']} folds by prompt), 95 % by prompt of what has an interval:",
        "",
    ]
    return [*lines, *table(["", "before", "after"], rows)]
