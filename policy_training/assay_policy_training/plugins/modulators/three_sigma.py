"""Advantages whitened over the batch, and 0 where they are more than three deviations out (StableReinforce).

Statistics (ddof 0) over the tokens of all rows with a reward. The paper states mean +- 3 std; its code compares with
mean +- 3. With sparse rewards the rare successes are the outliers (one in 32 has z 5.6) and lose their gradient.
Source: StableReinforce (R1-Reward) arXiv 2505.02835.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Gt
from torch import Tensor

from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.settings import RecipeSettings


def three_sigma(advantage: Tensor, mask: Tensor, *, bound: float = 3.0) -> Tensor:
    """z-scores over `mask`, 0 beyond `bound` and outside the mask; all 0 where nothing varies. Same shape, float32."""
    values = advantage[mask].double()
    if not len(values) or (deviation := values.std(correction=0)) < 1e-8:
        return torch.zeros(advantage.shape, device=advantage.device)
    z = (advantage.double() - values.mean()) / deviation
    return torch.where(mask & (z.abs() <= bound), z, 0.0).float()


@dataclass(frozen=True)
class ThreeSigma(RecipeSettings, section="modulators"):
    """S7."""

    bound: Annotated[float, Gt(0)] = 3.0

    def modulate(self, batch: RolloutBatch) -> Tensor:
        return three_sigma(batch.estimated_adv, batch.mask & batch.valid[:, None], bound=self.bound)
