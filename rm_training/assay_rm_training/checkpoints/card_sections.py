"""Sections of a model card that are written or replaced later: parity, calibration, length bias.

Covers: replacing a section of a README in place, the tables of those sections. Leaves out: the card as training
writes it (`model_card.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.models.calibration import Calibration
from assay.models.spec import ParityCheck
from assay.system.atomic_files import replacing

CARD = "README.md"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a Markdown table; a `|` inside a cell is escaped."""
    cells = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in (head, *rows)]
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


def warning_lines(warnings: Sequence[str]) -> list[str]:
    """A block that stands before the card's figures; nothing without warnings."""
    if not warnings:
        return []
    return ["> **Warnings**", ">", *(f"> - {warning}" for warning in warnings), ""]


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
    names = {
        "ece": "calibration error, 10 equal bins",
        "ece_equal_mass": "calibration error, 10 bins of equal count",
        "brier": "Brier score",
        "nll": "negative log-likelihood",
    }
    rows = [
        [label, *(_with_interval(measured[when], name) for when in ("before", "after"))]
        for name, label in names.items()
    ]
    lines += ["", f"On left-out pairs ({measured['folds']} folds by prompt), 95 % by bootstrap over prompts:", ""]
    return [*lines, *table(["", "before", "after"], rows)]


def _with_interval(figures: Mapping[str, Any], name: str) -> str:
    interval = figures.get("intervals", {}).get(name)
    value = f"{figures[name]:.4f}"
    return f"{value} ({interval[0]:.4f} to {interval[1]:.4f})" if interval else value
