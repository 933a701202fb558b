"""The reliability diagram: observed frequency against predicted probability, the diagonal, and the bins' counts."""

from __future__ import annotations

from assay_web.report.axis import Scale, present, written
from assay_web.report.content import Cell, Reliability, Table
from assay_web.report.svg import BOTTOM, LEFT, RIGHT, TOP, WIDTH, Canvas, Drawing

HEIGHT = 320
_STRIP = 44  # height of the strip with the counts
_TICKS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


def draw_reliability(chart: Reliability, key: str) -> Drawing:
    """Dots grow with the number of rows in their bin; a vertical line joins each to the diagonal."""
    rows: list[list[Cell]] = [[present(b.predicted), present(b.observed), b.count] for b in chart.bins]
    table = Table(["predicted", "observed", "rows"], rows)
    points = [
        (predicted, observed, b.count)
        for b in chart.bins
        if (predicted := present(b.predicted)) is not None and (observed := present(b.observed)) is not None
    ]
    if not points:
        return Drawing(None, (), table)
    most = max(max(count for _, _, count in points), 1)
    top = TOP + 18
    bottom = HEIGHT - BOTTOM - _STRIP
    x_scale, y_scale = Scale(0, 1, LEFT, WIDTH - RIGHT), Scale(0, 1, bottom, top)
    total = sum(count for _, _, count in points)
    gap = sum(abs(observed - predicted) * count for predicted, observed, count in points) / max(total, 1)
    description = f"Reliability diagram of {len(points)} bins and {total:,} rows; mean distance from the diagonal "
    canvas = Canvas(key, HEIGHT, chart.title, f"{description}{written(gap)}.")
    canvas.y_axis(_TICKS, y_scale, "observed frequency")
    canvas.line(x_scale(0), y_scale(0), x_scale(1), y_scale(1), "reference")
    canvas.path([(x_scale(predicted), y_scale(observed)) for predicted, observed, _ in points], "line s0")
    for predicted, observed, count in points:
        hover = f"predicted {written(predicted)}, observed {written(observed)}, {count:,} rows"
        x = x_scale(predicted)
        canvas.line(x, y_scale(predicted), x, y_scale(observed), "miss")
        canvas.add("circle", "dot s0", hover, cx=x, cy=y_scale(observed), r=3 + 3 * (count / most) ** 0.5)
        tall = (_STRIP - 18) * count / most
        canvas.rect(x - 7, HEIGHT - BOTTOM - tall, 14, tall, "area s0", hover)
        canvas.text(x, HEIGHT - BOTTOM - tall - 3, f"{count:,}", "tick", "middle")
    canvas.x_axis(_TICKS, x_scale, "predicted probability; bars: rows in the bin")
    return Drawing(canvas.to_string(), (), table)
