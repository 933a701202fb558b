"""Shapes: functions of one part's reward, applied in the order of the composed reward's file.

Covers: what needs one response, its length and reference responses to the same prompt. Leaves out: anything that needs
the other responses of a group or a batch (running normalisers, length correction within a group): that is training.

Sources: PAR, its order of steps and its variants from the code of "Reward Shaping to Mitigate Reward Hacking in RLHF",
arXiv 2502.18770. Every shape has a slope, for first-order propagation of uncertainty; the references'
uncertainty is ignored.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, pstdev
from typing import ClassVar, Literal

from assay.models.length_correction import LengthCorrection, Unit
from assay.statistics.logistic import log_sigmoid, sigmoid


@dataclass(frozen=True, slots=True)
class ShapingContext:
    """Inputs of a shape besides the reward. `references`: rewards of the item's reference responses after the same
    earlier shapes. `length`: of the response, in the shape's unit."""

    references: Sequence[float] = ()
    length: float = 0.0


class Shape(ABC):
    """One step. A shape is a frozen dataclass whose fields are its keys in the file; a wrong one raises ValueError."""

    __pydantic_config__: ClassVar[dict[str, object]] = {"extra": "forbid", "strict": True, "allow_inf_nan": False}

    @abstractmethod
    def apply(self, reward: float, context: ShapingContext) -> float:
        """The shaped reward."""

    @abstractmethod
    def slope(self, reward: float, context: ShapingContext) -> float:
        """Derivative of `apply` at the reward."""


@dataclass(frozen=True)
class Relative(Shape):
    """A shape that compares with references: the item's own, or fixed numbers on the scale that reaches the shape.

    Fixed numbers belong to one checkpoint: measure them again when the model changes.
    """

    references: Literal["item"] | tuple[float, ...] = "item"

    def __post_init__(self) -> None:
        if self.references == ():
            raise ValueError("needs at least one reference")

    def compared_with(self, context: ShapingContext) -> Sequence[float]:
        """Raises ValueError where there is nothing to compare with."""
        references = context.references if self.references == "item" else self.references
        if not references:
            raise ValueError("there is no reference to compare with")
        return [float(value) for value in references]


@dataclass(frozen=True)
class Par(Relative):
    """Mean over references of sigmoid(k (reward - offset - reference)): how likely it beats a reference; in (0, 1).

    `offset` 3 is the variant SGFC. Far above all references it is flat: monitor the share context 1, and renew them.
    """

    k: float = 1.0
    offset: float = 0.0
    kind: Literal["par"] = "par"

    def __post_init__(self) -> None:
        super().__post_init__()
        _positive("k", self.k)

    def apply(self, reward: float, context: ShapingContext) -> float:
        return fmean(sigmoid(self.k * (reward - self.offset - r)) for r in self.compared_with(context))

    def slope(self, reward: float, context: ShapingContext) -> float:
        probabilities = [sigmoid(self.k * (reward - self.offset - r)) for r in self.compared_with(context)]
        return self.k * fmean(p * (1 - p) for p in probabilities)


@dataclass(frozen=True)
class Centre(Relative):
    """reward - mean of the references. Unbounded; the sigmoid after it is not PAR (a mean of sigmoids is)."""

    kind: Literal["centre"] = "centre"

    def apply(self, reward: float, context: ShapingContext) -> float:
        return reward - fmean(self.compared_with(context))

    def slope(self, reward: float, context: ShapingContext) -> float:
        return 1.0


@dataclass(frozen=True)
class LogSigmoid(Relative):
    """log sigmoid(reward - the `percentile` of Normal(mean, population std of the references)): the variant LSC."""

    percentile: float = 0.85
    kind: Literal["log_sigmoid"] = "log_sigmoid"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.percentile < 1:
            raise ValueError(f"percentile lies between 0 and 1, not {self.percentile}")

    def apply(self, reward: float, context: ShapingContext) -> float:
        return log_sigmoid(reward - self._threshold(context))

    def slope(self, reward: float, context: ShapingContext) -> float:
        return sigmoid(self._threshold(context) - reward)

    def _threshold(self, context: ShapingContext) -> float:
        references = self.compared_with(context)
        # The epsilon is the original code's: one reference has no deviation.
        return NormalDist(fmean(references), pstdev(references) + 1e-5).inv_cdf(self.percentile)


@dataclass(frozen=True)
class Sigmoid(Shape):
    """sigmoid(k reward), in (0, 1)."""

    k: float = 1.0
    kind: Literal["sigmoid"] = "sigmoid"

    def __post_init__(self) -> None:
        _positive("k", self.k)

    def apply(self, reward: float, context: ShapingContext) -> float:
        return sigmoid(self.k * reward)

    def slope(self, reward: float, context: ShapingContext) -> float:
        p = sigmoid(self.k * reward)
        return self.k * p * (1 - p)


@dataclass(frozen=True)
class Tanh(Shape):
    """tanh(k reward), in (-1, 1)."""

    k: float = 1.0
    kind: Literal["tanh"] = "tanh"

    def __post_init__(self) -> None:
        _positive("k", self.k)

    def apply(self, reward: float, context: ShapingContext) -> float:
        return math.tanh(self.k * reward)

    def slope(self, reward: float, context: ShapingContext) -> float:
        return self.k * (1 - math.tanh(self.k * reward) ** 2)


@dataclass(frozen=True)
class Clip(Shape):
    """Clipped to [`low`, `high`]; at least one bound is needed."""

    low: float | None = None
    high: float | None = None
    kind: Literal["clip"] = "clip"

    def __post_init__(self) -> None:
        if self.low is None and self.high is None:
            raise ValueError("needs low, high or both")
        if self.low is not None and self.high is not None and not self.low < self.high:
            raise ValueError(f"low ({self.low:g}) must be below high ({self.high:g})")

    def apply(self, reward: float, context: ShapingContext) -> float:
        above = reward if self.low is None else max(self.low, reward)
        return above if self.high is None else min(self.high, above)

    def slope(self, reward: float, context: ShapingContext) -> float:
        return 1.0 if self.apply(reward, context) == reward else 0.0


@dataclass(frozen=True)
class Standardise(Shape):
    """(reward - mean) / std, both measured beforehand on a common set of responses."""

    mean: float
    std: float
    kind: Literal["standardise"] = "standardise"

    def __post_init__(self) -> None:
        _positive("std", self.std)

    def apply(self, reward: float, context: ShapingContext) -> float:
        return (reward - self.mean) / self.std

    def slope(self, reward: float, context: ShapingContext) -> float:
        return 1.0 / self.std


@dataclass(frozen=True)
class LengthPenalty(Shape):
    """min(reward, ceiling) - rate * max(0, length - free), of the response alone; `unit` tokens needs a local model.

    A fitted length correction of the model is not a shape but the part's own `correct`.
    """

    rate: float = 0.01
    free: float = 300.0
    ceiling: float | None = None
    unit: Unit = "tokens"
    kind: Literal["length_penalty"] = "length_penalty"

    def __post_init__(self) -> None:
        if not (self.rate >= 0 and self.free >= 0):
            raise ValueError("rate and free are 0 or more")

    def apply(self, reward: float, context: ShapingContext) -> float:
        return self._correction.corrected(reward, context.length)

    def slope(self, reward: float, context: ShapingContext) -> float:
        return 1.0 if self.ceiling is None or reward < self.ceiling else 0.0

    @property
    def _correction(self) -> LengthCorrection:
        return LengthCorrection("penalty", "penalty", self.unit, rate=self.rate, free=self.free, ceiling=self.ceiling)


AnyShape = Par | Centre | LogSigmoid | Sigmoid | Tanh | Clip | Standardise | LengthPenalty


def _positive(name: str, value: float) -> None:
    if not (value > 0 and math.isfinite(value)):
        raise ValueError(f"{name} must be positive, not {value}")
