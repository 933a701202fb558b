"""How more than one output of a model becomes a reward: by steps, by named ratings, or by its response's tokens.

Covers: the descriptions a spec can hold, in plain numbers; the name of a pair of language models that is read as a
reward model. Leaves out: losses, engines. A scalar model with none is read once, at the conversation's end.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Lt

from assay.errors import BadInputError
from assay.settings import CheckedSettings, check_settings

StepAggregation = Literal["min", "product", "last"]
AggregationKind = Literal["weights", "mean", "min", "gate"]
IMPLICIT = "dpo:"  #: begins the name of a pair of language models that is read as a reward model


@dataclass(frozen=True, slots=True)
class Stepwise:
    """Of a process reward model: what steps are joined by, and what their log-odds come to.

    `min`: the worst step's. `last`: the last step's, which is what any other engine gives. `product`: ln of the product
    of the steps' probabilities, which falls with every further step.
    """

    separator: str = "\n"
    aggregation: StepAggregation = "min"

    def __post_init__(self) -> None:
        if not self.separator:
            raise BadInputError("must not be empty", field="separator")
        check_settings(self)

    def split(self, response: str) -> list[str]:
        """A response's steps; parts of white space only are none. A response without a separator is one step."""
        return [part for part in response.split(self.separator) if part.strip()] or [response]

    def aggregate(self, log_odds: Sequence[float]) -> float:
        """The reward of a response from its steps, at least one."""
        if self.aggregation == "min":
            return min(log_odds)
        if self.aggregation == "last":
            return log_odds[-1]
        return sum(min(z, 0.0) - math.log1p(math.exp(-abs(z))) for z in log_odds)


@dataclass(frozen=True, slots=True)
class Critique:
    """Of a model that criticises a response before it scores it: how it is asked. `question`: hash of the words.
    `samples`: critiques, whose rewards' mean is the reward."""

    question: str
    samples: Annotated[int, Ge(1)] = 1
    temperature: Annotated[float, Ge(0), Lt(math.inf)] = 0.0  #: 0: the most likely token each time
    max_new_tokens: Annotated[int, Ge(1)] = 256

    def __post_init__(self) -> None:
        check_settings(self)
        if self.samples > 1 and self.temperature == 0:
            raise BadInputError("several critiques at temperature 0 are all the same", field="temperature")


@dataclass(frozen=True, slots=True)
class Aggregation:
    """How ratings become one reward. `weights`, one per rating: of `weights`; `mean` is equal weights.

    `min`: the worst rating. `gate`: ratings in order of priority, R = R_1 + sum over i > 1 of R_i where every R_j
    before it passes its threshold (`thresholds`, one less than ratings; G-RA, arXiv 2508.10548), so that a lower
    criterion cannot buy off a higher one. The first two are linear and fold into one head; the others do not.
    """

    kind: AggregationKind = "mean"
    weights: tuple[float, ...] = ()
    thresholds: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        check_settings(self)
        if (self.kind == "weights") != bool(self.weights):
            raise BadInputError("weights belong to the aggregation 'weights', and it needs them", field="weights")
        if (self.kind == "gate") != bool(self.thresholds):
            raise BadInputError("thresholds belong to the aggregation 'gate', and it needs them", field="thresholds")

    @property
    def is_linear(self) -> bool:
        return self.kind in ("weights", "mean")

    def check(self, ratings: int) -> None:
        """Raises BadInputError where weights or thresholds do not fit the number of ratings."""
        if self.weights and len(self.weights) != ratings:
            raise BadInputError(f"{len(self.weights)} weights for {ratings} ratings", field="weights")
        if self.thresholds and len(self.thresholds) != ratings - 1:
            raise BadInputError(
                f"{len(self.thresholds)} thresholds for {ratings} ratings; one less than ratings", field="thresholds"
            )

    def linear_weights(self, ratings: int) -> list[float]:
        """w with reward = sum_k w_k rating_k. Raises BadInputError for an aggregation that is not linear."""
        self.check(ratings)
        if not self.is_linear:
            raise BadInputError(f"{self.kind} is not linear in the ratings", field="aggregation")
        return list(self.weights) or [1 / ratings] * ratings

    def __call__(self, ratings: Sequence[float]) -> float:
        """The reward of ratings [K]."""
        self.check(len(ratings))
        if self.is_linear:
            return math.fsum(w * r for w, r in zip(self.linear_weights(len(ratings)), ratings, strict=True))
        if self.kind == "min":
            return min(ratings)
        total = ratings[0]
        for rating, before, threshold in zip(ratings[1:], ratings, self.thresholds, strict=False):
            if not before > threshold:
                break
            total += rating
        return total


@dataclass(frozen=True, slots=True)
class RatingHeads:
    """Of a model that keeps one output a rating: their names in order, what is added to each output to give the rating
    in its own units, and how ratings become the reward."""

    names: tuple[str, ...]
    offsets: tuple[float, ...]
    aggregation: Aggregation

    def __post_init__(self) -> None:
        if len(self.names) != len(self.offsets):
            raise BadInputError(f"{len(self.offsets)} offsets for {len(self.names)} ratings", field="offsets")
        self.aggregation.check(len(self.names))

    def ratings(self, outputs: Sequence[float]) -> list[float]:
        """Ratings [K] of the head's outputs [K]."""
        return [output + offset for output, offset in zip(outputs, self.offsets, strict=True)]

    def reward(self, outputs: Sequence[float]) -> float:
        return self.aggregation(self.ratings(outputs))


@dataclass(frozen=True, slots=True)
class Implicit(CheckedSettings):
    """How a policy is read as a reward model: beta * (log pi(y|x) - log pi_ref(y|x)), summed over the response's tokens
    (arXiv 2305.18290); without a reference beta * log pi(y|x) per token (arXiv 2405.14734).

    `reference_version`: digest of the reference's files (`weights_digest`); empty where they are not known.
    """

    beta: Annotated[float, Gt(0), Lt(math.inf)]
    reference: str | None = None
    reference_version: str = ""


def implicit_parts(reference: str) -> tuple[str, str | None] | None:
    """Policy and reference of `dpo:POLICY@REFERENCE`, or of `dpo:POLICY`, which has none; None for other names."""
    if not reference.startswith(IMPLICIT):
        return None
    policy, _, base = reference.removeprefix(IMPLICIT).partition("@")
    return policy, base or None
