"""Line charts: several series over one axis, with interval bands, gaps where numbers are missing, hover titles."""

from __future__ import annotations

from collections.abc import Iterator

from assay_web.report.axis import LinearScale, finite_or_none, finite_values, format_value, round_ticks
from assay_web.report.content import Cell, LineChart, Series, Table
from assay_web.report.svg import BOTTOM, LEFT, RIGHT, TOP, WIDTH, Canvas, ChartSvg, colour

HEIGHT = 260
_MARKED = 40  # points a series up to which each gets a visible dot
_HOVERED = 400  # points a series up to which each gets a hover title; more would make the file heavy


def draw_lines(chart: LineChart, key: str) -> ChartSvg:
    """`key` makes the ids in the page unique."""
    legend = tuple((colour(index), series.name) for index, series in enumerate(chart.series))
    table = _numbers(chart)
    xs = [float(x) for series in chart.series for x in _xs(series)]
    bounds = [value for series in chart.series for part in (series.y, series.low, series.high) for value in part or ()]
    ys = finite_values(bounds)
    if not xs or not ys:
        return ChartSvg(None, legend, table)
    if chart.reference is not None:
        ys.append(chart.reference)
    top = TOP + (18 if chart.y_label else 0)
    x_ticks, y_ticks = round_ticks(min(xs), max(xs), 6), round_ticks(min(ys), max(ys))
    x_scale = LinearScale(min(xs), max(xs), LEFT, WIDTH - RIGHT) if min(xs) < max(xs) else None
    x_scale = x_scale or LinearScale.over(x_ticks, LEFT, WIDTH - RIGHT)
    y_scale = LinearScale.over(y_ticks, HEIGHT - BOTTOM, top)
    canvas = Canvas(key, HEIGHT, chart.title, _description(chart))
    canvas.y_axis(y_ticks, y_scale, chart.y_label, percent=chart.percent)
    canvas.x_axis([tick for tick in x_ticks if x_scale.low <= tick <= x_scale.high], x_scale, chart.x_label)
    if chart.reference is not None:
        canvas.line(LEFT, y_scale(chart.reference), WIDTH - RIGHT, y_scale(chart.reference), "reference")
    for index, series in enumerate(chart.series):
        _draw_band(canvas, series, colour(index), x_scale, y_scale)
    for index, series in enumerate(chart.series):
        _draw_series(canvas, series, colour(index), x_scale, y_scale, percent=chart.percent)
    return ChartSvg(canvas.to_string(), legend, table)


def _xs(series: Series) -> list[float]:
    return list(series.x) if series.x is not None else [float(index) for index in range(len(series.y))]


def _stretches(series: Series) -> Iterator[list[tuple[float, float]]]:
    """Runs of neighbouring points without a gap."""
    run: list[tuple[float, float]] = []
    for x, value in zip(_xs(series), series.y, strict=True):
        if (y := finite_or_none(value)) is not None:
            run.append((float(x), y))
        elif run:
            yield run
            run = []
    if run:
        yield run


def _draw_band(canvas: Canvas, series: Series, css: str, x_scale: LinearScale, y_scale: LinearScale) -> None:
    if series.low is None or series.high is None:
        return
    upper: list[tuple[float, float]] = []
    lower: list[tuple[float, float]] = []
    edges = [*zip(_xs(series), series.low, series.high, strict=True), (0.0, None, None)]
    for x, low_value, high_value in edges:
        low, high = finite_or_none(low_value), finite_or_none(high_value)
        if low is not None and high is not None:
            upper.append((x_scale(x), y_scale(high)))
            lower.append((x_scale(x), y_scale(low)))
        elif upper:
            canvas.path([*upper, *reversed(lower)], f"band {css}", close=True)
            upper, lower = [], []


def _draw_series(
    canvas: Canvas, series: Series, css: str, x_scale: LinearScale, y_scale: LinearScale, *, percent: bool
) -> None:
    many = len(series.y) > _MARKED
    for run in _stretches(series):
        if len(run) > 1:
            canvas.path([(x_scale(x), y_scale(y)) for x, y in run], f"line {css}")
        for x, y in run:
            if len(series.y) > _HOVERED and len(run) > 1:
                continue
            hover = f"{series.name}: {format_value(y, percent=percent)} at {format_value(x)}"
            mark = "hit" if many and len(run) > 1 else "dot"
            canvas.add("circle", f"{mark} {css}", hover, cx=x_scale(x), cy=y_scale(y), r=6 if mark == "hit" else 3)


def _description(chart: LineChart) -> str:
    ends = []
    for series in chart.series:
        values = finite_values(series.y)
        if values:
            first, last = (format_value(value, percent=chart.percent) for value in (values[0], values[-1]))
            ends.append(f"{series.name} from {first} to {last}")
        else:
            ends.append(f"{series.name} without data")
    return f"Line chart, {chart.x_label or 'index'} across: {'; '.join(ends)}."


def _numbers(chart: LineChart) -> Table:
    by_x: dict[float, dict[str, Cell]] = {}
    columns: list[str] = []
    for series in chart.series:
        parts = [(series.name, series.y), (f"{series.name}, low", series.low), (f"{series.name}, high", series.high)]
        for name, values in parts:
            if values is None:
                continue
            columns.append(name)
            for x, value in zip(_xs(series), values, strict=True):
                by_x.setdefault(float(x), {})[name] = format_value(finite_or_none(value), percent=chart.percent)
    rows = [[x, *(by_x[x].get(name) for name in columns)] for x in sorted(by_x)]
    return Table([chart.x_label or "index", *columns], rows)
