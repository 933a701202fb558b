"""From a `Report` to one self-contained HTML file.

Covers: the SVG of each chart, the Jinja2 template, the atomic write. The page has no script and makes no request (its
content security policy forbids both), follows the light or dark setting, and has the numbers of every chart in a table.
The SVG is written here because plotly adds 4 MB of script to each file, Altair needs a script too, and matplotlib's SVG
can neither follow the colour setting nor carry hover titles without post-processing. Leaves out: the content.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from assay.errors import BackendError
from assay.system.atomic_files import replacing
from assay_web.report.axis import MISSING, format_value
from assay_web.report.bar_charts import draw_bars, draw_funnel
from assay_web.report.content import (
    BarChart,
    Block,
    Chart,
    FunnelChart,
    LineChart,
    Reliability,
    Report,
    Table,
)
from assay_web.report.line_chart import draw_lines
from assay_web.report.reliability import draw_reliability
from assay_web.report.svg import ChartSvg, printable

_NUMERIC = re.compile(r"-?[\d.,]+(e[-+]\d+)?( %)?")
_LONG_TABLE = 200  # rows of a chart's table; longer ones are thinned evenly, with a note


@dataclass(frozen=True, slots=True)
class _RenderedBlock:
    """A block with the name of its template macro and, for a chart, its SVG."""

    kind: str
    block: Block
    chart: ChartSvg | None = None
    table_note: str = ""


def draw(chart: Chart, key: str) -> ChartSvg:
    """The SVG of any chart. `key` must be unique in the page."""
    match chart:
        case LineChart():
            return draw_lines(chart, key)
        case BarChart():
            return draw_bars(chart, key)
        case FunnelChart():
            return draw_funnel(chart, key)
        case Reliability():
            return draw_reliability(chart, key)


def render(report: Report) -> str:
    """The whole page as text."""
    keys = (f"chart-{number}" for number in count(1))
    sections = [
        {
            "title": section.title,
            "intro": section.intro,
            "blocks": [_render_block(block, keys) for block in section.blocks],
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


def _render_block(block: Block, keys: Any) -> _RenderedBlock:
    kind = type(block).__name__.lower()
    if not isinstance(block, LineChart | BarChart | FunnelChart | Reliability):
        return _RenderedBlock(kind, block)
    chart = draw(block, next(keys))
    rows = chart.table.rows
    if len(rows) <= _LONG_TABLE:
        return _RenderedBlock("chart", block, chart)
    step = -(-len(rows) // _LONG_TABLE)
    thinned = Table(chart.table.columns, [*rows[::step], *([] if (len(rows) - 1) % step == 0 else rows[-1:])])
    note = f"Every {step}th of {len(rows):,} rows and the last."
    return _RenderedBlock("chart", block, ChartSvg(chart.svg, chart.legend, thinned), note)


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
    """Removes characters that are invalid in XML from all printed text."""
    return value if isinstance(value, Markup) or not isinstance(value, str) else printable(value)


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
    environment.filters["format_value"] = format_value
    environment.filters["drawn"] = Markup
    environment.filters["numeric_columns"] = _numeric_columns
    return environment.get_template("report.html.j2")
