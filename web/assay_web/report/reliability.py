"""The reliability diagram: observed frequency against predicted probability, the diagonal, and the bins' counts."""

from __future__ import annotations

from assay_web.report.axis import LinearScale, finite_or_none, format_value
from assay_web.report.content import Cell, Reliability, Table
from assay_web.report.svg import BOTTOM, LEFT, RIGHT, TOP, WIDTH, Canvas, ChartSvg

HEIGHT = 320
_STRIP = 44  # height of the strip with the counts
_TICKS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


def draw_reliability(chart: Reliability, key: str) -> ChartSvg:
    """Dots grow with the number of rows in their bin; a vertical line joins each to the diagonal."""
    rows: list[list[Cell]] = [[finite_or_none(b.predicted), finite_or_none(b.observed), b.count] for b in chart.bins]
    table = Table(["predicted", "observed", "rows"], rows)
    points = [
        (predicted, observed, b.count)
        for b in chart.bins
        if (predicted := finite_or_none(b.predicted)) is not None
        and (observed := finite_or_none(b.observed)) is not None
    ]
    if not points:
        return ChartSvg(None, (), table)
    most = max(max(count for _, _, count in points), 1)
    top = TOP + 18
    bottom = HEIGHT - BOTTOM - _STRIP
    x_scale, y_scale = LinearScale(0, 1, LEFT, WIDTH - RIGHT), LinearScale(0, 1, bottom, top)
    total = sum(count for _, _, count in points)
    gap = sum(abs(observed - predicted) * count for predicted, observed, count in points) / max(total, 1)
    description = f"Reliability diagram of {len(points)} bins and {total:,} rows; mean distance from the diagonal "
    canvas = Canvas(key, HEIGHT, chart.title, f"{description}{format_value(gap)}.")
    canvas.y_axis(_TICKS, y_scale, "observed frequency")
    canvas.line(x_scale(0), y_scale(0), x_scale(1), y_scale(1), "reference")
    canvas.path([(x_scale(predicted), y_scale(observed)) for predicted, observed, _ in points], "line s0")
    for predicted, observed, count in points:
        hover = f"predicted {format_value(predicted)}, observed {format_value(observed)}, {count:,} rows"
        x = x_scale(predicted)
        canvas.line(x, y_scale(predicted), x, y_scale(observed), "miss")
        canvas.add("circle", "dot s0", hover, cx=x, cy=y_scale(observed), r=3 + 3 * (count / most) ** 0.5)
        tall = (_STRIP - 18) * count / most
        canvas.rect(x - 7, HEIGHT - BOTTOM - tall, 14, tall, "area s0", hover)
        canvas.text(x, HEIGHT - BOTTOM - tall - 3, f"{count:,}", "tick", "middle")
    canvas.x_axis(_TICKS, x_scale, "predicted probability; bars: rows in the bin")
    return ChartSvg(canvas.to_string(), (), table)
