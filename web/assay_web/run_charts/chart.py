"""Descriptions of charts by the keys of `metrics.jsonl`; they hold no numbers.

Covers: curves, their bands, the extents of the numbers that charts are chosen by; the live page gets them unchanged.
Leaves out: which charts there are (`training`, `policy`), drawing (`assay_web.report`, the page), points of long files
(`assay_web.runs`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from pydantic import ConfigDict

Row: TypeAlias = Mapping[str, Any]
#: Training steps, or evaluations on held-out data.
Source: TypeAlias = Literal["step", "evaluation"]
_REPLY = ConfigDict(json_schema_serialization_defaults_required=True)  # a reply has every field


@dataclass(frozen=True, slots=True)
class MetricCurve:
    """The metric `key` of the rows of one source, with a band from `low` to `high`, or of `spread` to either side."""

    __pydantic_config__ = _REPLY
    name: str
    key: str
    of: Source = "step"
    low: str | None = None
    high: str | None = None
    spread: str | None = None
    window: int = 1  #: rows whose mean is drawn
    scale: float = 1.0

    @property
    def keys(self) -> list[str]:
        return [key for key in (self.key, self.low, self.high, self.spread) if key is not None]


@dataclass(frozen=True, slots=True)
class CurveChart:
    """Curves over `x`, the key of a number of each row."""

    __pydantic_config__ = _REPLY
    section: str
    title: str
    curves: tuple[MetricCurve, ...]
    unit: str = ""
    share: bool = False  #: 0.25 is shown as 25 %
    note: str = ""
    reference: MetricCurve | None = None  #: its last value is a line across
    x: str = "step"
    x_label: str = "step"


@dataclass(frozen=True, slots=True)
class Extent:
    """Bounds of one metric, and the number of rows that have it."""

    low: float
    high: float
    rows: int


@dataclass(frozen=True)
class MetricExtents:
    """The extents of all metrics, by key."""

    step: Mapping[str, Extent]
    evaluation: Mapping[str, Extent]

    @classmethod
    def of_rows(cls, steps: Sequence[Row], evaluations: Sequence[Row] = ()) -> "MetricExtents":
        return cls(_extents(steps), _extents(evaluations))

    def of(self, curve: MetricCurve) -> Extent | None:
        return (self.step if curve.of == "step" else self.evaluation).get(curve.key)


def with_available_curves(chart: CurveChart, measured: MetricExtents) -> CurveChart | None:
    """The chart with the curves that have data; None without any."""
    curves = tuple(curve for curve in chart.curves if measured.of(curve) is not None)
    reference = chart.reference if chart.reference and measured.of(chart.reference) else None
    if not curves:
        return None
    return CurveChart(
        chart.section, chart.title, curves, chart.unit, chart.share, chart.note, reference, chart.x, chart.x_label
    )


def _extents(rows: Sequence[Row]) -> dict[str, Extent]:
    extents: dict[str, Extent] = {}
    for row in rows:
        for key, value in row.items():
            if isinstance(value, int | float):
                extent = extents.get(key)
                extents[key] = (
                    Extent(value, value, 1)
                    if extent is None
                    else Extent(min(extent.low, value), max(extent.high, value), extent.rows + 1)
                )
    return extents
