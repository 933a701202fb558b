"""Advantages cut to a range, so that no single token dominates a step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Gt
from torch import Tensor

from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.settings import RecipeSettings


@dataclass(frozen=True)
class ClipAdvantage(RecipeSettings, section="modulators"):
    """S7: every advantage within [-limit, limit]."""

    limit: Annotated[float, Gt(0)] = 5.0

    def modulate(self, batch: RolloutBatch) -> Tensor:
        return batch.estimated_adv.clamp(-self.limit, self.limit)
