"""Advantages cut to a range, so that no single token dominates a step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.batch import RolloutBatch


@dataclass(frozen=True)
class ClipAdvantage:
    """S7: every advantage within [-limit, limit]."""

    limit: float = 5.0
    needs: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        if not self.limit > 0:
            raise BadInputError(f"must be above 0, not {self.limit}", field="modulators.limit")

    def modulate(self, batch: RolloutBatch) -> Tensor:
        return batch.estimated_adv.clamp(-self.limit, self.limit)
