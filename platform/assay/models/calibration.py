"""From rewards to probabilities: the calibration that a spec holds and every score's `probability` comes from.

Covers: three methods as one function of a difference of rewards, their identity. Leaves out: fitting and measuring
them (`assay_rm_training.calibration`).

Whatever the method, P(first beats second) = f(r1 - r2) with f rising and f(-d) = 1 - f(d): asking about (b, a) never
contradicts (a, b). A single response's probability is f(reward - reference): that of beating a typical response.

- temperature: f(d) = s(d / T), s the logistic function (arXiv 1706.04599).
- platt: Platt's s(d / T + b) of the pair read in both orders and averaged, f(d) = (s(d/T + b) + s(d/T - b)) / 2: the
  one way to keep his offset, which a single order would make a preference for the first place. b > 0 flattens f at 0.
- isotonic: straight lines through `knots` (d >= 0, P >= 1/2), mirrored at 0, constant past the last.
"""

import bisect
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from assay.errors import BadInputError
from assay.statistics.logistic import sigmoid

CalibrationMethod = Literal["temperature", "platt", "isotonic"]
CALIBRATION_METHODS: tuple[str, ...] = get_args(CalibrationMethod)


@dataclass(frozen=True, slots=True)
class Calibration:
    """A fitted calibration. `reference`: mean reward of typical responses on the calibration set.

    `temperature` is T of the first two methods; `offset` b of `platt`; `knots` (d, P) of `isotonic`, ascending.
    `fitted_on`, `pairs`: what it was fitted on. `measured`: JSON-ready figures of the fit, before and after, on pairs
    that were left out of it.
    """

    temperature: float
    reference: float
    fitted_on: str
    pairs: int
    method: CalibrationMethod = "temperature"
    offset: float = 0.0
    knots: tuple[tuple[float, float], ...] = ()
    measured: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if not (self.temperature > 0 and math.isfinite(self.temperature) and math.isfinite(self.reference)):
            raise BadInputError("calibration needs a finite reference and a positive temperature")
        if self.method not in CALIBRATION_METHODS:
            raise BadInputError(f"{self.method!r} is no calibration; one of {', '.join(CALIBRATION_METHODS)}")
        if not math.isfinite(self.offset):
            raise BadInputError("the offset of a calibration must be finite", field="offset")
        if self.method == "isotonic":
            _check_knots(self.knots)

    @classmethod
    def from_dict(cls, payload: Mapping[str, Any]) -> "Calibration":
        """Inverse of `asdict`, also of one written before there was a choice of method."""
        knots = tuple((float(d), float(p)) for d, p in payload.get("knots", ()))
        return cls(**{**payload, "knots": knots})

    @property
    def id(self) -> str:
        """Identity of the function: equal where every probability is equal; stored with each score."""
        values = (self.method, self.temperature, self.reference, self.offset, self.knots)
        return "k-" + hashlib.sha256(json.dumps(values).encode()).hexdigest()[:16]

    @property
    def curve(self) -> dict[str, Any]:
        """The function as JSON, without what it was fitted on; `from_curve` reads it."""
        return {
            "method": self.method,
            "temperature": self.temperature,
            "offset": self.offset,
            "knots": [list(knot) for knot in self.knots],
            "reference": self.reference,
        }

    @classmethod
    def from_curve(cls, curve: Mapping[str, Any]) -> "Calibration":
        """Inverse of `curve`. Raises BadInputError, KeyError or TypeError for anything else."""
        return cls.from_dict({"fitted_on": "", "pairs": 0, **curve})

    def probability(self, reward: float) -> float:
        """P(a response with this reward beats a typical one), 0 to 1."""
        return self.of_difference(reward - self.reference)

    def pair_probability(self, first: float, second: float) -> float:
        """P(first beats second), 0 to 1."""
        return self.of_difference(first - second)

    def of_difference(self, d: float) -> float:
        """f(d); f(-d) is 1 - f(d) to the last bit but rounding."""
        size = abs(d)
        if self.method == "isotonic":
            p = self._interpolated(size)
        elif self.method == "platt":
            z = size / self.temperature
            # The two halves can round to just under 1/2 at z = 0.
            p = max(0.5, (sigmoid(z + self.offset) + sigmoid(z - self.offset)) / 2)
        else:
            p = sigmoid(size / self.temperature)
        return p if d >= 0 else 1.0 - p

    def describe(self) -> str:
        """The method with its numbers, for a person."""
        if self.method == "isotonic":
            return f"isotonic, {len(self.knots)} knots"
        offset = f", offset {self.offset:.4g}" if self.method == "platt" else ""
        return f"{self.method} {self.temperature:.4g}{offset}"

    def _interpolated(self, size: float) -> float:
        index = bisect.bisect_right(self.knots, size, key=lambda knot: knot[0])
        if index == len(self.knots):
            return self.knots[-1][1]
        low_d, low_p = self.knots[index - 1] if index else (0.0, 0.5)
        high_d, high_p = self.knots[index]
        return low_p + (high_p - low_p) * (size - low_d) / (high_d - low_d)


def _check_knots(knots: tuple[tuple[float, float], ...]) -> None:
    if not knots:
        raise BadInputError("an isotonic calibration needs at least one knot", field="knots")
    before_d, before_p = 0.0, 0.5
    for d, p in knots:
        if not (d > before_d and before_p <= p <= 1.0 and math.isfinite(d)):
            raise BadInputError("knots must rise from (0, 1/2) in both coordinates, to at most 1", field="knots")
        before_d, before_p = d, p
