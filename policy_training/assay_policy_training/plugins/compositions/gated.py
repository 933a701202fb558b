"""Rewards that count only where others do: gated accumulation, consistency with the verdict, soft penalties.

Covers: gated accumulation ("Stabilizing Long-term Multi-turn Reinforcement Learning with Gated Rewards", arXiv
2508.10548; that a level needs every level above it is our reading), the consistency reward of R1-Reward (arXiv
2505.02835), one reward with multiplicative penalties (CaRL). Each is a function of one row. A part is missing only
where it would have counted. The first is also a combination of the server (`assay_serving.composition`).
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

import torch
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.compositions.weighted import check_numbers, named_part


class GatedAccumulation(RecipeSettings, section="reward"):
    """S3: R_1 + sum of the R_i all of whose higher levels exceed their thresholds.

    `levels`: parts by priority, the long-term outcome first. `thresholds`: part -> number, for every level but the
    last. Groups whose gates are all closed have one reward and no advantage: filter or watch them.
    """

    levels: tuple[str, ...] = ()
    thresholds: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.levels) < 2 or len(set(self.levels)) < len(self.levels):
            raise BadInputError("needs at least two different parts", field="reward.levels")
        if set(self.thresholds) != set(self.levels[:-1]):
            raise BadInputError("needs one for every level but the last", field="reward.thresholds")
        check_numbers(self.thresholds, "thresholds")

    def __call__(self, parts: Mapping[str, Tensor]) -> Tensor:
        total = named_part(parts, self.levels[0]).clone()
        opened = torch.ones_like(total, dtype=torch.bool)
        for above, name in zip(self.levels, self.levels[1:], strict=False):
            # A missing level above leaves the total missing already.
            opened &= named_part(parts, above) > self.thresholds[above]
            total = total + torch.where(opened, named_part(parts, name), 0.0)
        return total


class ConsistencyReward(RecipeSettings, section="reward"):
    """S3: 0.5 format + result (1 + 0.5 consistency), where consistency (1, 0 or -1) says whether the reasoning leads to
    the verdict; it is not looked at where the result is 0."""

    result: str = "verifier"
    consistency: str = "consistency"
    format: str = "format"

    def __call__(self, parts: Mapping[str, Tensor]) -> Tensor:
        result = named_part(parts, self.result)
        led = torch.where(result == 0, 0.0, named_part(parts, self.consistency))
        return 0.5 * named_part(parts, self.format) + result * (1 + 0.5 * led)


class SoftPenalties(RecipeSettings, section="reward"):
    """S3: one reward times the product of penalties, each in [0, 1] (1 = nothing wrong): no sum of shaped terms to be
    traded off. `scale`: `unit` cuts a part to [0, 1], `sigmoid` takes a reward model's score to it."""

    reward: str = ""
    penalties: tuple[str, ...] = ()
    scale: Literal["unit", "sigmoid"] = "unit"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.reward or not self.penalties:
            raise BadInputError("name the reward and at least one penalty", field="reward.penalties")

    def __call__(self, parts: Mapping[str, Tensor]) -> Tensor:
        total = named_part(parts, self.reward)
        for name in self.penalties:
            penalty = named_part(parts, name)
            total = total * (penalty.sigmoid() if self.scale == "sigmoid" else penalty.clamp(0, 1))
        return total
