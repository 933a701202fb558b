"""A plug-in for slot S7: responses below their group's baseline push the policy less than those above it."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.batch import RolloutBatch


@dataclass(frozen=True)
class SofterNegatives:
    """Negative advantages times `factor`."""

    factor: float = 0.5
    needs: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        if self.factor < 0:
            raise BadInputError(f"must not be negative, not {self.factor}", field="modulators.factor")

    def modulate(self, batch: RolloutBatch) -> Tensor:
        """[B,T] from `batch.adv`."""
        assert batch.adv is not None
        return torch.where(batch.adv < 0, self.factor * batch.adv, batch.adv)
