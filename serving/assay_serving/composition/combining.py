"""Combinations: one reward of several operands, each a part's shaped reward or the result of another combination.

Covers: the functions, which operands each needs (a closed gate needs fewer), and first-order propagation of independent
uncertainties. Leaves out: the source of the operands (`composed`), shaping.

Sources: gated accumulation, arXiv 2508.10548 (a lower level counts where every higher one exceeds its threshold); the
weighted sum and veto of rubric rewards, arXiv 2508.12790; ensembles, `assay_serving.engines.ensemble`. Constrained RLHF
(arXiv 2310.04373) learns its multipliers over batches, in training; here a penalty is a fixed number.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from assay_serving.engines.aggregation import Combine, MemberAggregation, Variance


class Value(NamedTuple):
    """A number with its standard deviation; None where a model gives none."""

    reward: float
    uncertainty: float | None = None


class Combination(ABC):
    """A frozen dataclass whose fields are its keys in the file; a wrong one raises ValueError."""

    __pydantic_config__: ClassVar[dict[str, object]] = {"extra": "forbid", "strict": True, "allow_inf_nan": False}

    @property
    @abstractmethod
    def operands(self) -> tuple[str, ...]:
        """All names it may need."""

    @property
    @abstractmethod
    def formula(self) -> str:
        """Readable, in the operands' names."""

    def needs(self, values: Mapping[str, Value]) -> tuple[str, ...]:
        """The operands it needs, given the values known so far; with all of them it can be computed.

        More known values only add names.
        """
        return self.operands

    @abstractmethod
    def combine(self, values: Mapping[str, Value]) -> Value:
        """The combined value; `values` holds every operand in `needs`."""

    def skipped(self, values: Mapping[str, Value]) -> str:
        """Why the other operands were not needed."""
        return "not needed"


@dataclass(frozen=True)
class WeightedSum(Combination):
    """Sum of weight * operand; `normalise` divides by the sum of the weights. Parts of unlike scales need shaping."""

    weights: dict[str, float]
    normalise: bool = False
    kind: Literal["weighted_sum"] = "weighted_sum"

    def __post_init__(self) -> None:
        if not self.weights:
            raise ValueError("needs at least one weight")
        if self.normalise and not sum(self.weights.values()) > 0:
            raise ValueError("weights that are to be normalised must have a positive sum")

    @property
    def operands(self) -> tuple[str, ...]:
        return tuple(self.weights)

    @property
    def formula(self) -> str:
        return " + ".join(f"{weight:g} {name}" for name, weight in self.effective.items()).replace("+ -", "- ")

    @property
    def effective(self) -> dict[str, float]:
        """The weights as they count."""
        total = sum(self.weights.values()) if self.normalise else 1.0
        return {name: weight / total for name, weight in self.weights.items()}

    def combine(self, values: Mapping[str, Value]) -> Value:
        terms = [(weight, values[name]) for name, weight in self.effective.items()]
        return Value(math.fsum(w * v.reward for w, v in terms), _spread(terms))


@dataclass(frozen=True)
class SymmetricCombination(Combination):
    """A combination that always needs all of its operands, in whatever order."""

    of: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.of) < 2:
            raise ValueError("of: needs at least two operands")
        _different(self.of)

    @property
    def operands(self) -> tuple[str, ...]:
        return self.of


@dataclass(frozen=True)
class Minimum(SymmetricCombination):
    """The smallest operand, with its uncertainty."""

    kind: Literal["min"] = "min"

    @property
    def formula(self) -> str:
        return f"min({', '.join(self.of)})"

    def combine(self, values: Mapping[str, Value]) -> Value:
        return min((values[name] for name in self.of), key=lambda value: value.reward)


@dataclass(frozen=True)
class Product(SymmetricCombination):
    """The operands multiplied: for shares and probabilities. Two negative operands make a positive reward."""

    kind: Literal["product"] = "product"

    @property
    def formula(self) -> str:
        return " * ".join(self.of)

    def combine(self, values: Mapping[str, Value]) -> Value:
        factors = [values[name] for name in self.of]
        slopes = [math.prod(v.reward for v in factors[:i] + factors[i + 1 :]) for i in range(len(factors))]
        return Value(math.prod(v.reward for v in factors), _spread(zip(slopes, factors, strict=True)))


@dataclass(frozen=True)
class Gate(Combination):
    """`of` where `open` is above (or at least) a threshold, else `floor`; `of` is not evaluated where it is closed."""

    of: str
    open: str
    floor: float
    above: float | None = None
    at_least: float | None = None
    kind: Literal["gate"] = "gate"

    def __post_init__(self) -> None:
        _one_of(above=self.above, at_least=self.at_least)

    @property
    def operands(self) -> tuple[str, ...]:
        return self.open, self.of

    @property
    def formula(self) -> str:
        condition = f"> {self.above:g}" if self.above is not None else f">= {self.at_least:g}"
        return f"{self.of} where {self.open} {condition}, else {self.floor:g}"

    def is_open(self, reward: float) -> bool:
        return reward > self.above if self.above is not None else reward >= (self.at_least or 0.0)

    def needs(self, values: Mapping[str, Value]) -> tuple[str, ...]:
        key = values.get(self.open)
        return self.operands if key is not None and self.is_open(key.reward) else (self.open,)

    def combine(self, values: Mapping[str, Value]) -> Value:
        # The floor has no uncertainty: no part gives the probability that the gate is closed.
        return values[self.of] if self.is_open(values[self.open].reward) else Value(self.floor)

    def skipped(self, values: Mapping[str, Value]) -> str:
        return f"{self.open} closed the gate"


@dataclass(frozen=True)
class Level:
    """One level of a gated sum. `above`: what it must exceed for the levels below it to count."""

    __pydantic_config__: ClassVar[dict[str, object]] = Combination.__pydantic_config__

    of: str
    above: float | None = None


@dataclass(frozen=True)
class GatedSum(Combination):
    """R1 + sum over i > 1 of Ri * prod over j < i of [Rj > threshold j], the levels from the most important down."""

    levels: tuple[Level, ...]
    kind: Literal["gated_sum"] = "gated_sum"

    def __post_init__(self) -> None:
        if len(self.levels) < 2:
            raise ValueError("needs at least two levels")
        if any(level.above is None for level in self.levels[:-1]):
            raise ValueError("every level but the last needs `above`")
        if self.levels[-1].above is not None:
            raise ValueError("`above` of the last level gates nothing")
        _different(self.operands)

    @property
    def operands(self) -> tuple[str, ...]:
        return tuple(level.of for level in self.levels)

    @property
    def formula(self) -> str:
        gates = [f", where {level.of} > {level.above:g}: + " for level in self.levels[:-1]]
        return "".join(level.of + gate for level, gate in zip(self.levels, [*gates, ""], strict=True))

    def needs(self, values: Mapping[str, Value]) -> tuple[str, ...]:
        needed: list[str] = []
        for level in self.levels:
            needed.append(level.of)
            value = values.get(level.of)
            if value is None or (level.above is not None and not value.reward > level.above):
                break
        return tuple(needed)

    def combine(self, values: Mapping[str, Value]) -> Value:
        counted = [values[name] for name in self.needs(values)]
        return Value(math.fsum(v.reward for v in counted), _spread((1.0, v) for v in counted))

    def skipped(self, values: Mapping[str, Value]) -> str:
        return f"{self.needs(values)[-1]} closed the gate"


@dataclass(frozen=True)
class ConstraintPenalty(Combination):
    """`of` under a bound on `where`: at least, or at most, a number. Where it is violated: minus `penalty` times the
    violation, or (a hard constraint) `otherwise`, and `of` is then not evaluated."""

    of: str
    where: str
    at_least: float | None = None
    at_most: float | None = None
    penalty: float | None = None
    otherwise: float | None = None
    kind: Literal["constraint"] = "constraint"

    def __post_init__(self) -> None:
        _one_of(at_least=self.at_least, at_most=self.at_most)
        _one_of(penalty=self.penalty, otherwise=self.otherwise)
        if self.penalty is not None and not self.penalty >= 0:
            raise ValueError(f"penalty is 0 or more, not {self.penalty}: a violation must not pay")

    @property
    def operands(self) -> tuple[str, ...]:
        return self.where, self.of

    @property
    def formula(self) -> str:
        demand = f">= {self.at_least:g}" if self.at_least is not None else f"<= {self.at_most:g}"
        if self.otherwise is not None:
            return f"{self.of} where {self.where} {demand}, else {self.otherwise:g}"
        return f"{self.of} - {self.penalty:g} * violation of {self.where} {demand}"

    def violation(self, reward: float) -> float:
        """Distance beyond the bound, 0 where it holds."""
        if self.at_least is not None:
            return max(0.0, self.at_least - reward)
        return max(0.0, reward - (self.at_most or 0.0))

    def needs(self, values: Mapping[str, Value]) -> tuple[str, ...]:
        if self.penalty is not None:
            return self.operands
        watched = values.get(self.where)
        return self.operands if watched is not None and self.violation(watched.reward) == 0 else (self.where,)

    def combine(self, values: Mapping[str, Value]) -> Value:
        watched = values[self.where]
        violation = self.violation(watched.reward)
        if violation == 0:
            return values[self.of]
        if self.otherwise is not None:
            return Value(self.otherwise)
        main, penalty = values[self.of], self.penalty or 0.0
        return Value(main.reward - penalty * violation, _spread([(1.0, main), (penalty, watched)]))

    def skipped(self, values: Mapping[str, Value]) -> str:
        return f"{self.where} violates the constraint"


@dataclass(frozen=True)
class Ensemble(SymmetricCombination):
    """The operands as members of an ensemble (`assay_serving.engines.ensemble`), with their spread as the uncertainty.

    They must be on one scale: standardise or bound each of them.
    """

    combine_by: Combine = "lower_bound"
    weight: float = 1.0
    beta: float = 1.0
    variance: Variance = "population"
    kind: Literal["ensemble"] = "ensemble"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.weight >= 0 and self.beta > 0):
            raise ValueError("weight is 0 or more, beta is positive")

    @property
    def formula(self) -> str:
        names = ", ".join(self.of)
        by = {"uwo": f"{self.weight:g} * variance", "lower_bound": f"{self.weight:g} * std"}.get(self.combine_by)
        if by is not None:
            return f"mean({names}) - {by}"
        return f"{self.combine_by}({names})" + (f", beta {self.beta:g}" if self.combine_by == "kl_robust" else "")

    def combine(self, values: Mapping[str, Value]) -> Value:
        rewards = np.array([[values[name].reward for name in self.of]])
        by = MemberAggregation(self.combine_by, self.weight, self.beta, self.variance)
        return Value(float(by.combined(rewards)[0]), float(by.spread(rewards)[0]))


AnyCombination = WeightedSum | Minimum | Product | Gate | GatedSum | ConstraintPenalty | Ensemble


def _spread(terms: Iterable[tuple[float, Value]]) -> float | None:
    """sqrt(sum (slope * uncertainty)^2), as for independent operands; None where one that counts gives none."""
    squares = 0.0
    for slope, value in terms:
        if slope == 0:
            continue
        if value.uncertainty is None:
            return None
        squares += (slope * value.uncertainty) ** 2
    return math.sqrt(squares)


def _different(names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        raise ValueError("names an operand twice")


def _one_of(**options: float | None) -> None:
    if sum(value is not None for value in options.values()) != 1:
        raise ValueError(f"needs exactly one of {' and '.join(options)}")
