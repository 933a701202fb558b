"""The weighted sum of reward parts.

Leaves out: sums whose weights move with training, gates and the like on a whole step (the other compositions here);
compositions that a server makes (`assay_serving.composition`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.plugins.compositions.named import named_part


@dataclass(frozen=True)
class Composition:
    """reward = sum of weight x part. No weights given: every part counts once.

    A part of weight 0 is recorded and not counted, so it may be missing; a counted one that is missing makes the
    reward missing.
    """

    weights: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, weight in self.weights.items():
            if not math.isfinite(weight):
                raise BadInputError(f"weight of {name!r} must be finite, not {weight}", field="reward.weights")

    def __call__(self, parts: Mapping[str, Tensor]) -> Tensor:
        """[B] float64. Raises BadInputError for a weight whose part no source gives."""
        weights = self.weights or dict.fromkeys(parts, 1.0)
        values = {name: named_part(parts, name, field="reward.weights") for name in weights}
        counted = [weight * values[name] for name, weight in weights.items() if weight != 0]
        if not counted:
            raise BadInputError("every reward part has weight 0", field="reward.weights")
        return torch.stack(counted).sum(0)
