"""Length correction of rewards after scoring: a named option of a spec, applied only on request.

Covers: the fitted curve (line or LOWESS), per domain, with its mixing weight; the fixed penalty with its ceiling.
Leaves out: fitting and measuring (`assay_rm_training.length_bias.fit`), counting a response's length.

- linear, lowess: r* = r - mixing * rhat(length), rhat fitted on scored responses ("Post-hoc Reward Calibration: A Case
  Study on Length Bias", arXiv 2409.17407, from memory of it).
- penalty: r* = min(r, ceiling) - rate * max(0, length - free), as in the PAR repository's code (rate 0.01, free 300).

Part of the correlation of quality and length is genuine, so taking all of it off over-corrects: fit per domain, and
keep the mixing weight below 1 where held-out accuracy falls. A penalty alone is gamed by answers that are cut short.
"""

import bisect
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from assay.errors import BadInputError
from assay.models.calibration import Calibration
from assay.settings import check_settings

Form = Literal["linear", "lowess", "penalty"]
Unit = Literal["tokens", "characters"]
Curve = tuple[tuple[float, float], ...]
EVERY = ""  # the curve of responses whose domain has none of its own


@dataclass(frozen=True, slots=True)
class LengthCorrection:
    """`curves`: domain -> (length, rhat) knots, ascending, straight lines between them; a line goes on past its ends,
    a LOWESS curve stays at its last value. `unit`: of a response's length, without its prompt.

    `fitted_on`, `responses`: of the curves. `measured`: JSON-ready figures before and after, on left-out prompts.
    `calibration`: of corrected rewards; the spec's own is of raw ones.
    """

    name: str
    form: Form
    unit: Unit = "tokens"
    mixing: float = 1.0
    curves: Mapping[str, Curve] = field(default_factory=dict, hash=False)
    rate: float = 0.01
    free: float = 300.0
    ceiling: float | None = None
    fitted_on: str = ""
    responses: int = 0
    measured: Mapping[str, Any] = field(default_factory=dict, hash=False)
    calibration: Calibration | None = None

    def __post_init__(self) -> None:
        check_settings(self)
        if not self.name or not self.name.replace("-", "").replace("_", "").isalnum():
            raise BadInputError(f"{self.name!r} is no name: letters, digits, - and _", field="name")
        if not 0 <= self.mixing <= 1:
            raise BadInputError(f"goes from 0 (nothing) to 1 (all of the curve), not {self.mixing}", field="mixing")
        if self.form == "penalty":
            if not (self.rate >= 0 and self.free >= 0 and math.isfinite(self.rate)):
                raise BadInputError("a penalty has a rate and a free length of 0 or more", field="rate")
        elif EVERY not in self.curves or any(len(curve) < 2 for curve in self.curves.values()):
            raise BadInputError("a fitted correction needs a curve of two knots for every response", field="curves")

    @classmethod
    def from_dict(cls, payload: Mapping[str, Any]) -> "LengthCorrection":
        """Inverse of `asdict`."""
        curves = {domain: tuple((float(x), float(y)) for x, y in curve) for domain, curve in payload["curves"].items()}
        calibration = payload.get("calibration")
        return cls(
            **{**payload, "curves": curves, "calibration": Calibration.from_dict(calibration) if calibration else None}
        )

    @property
    def id(self) -> str:
        """Identity of the function; part of the version that corrected scores carry."""
        values = (
            self.form,
            self.unit,
            self.mixing,
            sorted(self.curves.items()),
            (self.rate, self.free, self.ceiling) if self.form == "penalty" else None,
        )
        return "l-" + hashlib.sha256(json.dumps(values).encode()).hexdigest()[:12]

    def corrected(self, reward: float, length: float, domain: str = EVERY) -> float:
        """The reward of a response of this length (in `unit`) without what length gave it."""
        if self.form == "penalty":
            capped = reward if self.ceiling is None else min(reward, self.ceiling)
            return capped - self.rate * max(0.0, length - self.free)
        return reward - self.mixing * self.expected(length, domain)

    def expected(self, length: float, domain: str = EVERY) -> float:
        """rhat(length): the mean reward of fitted responses of this length."""
        curve = self.curves.get(domain) or self.curves[EVERY]
        index = bisect.bisect_right(curve, length, key=lambda knot: knot[0])
        if self.form == "lowess" and index in (0, len(curve)):
            return curve[0][1] if index == 0 else curve[-1][1]
        index = min(max(index, 1), len(curve) - 1)
        (x0, y0), (x1, y1) = curve[index - 1], curve[index]
        return y0 + (y1 - y0) * (length - x0) / (x1 - x0)
