"""Descriptions of charts by the keys of `metrics.jsonl`; they hold no numbers.

Covers: curves, their bands, the extents of the numbers that charts are chosen by, the charts of `charts.toml`; the live
page gets them unchanged. Leaves out: slices of held-out data (`training`), drawing (`assay_web.report`, the page),
points of long files (`assay_web.runs`).
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pydantic import ConfigDict

Row: TypeAlias = Mapping[str, Any]
#: Training steps, or evaluations on held-out data.
Source: TypeAlias = Literal["step", "evaluation"]
_CHARTS = tomllib.loads(Path(__file__).with_name("charts.toml").read_text(encoding="utf-8"))
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
    step: Mapping[str, Extent]
    evaluation: Mapping[str, Extent]

    @classmethod
    def of_rows(cls, steps: Sequence[Row], evaluations: Sequence[Row] = ()) -> "MetricExtents":
        return cls(_extents(steps), _extents(evaluations))

    def of(self, curve: MetricCurve) -> Extent | None:
        return (self.step if curve.of == "step" else self.evaluation).get(curve.key)


def charts_of(training: Literal["policy", "training"], measured: MetricExtents) -> list[CurveChart]:
    """The charts of `charts.toml` that have data, with the curves that have."""
    charts = (_chart(dict(entry), measured) for entry in _CHARTS[training])
    return [chart for chart in charts if chart is not None]


def _chart(entry: dict[str, Any], measured: MetricExtents) -> CurveChart | None:
    extents = {**measured.evaluation, **measured.step}
    above, varying = entry.pop("positive", None), entry.pop("varies", None)
    if not extents.keys() >= {*entry.pop("needs", ()), *filter(None, (above, varying))}:
        return None
    if (above and extents[above].high <= 0) or (varying and extents[varying].low >= extents[varying].high):
        return None
    curves = [_curve(name, fields, measured) for name, fields in entry.pop("curves", {}).items()]
    for expression, name in entry.pop("match", {}).items():
        matches = (re.fullmatch(expression, key) for key in measured.step)
        curves += [MetricCurve(match.expand(name), match[0]) for match in matches if match]
    curves = [curve for curve in curves if measured.of(curve) is not None]
    if len(curves) < entry.pop("least", 1):
        return None
    reference = MetricCurve(**entry.pop("reference")) if "reference" in entry else None
    if reference is not None and measured.of(reference) is None:
        reference = None
    banded = any(curve.low in extents and extents[curve.low].rows > 1 for curve in curves if curve.low)
    notes = {"note": True, "band_note": banded, "reference_note": reference is not None}
    note = " ".join(text for key, applies in notes.items() if (text := entry.pop(key, "")) and applies)
    return CurveChart(curves=tuple(curves), reference=reference, note=note, **entry)


def _curve(name: str, fields: str | dict[str, Any], measured: MetricExtents) -> MetricCurve:
    if isinstance(fields, str):
        return MetricCurve(name, fields)
    other = fields.get("or")
    curve = MetricCurve(name, **{field: value for field, value in fields.items() if field != "or"})
    return replace(curve, key=other) if other and measured.of(curve) is None else curve


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
