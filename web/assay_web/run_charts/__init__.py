"""The charts of trainings: curves, sections and titles, for reports and for the live page."""

from assay_web.run_charts.chart import CurveChart, Extent, MetricCurve, MetricExtents
from assay_web.run_charts.policy import overoptimised_from, policy_charts
from assay_web.run_charts.training import slice_charts, training_charts, with_slices

__all__ = [
    "CurveChart",
    "Extent",
    "MetricCurve",
    "MetricExtents",
    "overoptimised_from",
    "policy_charts",
    "slice_charts",
    "training_charts",
    "with_slices",
]
