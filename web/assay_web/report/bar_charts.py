"""Bars: grouped horizontal bars with whiskers, the funnel with its reasons, histograms."""

from __future__ import annotations

from itertools import pairwise

from assay_web.report.axis import MISSING, Scale, all_present, present, round_ticks, written
from assay_web.report.content import BarChart, Cell, Funnel, Histogram, Series, Stage, Table
from assay_web.report.svg import BOTTOM, LEFT, RIGHT, TOP, WIDTH, Canvas, Drawing, colour

_EDGE = 12  # left edge of the horizontal bars: their labels stand above them, so only a half tick label needs room
_VALUE_ROOM = 64  # units to the right of the bars for the printed value


def draw_bars(chart: BarChart, key: str) -> Drawing:
    """Bars grow from zero, or from the axis' end nearest to it."""
    legend = tuple((colour(index), series.name) for index, series in enumerate(chart.series))
    table = _bar_numbers(chart)
    bounds = [value for series in chart.series for part in (series.y, series.low, series.high) for value in part or ()]
    values = all_present(bounds)
    if not values or not chart.labels:
        return Drawing(None, legend, table)
    ticks = round_ticks(min(0.0, *values), max(0.0, *values, chart.reference or 0.0))
    row, group_gap, head = 20, 12, 18
    group = head + row * len(chart.series) + group_gap
    height = TOP + group * len(chart.labels) + BOTTOM
    scale = Scale.over(ticks, _EDGE, WIDTH - _VALUE_ROOM)
    summary = "; ".join(", ".join(map(str, line)) for line in table.rows)
    canvas = Canvas(key, height, chart.title, f"Bar chart. {summary}.")
    for tick in ticks:
        canvas.line(scale(tick), TOP, scale(tick), height - BOTTOM, "grid")
    for place, label in enumerate(chart.labels):
        top = TOP + place * group
        canvas.text(_EDGE, top + 12, label)
        for index, series in enumerate(chart.series):
            _bar(canvas, scale, top + head + row * index, series, place, colour(index), label, percent=chart.percent)
    if chart.reference is not None:
        canvas.line(scale(chart.reference), TOP, scale(chart.reference), height - BOTTOM, "reference")
    canvas.x_axis(ticks, scale, chart.x_label, percent=chart.percent)
    return Drawing(canvas.to_string(), legend, table)


def _bar(
    canvas: Canvas, scale: Scale, y: float, series: Series, place: int, css: str, label: str, *, percent: bool
) -> None:
    value = present(series.y[place]) if place < len(series.y) else None
    text = written(value, percent=percent)
    if value is None:
        canvas.text(scale(0.0) + 4, y + 12, f"{series.name}: no data", "tick")
        return
    zero, tip = sorted((scale(0.0), scale(value)))
    low = present(series.low[place]) if series.low is not None else None
    high = present(series.high[place]) if series.high is not None else None
    interval = "" if low is None or high is None else f", {written(low, percent=percent)} to "
    interval += written(high, percent=percent) if interval else ""
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
                parts.append([written(present(value), percent=chart.percent) for value in values])
    rows: list[list[Cell]] = [
        [label, *(part[place] if place < len(part) else MISSING for part in parts)]
        for place, label in enumerate(chart.labels)
    ]
    return Table(columns, rows)


def draw_funnel(chart: Funnel, key: str) -> Drawing:
    """One bar a stage, in proportion to the first; what was lost there stands beside it, the reasons below."""
    rows: list[list[Cell]] = []
    whole = chart.stages[0].count if chart.stages else 0
    for stage in chart.stages:
        share = written(stage.count / whole, percent=True) if whole else MISSING
        rows.append([stage.name, stage.count, share, ""])
        rows.extend(["", -count, "", reason] for reason, count in stage.dropped)
    table = Table(["stage", "count", "of the first", "dropped because"], rows)
    if not whole:
        return Drawing(None, (), table)
    stage_height, reason_height = 36, 16
    height = TOP + sum(stage_height + reason_height * len(stage.dropped) + 6 for stage in chart.stages)
    steps = "; ".join(f"{stage.name} {stage.count:,}" for stage in chart.stages)
    canvas = Canvas(key, height, chart.title, f"Funnel: {steps}.")
    widest = max(stage.count + sum(count for _, count in stage.dropped) for stage in chart.stages)
    scale = Scale(0, widest, _EDGE, WIDTH - _EDGE)
    y = float(TOP)
    for stage in chart.stages:
        _stage(canvas, scale, y, stage, whole)
        y += stage_height
        for reason, count in stage.dropped:
            canvas.text(_EDGE + 10, y + 9, f"− {count:,}  {reason}", "tick")
            y += reason_height
        y += 6
    return Drawing(canvas.to_string(), (), table)


def _stage(canvas: Canvas, scale: Scale, y: float, stage: Stage, whole: int) -> None:
    share = written(stage.count / whole, percent=True)
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


def draw_histogram(chart: Histogram, key: str) -> Drawing:
    """Counts as filled bars; several series lie over one another, half transparent."""
    legend = tuple((colour(index), series.name) for index, series in enumerate(chart.series))
    spans = list(pairwise(chart.edges))
    columns = ["from", "to", *(series.name for series in chart.series)]
    rows: list[list[Cell]] = [
        [low, high, *(series.y[place] for series in chart.series)] for place, (low, high) in enumerate(spans)
    ]
    table = Table(columns, rows)
    counts = [value for series in chart.series for value in all_present(series.y)]
    if not spans or not counts or max(counts) <= 0:
        return Drawing(None, legend, table)
    height = 240
    x_ticks, y_ticks = round_ticks(chart.edges[0], chart.edges[-1], 6), round_ticks(0.0, max(counts), 4)
    x_scale = Scale(chart.edges[0], chart.edges[-1], LEFT, WIDTH - RIGHT)
    y_scale = Scale.over(y_ticks, height - BOTTOM, TOP)
    totals = ", ".join(f"{series.name} {written(sum(all_present(series.y)))}" for series in chart.series)
    canvas = Canvas(key, height, chart.title, f"Histogram of {chart.x_label or 'values'}; in all: {totals}.")
    canvas.y_axis(y_ticks, y_scale, "")
    for index, series in enumerate(chart.series):
        for (low, high), value in zip(spans, series.y, strict=True):
            if count := present(value):
                hover = f"{series.name}: {written(value)} from {written(low)} to {written(high)}"
                left, top = x_scale(low), y_scale(count)
                canvas.rect(left, top, x_scale(high) - left - 1, y_scale(0) - top, f"area {colour(index)}", hover)
    canvas.x_axis([tick for tick in x_ticks if x_scale.low <= tick <= x_scale.high], x_scale, chart.x_label)
    return Drawing(canvas.to_string(), legend, table)
