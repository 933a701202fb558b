"""Layouts of charts: the scales, tables and descriptions with which the template `charts.svg.j2` draws them, and how a
number is written.

Leaves out: the marks of a chart, which are in the template, and their colours, which are in the style sheet.
Logarithmic axes are not offered: every chart of a report so far reads well without.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from assay_web.report.content import BarChart, Cell, Chart, FunnelChart, LineChart, Number, Reliability, Series, Table

MISSING = "–"
_TINY = 1e-200  # nothing that is measured is smaller, and steps between smaller numbers underflow


def finite_or_none(value: Number) -> float | None:
    """The value as a finite float, None when there is none."""
    return float(value) if value is not None and math.isfinite(value) else None


def finite_values(values: Iterable[Number]) -> list[float]:
    return [number for value in values if (number := finite_or_none(value)) is not None]


def format_value(value: Cell, *, percent: bool = False) -> str:
    """Text as it is, whole numbers with thousands separators, other numbers with four significant digits."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    number = finite_or_none(value)
    if number is None:
        return MISSING
    if percent:
        return f"{_plain(number * 100, 3)} %"
    if isinstance(value, int):
        return f"{value:,}"
    return _plain(number, 4)


def _plain(number: float, digits: int) -> str:
    if number != 0 and not 1e-4 <= abs(number) < 1e9:
        mantissa, exponent = f"{number:.{digits - 1}e}".split("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
    decimals = digits - 1 - (math.floor(math.log10(abs(number))) if number else 0)
    text = f"{number:,.{max(0, decimals)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def round_ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Ascending multiples of 1, 2 or 5 times a power of ten; the first is <= `low`, the last >= `high`."""
    largest = max(abs(low), abs(high))
    if high - low <= 1e-9 * largest or largest < _TINY:  # flat as far as an axis can tell
        pad = 0.1 * largest if largest >= _TINY else 1.0
        low, high = low - pad, high + pad
    rough = (high - low) / max(1, about)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    digits = 1 - math.floor(math.log10(step))  # takes off what binary floats add to 3 * 0.1
    return [round(index * step, digits) for index in range(first, last + 1)]


@dataclass(frozen=True, slots=True)
class LinearScale:
    """A linear map from [low, high] in data to [start, end] in drawing units."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return round(self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start), 2)


WIDTH = 460  #: drawing units; about one CSS pixel each on a phone, so 12 units of text stay readable
LEFT, RIGHT, TOP, BOTTOM = 50, 16, 12, 40  # margins
EDGE = 12  # margin of horizontal bars: their labels stand above them, so only a half tick label needs room
MARKED = 40  #: points a series up to which each gets a visible dot
HOVERED = 400  #: points a series up to which each gets a hover title; more would make the file heavy
_VALUE_ROOM = 64  # units to the right of the bars for the printed value
_PROBABILITIES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
_UNIT = LinearScale(0, 1, 0, 1)


@dataclass(frozen=True, slots=True)
class ChartLayout:
    """A chart's numbers as a table, and how it is drawn. `height`: 0 where there is nothing to draw."""

    table: Table
    height: float = 0
    description: str = ""  #: for those who do not see the chart
    x: LinearScale = _UNIT
    y: LinearScale = _UNIT
    x_ticks: Sequence[float] = ()
    y_ticks: Sequence[float] = ()

    def width_of(self, count: float) -> float:
        """Of a bar; what is there is seen."""
        return max(1.0, self.x(count) - self.x.start) if count else 0.0


def layout_of(chart: Chart) -> ChartLayout:
    match chart:
        case LineChart():
            return _lines(chart)
        case BarChart():
            return _bars(chart)
        case FunnelChart():
            return _funnel(chart)
        case Reliability():
            return _reliability(chart)


def runs(series: Series) -> list[list[list[float]]]:
    """Stretches of neighbouring points (x, y) without a gap."""
    return _without_gaps(series.positions, series.y)


def bands(series: Series) -> list[list[tuple[float, float]]]:
    """Outlines of the interval, one for each stretch without a gap."""
    if series.low is None or series.high is None:
        return []
    stretches = _without_gaps(series.positions, series.low, series.high)
    return [[(x, high) for x, _, high in run] + [(x, low) for x, low, _ in reversed(run)] for run in stretches]


def numbers_at(series: Series, position: int) -> list[float | None]:
    """Value, low and high of the bar at a position."""
    columns = (series.y, series.low or (), series.high or ())
    return [finite_or_none(values[position]) if position < len(values) else None for values in columns]


def bin_points(chart: Reliability) -> list[list[float]]:
    """Predicted, observed and count of the bins that have all."""
    bins = [finite_values((one.predicted, one.observed, one.count)) for one in chart.bins]
    return [numbers for numbers in bins if len(numbers) == 3]


def _without_gaps(*columns: Sequence[Number]) -> list[list[list[float]]]:
    rows = [finite_values(row) for row in zip(*columns, strict=True)]
    return [list(run) for whole, run in groupby(rows, lambda row: len(row) == len(columns)) if whole]


def _lines(chart: LineChart) -> ChartLayout:
    columns = [(series, *column) for series in chart.series for column in series.columns.items()]
    by_x: dict[float, dict[str, Cell]] = {}
    for series, name, values in columns:
        for x, value in zip(series.positions, values, strict=True):
            by_x.setdefault(x, {})[name] = format_value(finite_or_none(value), percent=chart.percent)
    names = [name for _, name, _ in columns]
    rows = [[x, *(by_x[x].get(name) for name in names)] for x in sorted(by_x)]
    table = Table([chart.x_label or "index", *names], rows)
    ys = finite_values(value for _, _, values in columns for value in values)
    if not ys:
        return ChartLayout(table)
    ys += [] if chart.reference is None else [chart.reference]
    first, last = min(by_x), max(by_x)
    x_ticks, y_ticks = round_ticks(first, last, 6), round_ticks(min(ys), max(ys))
    bounds = (first, last) if first < last else (x_ticks[0], x_ticks[-1])
    ends = []
    for series in chart.series:
        shown = [format_value(value, percent=chart.percent) for value in finite_values(series.y)]
        ends.append(f"{series.name} from {shown[0]} to {shown[-1]}" if shown else f"{series.name} without data")
    height = 260
    return ChartLayout(
        table,
        height,
        f"Line chart, {chart.x_label or 'index'} across: {'; '.join(ends)}.",
        LinearScale(*bounds, LEFT, WIDTH - RIGHT),
        LinearScale(y_ticks[0], y_ticks[-1], height - BOTTOM, TOP + (18 if chart.y_label else 0)),
        [tick for tick in x_ticks if bounds[0] <= tick <= bounds[1]],
        y_ticks,
    )


def _bars(chart: BarChart) -> ChartLayout:
    """Bars grow from zero, or from the axis' end nearest to it."""
    columns = [column for series in chart.series for column in series.columns.items()]
    rows: list[list[Cell]] = [[label] for label in chart.labels]
    for position, row in enumerate(rows):
        for _, values in columns:
            number = finite_or_none(values[position]) if position < len(values) else None
            row.append(format_value(number, percent=chart.percent))
    table = Table(["", *(name for name, _ in columns)], rows)
    numbers = finite_values(value for _, values in columns for value in values)
    if not numbers or not chart.labels:
        return ChartLayout(table)
    ticks = round_ticks(min(0.0, *numbers), max(0.0, *numbers, chart.reference or 0.0))
    return ChartLayout(
        table,
        TOP + (30 + 20 * len(chart.series)) * len(chart.labels) + BOTTOM,
        f"Bar chart. {'; '.join(', '.join(map(str, row)) for row in rows)}.",
        LinearScale(ticks[0], ticks[-1], EDGE, WIDTH - _VALUE_ROOM),
        x_ticks=ticks,
    )


def _funnel(chart: FunnelChart) -> ChartLayout:
    """One bar a stage, in proportion to the first; what was lost there stands beside it, the reasons below."""
    rows: list[list[Cell]] = []
    total = chart.stages[0].count if chart.stages else 0
    for stage in chart.stages:
        rows.append([stage.name, stage.count, format_value(stage.count / total if total else None, percent=True), ""])
        rows.extend(["", -count, "", reason] for reason, count in stage.dropped)
    table = Table(["stage", "count", "of the first", "dropped because"], rows)
    if not total:
        return ChartLayout(table)
    steps = "; ".join(f"{stage.name} {stage.count:,}" for stage in chart.stages)
    widest = max(stage.count + sum(count for _, count in stage.dropped) for stage in chart.stages)
    height = TOP + sum(42 + 16 * len(stage.dropped) for stage in chart.stages)
    return ChartLayout(table, height, f"Funnel: {steps}.", LinearScale(0, widest, EDGE, WIDTH - EDGE))


def _reliability(chart: Reliability) -> ChartLayout:
    """Dots grow with the number of rows in their bin; a vertical line joins each to the diagonal."""
    rows = [[finite_or_none(one.predicted), finite_or_none(one.observed), one.count] for one in chart.bins]
    table = Table(["predicted", "observed", "rows"], rows)
    points = bin_points(chart)
    if not points:
        return ChartLayout(table)
    total = int(sum(count for _, _, count in points))
    gap = sum(abs(observed - predicted) * count for predicted, observed, count in points) / max(total, 1)
    description = f"Reliability diagram of {len(points)} bins and {total:,} rows; mean distance from the diagonal "
    height, strip = 320, 44  # strip: of the counts
    return ChartLayout(
        table,
        height,
        f"{description}{format_value(gap)}.",
        LinearScale(0, 1, LEFT, WIDTH - RIGHT),
        LinearScale(0, 1, height - BOTTOM - strip, TOP + 18),
        _PROBABILITIES,
        _PROBABILITIES,
    )
