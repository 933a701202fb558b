"""The charts of a policy training, and the step at which over-optimisation was seen."""

from collections.abc import Iterable

from assay_web.run_charts.chart import CurveChart, MetricExtents, Row, charts_of

WATCH = "Over-optimisation"
LOOP = "Online loop"


def policy_charts(measured: MetricExtents) -> list[CurveChart]:
    """The charts that have data."""
    return charts_of("policy", measured)


def overoptimised_from(rows: Iterable[Row]) -> int | None:
    """The first step at which over-optimisation was detected."""
    return next((row["step"] for row in rows if row.get("overoptimised")), None)
