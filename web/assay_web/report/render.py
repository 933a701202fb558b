"""From a `Report` to one self-contained HTML file.

Covers: the Jinja2 templates of the page and its charts, the atomic write. The page has no script and makes no request
(its content security policy forbids both), follows the light or dark setting, and has the numbers of every chart in a
table. The charts are templates because plotly adds 4 MB of script to each file, Altair needs a script too, and
matplotlib's SVG can neither follow the colour setting nor carry hover titles without post-processing. Leaves out: the
content, the layout of charts (`charts`).
"""

import re
from dataclasses import dataclass, replace
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from assay.errors import BackendError
from assay.system.atomic_files import replacing
from assay_web.report import charts
from assay_web.report.charts import MISSING, ChartLayout, format_value, layout_of
from assay_web.report.content import BarChart, Block, FunnelChart, LineChart, Reliability, Report, Table

_COLOURS = 6  # of the style sheet
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NUMERIC = re.compile(r"-?[\d.,]+(e[-+]\d+)?( %)?")
_LONG_TABLE = 200  # rows of a chart's table; longer ones are thinned evenly, with a note


@dataclass(frozen=True, slots=True)
class _RenderedBlock:
    """A block with the name of its template macro and, for a chart, its layout."""

    kind: str
    block: Block
    key: str
    layout: ChartLayout | None = None
    table_note: str = ""


def render(report: Report) -> str:
    """The whole page as text."""
    keys = map("chart-{}".format, count(1))
    sections = [
        {
            "title": section.title,
            "intro": section.intro,
            "blocks": [_render_block(block, next(keys)) for block in section.blocks],
        }
        for section in report.sections
    ]
    page: str = _template().render(title=report.title, subtitle=report.subtitle, sections=sections)
    return page.lstrip()


def write(report: Report, path: Path) -> None:
    """Write the page to `path`; a reader sees the old file or the whole new one. Raises BackendError on disk errors."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BackendError(f"cannot write the report {path}: {error.strerror or error}") from error
    with replacing(path) as temporary:
        temporary.write_text(render(report), encoding="utf-8")


def _render_block(block: Block, key: str) -> _RenderedBlock:
    """`key` makes the ids in the page unique."""
    kind = type(block).__name__.lower()
    if not isinstance(block, LineChart | BarChart | FunnelChart | Reliability):
        return _RenderedBlock(kind, block, key)
    layout = layout_of(block)
    rows = layout.table.rows
    if len(rows) <= _LONG_TABLE:
        return _RenderedBlock(kind, block, key, layout)
    step = -(-len(rows) // _LONG_TABLE)
    thinned = Table(layout.table.columns, [*rows[::step], *([] if (len(rows) - 1) % step == 0 else rows[-1:])])
    note = f"Every {step}th of {len(rows):,} rows and the last."
    return _RenderedBlock(kind, block, key, replace(layout, table=thinned), note)


def _numeric_columns(table: Table) -> set[int]:
    """Columns that hold nothing but numbers and gaps: they are aligned right."""
    return {
        column
        for column in range(len(table.columns))
        if (cells := [format_value(row[column]) for row in table.rows if column < len(row)])
        and all(cell in ("", MISSING) or _NUMERIC.fullmatch(cell) for cell in cells)
        and any(_NUMERIC.fullmatch(cell) for cell in cells)
    }


def _finalize(value: object) -> object:
    """Replaces characters that are invalid in XML in all printed text; coordinates get six digits."""
    if isinstance(value, float):
        return f"{value:g}"
    return _NOT_XML.sub("\ufffd", value) if isinstance(value, str) and not isinstance(value, Markup) else value


@cache
def _template() -> Any:
    environment = Environment(
        loader=PackageLoader("assay_web.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    for function in (format_value, charts.runs, charts.bands, charts.numbers_at, charts.bin_points):
        environment.filters[function.__name__] = function
    environment.filters["numeric_columns"] = _numeric_columns
    environment.filters["colour"] = lambda index: f"s{index % _COLOURS}"
    environment.globals |= {name: value for name, value in vars(charts).items() if isinstance(value, int)}
    return environment.get_template("report.html.j2")
