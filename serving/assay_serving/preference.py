"""Preferences and rankings from rewards of responses to one prompt.

Covers: margins, the probability of a preference and its basis, ranks with ties, failed responses, which never get a
number. Leaves out: the rewards themselves (engines), judges that compare two responses without scoring
either (`assay_serving.generative.pairwise`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from assay.models.calibration import Calibration
from assay.score import Score, ScoreFailure, ScoreResult, margin_deviation, score_from_dict
from assay.statistics.logistic import sigmoid
from assay_serving.scorer import ModelInfo

#: Basis of P(a is preferred): a calibration fitted on pairs, or the logistic function that Bradley-Terry models
#: are trained with, uncalibrated.
Basis = Literal["calibration", "bradley_terry"]


@dataclass(frozen=True, slots=True)
class PairRule:
    """How a model's rewards become P(a is preferred): by its calibration, else as Bradley-Terry, else not at all."""

    calibration: Calibration | None = None
    bradley_terry: bool = False

    @classmethod
    def of(cls, info: ModelInfo) -> "PairRule":
        return cls(Calibration.from_curve(info.curve) if info.curve is not None else None, info.bradley_terry)

    def probability(self, margin: float) -> tuple[float | None, Basis | None]:
        """P(a is preferred) from reward a - reward b, and its basis."""
        if self.calibration is not None:
            return self.calibration.of_difference(margin), "calibration"
        if self.bradley_terry:
            return sigmoid(margin), "bradley_terry"
        return None, None


@dataclass(frozen=True, slots=True)
class Preference:
    """A comparison of two responses. All but the results is None where one of them has no score.

    `margin`: reward of a - reward of b. `probability`: P(a is preferred), by `basis`. `uncertainty`: standard
    deviation of the margin where both rewards have one (`margin_deviation`).
    """

    a: ScoreResult
    b: ScoreResult
    margin: float | None = None
    probability: float | None = None
    basis: Basis | None = None
    uncertainty: float | None = None

    @property
    def preferred(self) -> Literal["a", "b", "tie"] | None:
        if self.margin is None:
            return None
        return "a" if self.margin > 0 else "b" if self.margin < 0 else "tie"

    def to_dict(self) -> dict[str, Any]:
        return {
            "a": self.a.to_dict(),
            "b": self.b.to_dict(),
            "preferred": self.preferred,
            "margin": self.margin,
            "probability": self.probability,
            "basis": self.basis,
            "uncertainty": self.uncertainty,
        }

    @classmethod
    def from_dict(cls, payload: dict[str, Any]) -> "Preference":
        """Inverse of `to_dict`; unknown fields are ignored."""
        names = ("margin", "probability", "basis", "uncertainty")
        fields = {name: payload.get(name) for name in names}
        return cls(score_from_dict(payload["a"]), score_from_dict(payload["b"]), **fields)


@dataclass(frozen=True, slots=True)
class Ranking:
    """Responses in order. `order`: their indexes in the request, best first, failed ones last. `ranks` and `results`
    are in the request's order: rank 1 is the best, equal ranks are ties, None has no score."""

    order: tuple[int, ...]
    ranks: tuple[int | None, ...]
    results: tuple[ScoreResult, ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            "order": list(self.order),
            "ranks": list(self.ranks),
            "results": [result.to_dict() for result in self.results],
        }


def prefer(a: ScoreResult, b: ScoreResult, rule: PairRule) -> Preference:
    """The preference that two rewards of one model express."""
    if isinstance(a, ScoreFailure) or isinstance(b, ScoreFailure):
        return Preference(a, b)
    margin = a.reward - b.reward
    probability, basis = rule.probability(margin)
    return Preference(a, b, margin, probability, basis, margin_deviation(a, b))


def rank(results: Sequence[ScoreResult], tie_margin: float = 0.0) -> Ranking:
    """The results in order. A response whose reward is within `tie_margin` of the best one of its tie shares its rank;
    the next rank counts all before it (1, 2, 2, 4). Ties keep the request's order, as failed ones do."""
    scored = [(index, result.reward) for index, result in enumerate(results) if isinstance(result, Score)]
    scored.sort(key=lambda entry: -entry[1])
    ranks: list[int | None] = [None] * len(results)
    best_of_tie, current = math.inf, 0
    for number, (index, reward) in enumerate(scored, start=1):
        if current == 0 or best_of_tie - reward > tie_margin:
            best_of_tie, current = reward, number
        ranks[index] = current
    failed = [index for index, result in enumerate(results) if isinstance(result, ScoreFailure)]
    return Ranking((*(index for index, _ in scored), *failed), tuple(ranks), tuple(results))
