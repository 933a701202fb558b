"""MaxMin: the reward is that of the user group that is worst off.

Source: "MaxMin-RLHF: Towards Equitable Alignment of Large Language Models with Diverse Human Preferences", arXiv
2402.08925 (notes; that each round updates by the worst group alone is recalled). The worst group is that of the step
before, so that one function rewards all rows of a step. Leaves out: finding the groups and training their reward
models (`assay train groups`).
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated

from annotated_types import Ge, Le
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.settings import StatefulSettings
from assay_policy_training.plugins.compositions.weighted import (
    check_numbers,
    check_positive,
    named_part,
    part_mean,
    weighted_sum,
)
from assay_policy_training.plugins.protocols import StepReport


def worst_group(utilities: Mapping[str, float]) -> str:
    """The name with the smallest mean utility; the first of equal ones."""
    return min(utilities, key=lambda name: utilities[name])


class MaxMin(StatefulSettings, section="reward"):
    """S3: (1 - spread) x the worst group's utility + spread x the mixture of all.

    `mixture`: part -> weight of its group, summing to 1 after division. `centre` and `scale`: part -> numbers that
    bring the utilities to one scale before they are compared and used. Before the first step is seen: the mixture.
    """

    mixture: Mapping[str, float] = field(default_factory=dict)
    spread: Annotated[float, Ge(0), Le(1)] = 0.0
    centre: Mapping[str, float] = field(default_factory=dict)
    scale: Mapping[str, float] = field(default_factory=dict)
    worst: str | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_numbers(self.mixture, "mixture")
        check_positive([*self.mixture.items(), *((f"scale.{name}", value) for name, value in self.scale.items())])
        if len(self.mixture) < 2:
            raise BadInputError("needs the utilities of at least two groups", field="reward.mixture")
        for what, names in (("centre", self.centre), ("scale", self.scale)):
            if unknown := [name for name in names if name not in self.mixture]:
                raise BadInputError(f"{unknown[0]!r} is no group", field=f"reward.{what}")

    @property
    def weights(self) -> dict[str, float]:
        """Of each group's utility in the next step, summing to 1."""
        total = sum(self.mixture.values())
        share = 1.0 if self.worst is None else self.spread
        weights = {name: share * weight / total for name, weight in self.mixture.items()}
        if self.worst is not None:
            weights[self.worst] += 1 - share
        return weights

    def __call__(self, parts: Mapping[str, Tensor]) -> Tensor:
        return weighted_sum({name: self._scaled(parts, name) for name in self.mixture}, self.weights)

    def _scaled(self, parts: Mapping[str, Tensor], name: str) -> Tensor:
        return (named_part(parts, name) - self.centre.get(name, 0.0)) / self.scale.get(name, 1.0)

    def observe(self, report: StepReport) -> None:
        """Find the worst group of the step; groups without a reward are skipped."""
        parts = {name: self._scaled(report.batch.r_parts, name) for name in self.mixture}
        means = {name: part_mean(parts, name) for name in self.mixture}
        measured = {name: mean for name, mean in means.items() if mean is not None}
        if measured:
            self.worst = worst_group(measured)

    def numbers(self) -> dict[str, float]:
        return {f"reward_weight_{name}": weight for name, weight in self.weights.items()}
