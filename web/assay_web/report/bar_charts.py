"""Bar charts: grouped horizontal bars with whiskers, and the funnel with the reasons for its losses."""

from __future__ import annotations

from assay_web.report.axis import MISSING, LinearScale, finite_or_none, finite_values, format_value, round_ticks
from assay_web.report.content import BarChart, Cell, FunnelChart, FunnelStage, Series, Table
from assay_web.report.svg import BOTTOM, TOP, WIDTH, Canvas, ChartSvg, colour

_EDGE = 12  # left edge of the horizontal bars: their labels stand above them, so only a half tick label needs room
_VALUE_ROOM = 64  # units to the right of the bars for the printed value


def draw_bars(chart: BarChart, key: str) -> ChartSvg:
    """Bars grow from zero, or from the axis' end nearest to it."""
    legend = tuple((colour(index), series.name) for index, series in enumerate(chart.series))
    table = _bar_numbers(chart)
    bounds = [value for series in chart.series for part in (series.y, series.low, series.high) for value in part or ()]
    values = finite_values(bounds)
    if not values or not chart.labels:
        return ChartSvg(None, legend, table)
    ticks = round_ticks(min(0.0, *values), max(0.0, *values, chart.reference or 0.0))
    row, group_gap, head = 20, 12, 18
    group = head + row * len(chart.series) + group_gap
    height = TOP + group * len(chart.labels) + BOTTOM
    scale = LinearScale.over(ticks, _EDGE, WIDTH - _VALUE_ROOM)
    summary = "; ".join(", ".join(map(str, line)) for line in table.rows)
    canvas = Canvas(key, height, chart.title, f"Bar chart. {summary}.")
    for tick in ticks:
        canvas.line(scale(tick), TOP, scale(tick), height - BOTTOM, "grid")
    for position, label in enumerate(chart.labels):
        top = TOP + position * group
        canvas.text(_EDGE, top + 12, label)
        for index, series in enumerate(chart.series):
            _bar(canvas, scale, top + head + row * index, series, position, colour(index), label, percent=chart.percent)
    if chart.reference is not None:
        canvas.line(scale(chart.reference), TOP, scale(chart.reference), height - BOTTOM, "reference")
    canvas.x_axis(ticks, scale, chart.x_label, percent=chart.percent)
    return ChartSvg(canvas.to_string(), legend, table)


def _bar(
    canvas: Canvas, scale: LinearScale, y: float, series: Series, position: int, css: str, label: str, *, percent: bool
) -> None:
    value = finite_or_none(series.y[position]) if position < len(series.y) else None
    text = format_value(value, percent=percent)
    if value is None:
        canvas.text(scale(0.0) + 4, y + 12, f"{series.name}: no data", "tick")
        return
    zero, tip = sorted((scale(0.0), scale(value)))
    low = finite_or_none(series.low[position]) if series.low is not None else None
    high = finite_or_none(series.high[position]) if series.high is not None else None
    interval = "" if low is None or high is None else f", {format_value(low, percent=percent)} to "
    interval += format_value(high, percent=percent) if interval else ""
    canvas.rect(zero, y, max(1.0, tip - zero), 14, f"bar {css}", f"{label}, {series.name}: {text}{interval}")
    right = tip
    if low is not None and high is not None:
        canvas.line(scale(low), y + 7, scale(high), y + 7, "whisker")
        for end in (low, high):
            canvas.line(scale(end), y + 3, scale(end), y + 11, "whisker")
        right = max(tip, scale(high))
    canvas.text(right + 5, y + 11, text, "value")


def _bar_numbers(chart: BarChart) -> Table:
    columns, parts = ["", *()], []
    for series in chart.series:
        for name, values in (
            (series.name, series.y),
            (f"{series.name}, low", series.low),
            (f"{series.name}, high", series.high),
        ):
            if values is not None:
                columns.append(name)
                parts.append([format_value(finite_or_none(value), percent=chart.percent) for value in values])
    rows: list[list[Cell]] = [
        [label, *(part[position] if position < len(part) else MISSING for part in parts)]
        for position, label in enumerate(chart.labels)
    ]
    return Table(columns, rows)


def draw_funnel(chart: FunnelChart, key: str) -> ChartSvg:
    """One bar a stage, in proportion to the first; what was lost there stands beside it, the reasons below."""
    rows: list[list[Cell]] = []
    total = chart.stages[0].count if chart.stages else 0
    for stage in chart.stages:
        share = format_value(stage.count / total, percent=True) if total else MISSING
        rows.append([stage.name, stage.count, share, ""])
        rows.extend(["", -count, "", reason] for reason, count in stage.dropped)
    table = Table(["stage", "count", "of the first", "dropped because"], rows)
    if not total:
        return ChartSvg(None, (), table)
    stage_height, reason_height = 36, 16
    height = TOP + sum(stage_height + reason_height * len(stage.dropped) + 6 for stage in chart.stages)
    steps = "; ".join(f"{stage.name} {stage.count:,}" for stage in chart.stages)
    canvas = Canvas(key, height, chart.title, f"Funnel: {steps}.")
    widest = max(stage.count + sum(count for _, count in stage.dropped) for stage in chart.stages)
    scale = LinearScale(0, widest, _EDGE, WIDTH - _EDGE)
    y = float(TOP)
    for stage in chart.stages:
        _stage(canvas, scale, y, stage, total)
        y += stage_height
        for reason, count in stage.dropped:
            canvas.text(_EDGE + 10, y + 9, f"− {count:,}  {reason}", "tick")
            y += reason_height
        y += 6
    return ChartSvg(canvas.to_string(), (), table)


def _stage(canvas: Canvas, scale: LinearScale, y: float, stage: FunnelStage, total: int) -> None:
    share = format_value(stage.count / total, percent=True)
    canvas.text(_EDGE, y + 11, stage.name)
    canvas.text(WIDTH - _EDGE, y + 11, f"{stage.count:,} · {share}", "value", "end")
    canvas.rect(_EDGE, y + 17, WIDTH - 2 * _EDGE, 14, "track")
    width = max(1.0, scale(stage.count) - _EDGE) if stage.count else 0.0
    canvas.rect(_EDGE, y + 17, width, 14, "bar s0", f"{stage.name}: {stage.count:,}, {share} of the first stage")
    x = _EDGE + width
    for reason, count in stage.dropped:
        lost = max(1.0, scale(count) - _EDGE) if count else 0.0
        canvas.rect(x, y + 17, lost, 14, "lost", f"{reason}: {count:,} dropped")
        x += lost
