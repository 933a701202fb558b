"""The band around a curve is what was measured: nothing where it was not, in the curve's own unit."""

from __future__ import annotations

from typing import Any

from assay_web.report.pages.curves import _series
from assay_web.run_charts.chart import MetricCurve


def test_a_spread_that_was_not_measured_has_no_band() -> None:
    curve = MetricCurve(key="reward", name="reward", spread="std", scale=100.0)
    rows: list[dict[str, Any]] = [
        {"step": 1, "reward": 0.5, "std": 0.1},
        {"step": 2, "reward": 0.6, "std": None},
        {"step": 3, "reward": 0.7},
    ]
    series = _series(curve, rows, "step")
    assert series.y == [50.0, 60.0, 70.0]
    assert series.low == [40.0, None, None]
    assert series.high == [60.0, None, None]
