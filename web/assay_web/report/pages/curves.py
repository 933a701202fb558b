"""A chart of a run as a line chart of a report. Leaves out: which charts there are (`assay_web.run_charts`)."""

from collections.abc import Sequence
from statistics import fmean

from assay_web.report.content import LineChart, Series
from assay_web.run_charts.chart import CurveChart, MetricCurve, Row


def line_chart(chart: CurveChart, steps: Sequence[Row], evaluations: Sequence[Row] = ()) -> LineChart:
    rows = {"step": _ordered(steps, chart.x), "evaluation": _ordered(evaluations, chart.x)}
    reference = None
    if chart.reference is not None:
        values = [row[chart.reference.key] for row in rows[chart.reference.of] if chart.reference.key in row]
        reference = values[-1] if values else None
    return LineChart(
        chart.title,
        [_series(curve, rows[curve.of], chart.x) for curve in chart.curves],
        chart.x_label,
        chart.unit,
        note=chart.note,
        percent=chart.share,
        reference=reference,
    )


def _series(curve: MetricCurve, rows: Sequence[Row], x: str) -> Series:
    rows = [row for row in rows if row.get(curve.key) is not None]
    y = [float(row[curve.key]) * curve.scale for row in rows]
    low: list[float | None] | None = None
    high: list[float | None] | None = None
    if curve.spread is not None:
        deviations = [
            row.get(curve.spread) for row in rows
        ]  # one that was not measured has no band, not one of width 0
        bands = [
            (None, None) if deviation is None else (value - deviation * curve.scale, value + deviation * curve.scale)
            for value, deviation in zip(y, deviations, strict=True)
        ]
        low, high = [band[0] for band in bands], [band[1] for band in bands]
    elif curve.low is not None and curve.high is not None:
        low, high = ([row.get(key) for row in rows] for key in (curve.low, curve.high))
    if curve.window > 1:
        y = [fmean(y[max(0, end - curve.window) : end]) for end in range(1, len(y) + 1)]
    return Series(curve.name, y, [float(row[x]) for row in rows], low=low, high=high)


def _ordered(rows: Sequence[Row], x: str) -> list[Row]:
    return sorted((row for row in rows if row.get(x) is not None), key=lambda row: float(row[x]))
