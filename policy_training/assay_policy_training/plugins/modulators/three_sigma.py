"""Advantages whitened over the batch, and 0 where they are more than three deviations out (StableReinforce).

Statistics (ddof 0) over the tokens of all rows with a reward. The paper states mean +- 3 std; its code compares with
mean +- 3. With sparse rewards the rare successes are the outliers (one in 32 has z 5.6) and lose their gradient.
Source: StableReinforce (R1-Reward) arXiv 2505.02835.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.batch import RolloutBatch


def three_sigma(advantage: Tensor, mask: Tensor, *, bound: float = 3.0) -> Tensor:
    """z-scores over `mask`, 0 beyond `bound` and outside the mask; all 0 where nothing varies. Same shape, float32."""
    values = advantage[mask].double()
    if not len(values) or (deviation := values.std(correction=0)) < 1e-8:
        return torch.zeros(advantage.shape, device=advantage.device)
    z = (advantage.double() - values.mean()) / deviation
    return torch.where(mask & (z.abs() <= bound), z, 0.0).float()


@dataclass(frozen=True)
class ThreeSigma:
    """S7."""

    bound: float = 3.0
    needs: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        if not self.bound > 0:
            raise BadInputError(f"must be above 0, not {self.bound}", field="modulators.bound")

    def modulate(self, batch: RolloutBatch) -> Tensor:
        return three_sigma(batch.estimated_adv, batch.mask & batch.valid[:, None], bound=self.bound)
