"""Advantages on one scale.

Whitening: mean 0 and deviation 1 over the tokens of the whole batch, the moments over every token that counts, rows
without a reward left out. Leaves out: normalising within groups (the estimators). Source: verl's masked whitening, as
in PPO and REINFORCE++ (arXiv 2501.03262); reference numbers in tests/oracles.

Three sigma (StableReinforce): whitened over the batch, and 0 where more than three deviations out. Statistics (ddof 0)
over the tokens of all rows with a reward. The paper states mean +- 3 std; its code compares with mean +- 3. With sparse
rewards the rare successes are the outliers (one in 32 has z 5.6) and lose their gradient. Source: StableReinforce
(R1-Reward) arXiv 2505.02835.

Clip: cut to a range, so that no single token dominates a step.
"""

from typing import Annotated, Literal

import torch
from annotated_types import Ge, Gt, Le
from torch import Tensor

from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.settings import RecipeSettings


def whiten(values: Tensor, mask: Tensor, *, ddof: int = 1, eps: float = 1e-8) -> Tensor:
    """(x - mean) / sqrt(var + eps) where `mask` is on, 0 elsewhere; float64, shapes alike.

    Where no more than `ddof` tokens are on, there is no variance and all are 0.
    """
    selected = values.double()[mask]
    out = torch.zeros(values.shape, dtype=torch.float64, device=values.device)
    if len(selected) > ddof:
        out[mask] = (selected - selected.mean()) / (selected.var(correction=ddof) + eps).sqrt()
    return out


class Whitening(RecipeSettings, section="modulators"):
    """S7: `whiten` over the whole batch.

    `tokens`: `own`, every token the policy generated, whatever carries a gradient; `trained`, those of `loss_mask` only
    (rows that were generated over several steps have tokens that an earlier step trained).
    """

    ddof: Annotated[int, Ge(0), Le(1)] = 1
    eps: Annotated[float, Ge(0)] = 1e-8
    tokens: Literal["own", "trained"] = "own"

    def modulate(self, batch: RolloutBatch) -> Tensor:
        mask = (batch.mask if self.tokens == "own" else batch.loss_mask) & batch.counted[:, None]
        return whiten(batch.estimated_adv, mask, ddof=self.ddof, eps=self.eps).float()


def three_sigma(advantage: Tensor, mask: Tensor, *, bound: float = 3.0) -> Tensor:
    """z-scores over `mask`, 0 beyond `bound` and outside the mask; all 0 where nothing varies. Same shape, float32."""
    values = advantage[mask].double()
    if not len(values) or (deviation := values.std(correction=0)) < 1e-8:
        return torch.zeros(advantage.shape, device=advantage.device)
    z = (advantage.double() - values.mean()) / deviation
    return torch.where(mask & (z.abs() <= bound), z, 0.0).float()


class ThreeSigma(RecipeSettings, section="modulators"):
    """S7."""

    bound: Annotated[float, Gt(0)] = 3.0

    def modulate(self, batch: RolloutBatch) -> Tensor:
        return three_sigma(batch.estimated_adv, batch.mask & batch.valid[:, None], bound=self.bound)


class ClipAdvantage(RecipeSettings, section="modulators"):
    """S7: every advantage within [-limit, limit]."""

    limit: Annotated[float, Gt(0)] = 5.0

    def modulate(self, batch: RolloutBatch) -> Tensor:
        return batch.estimated_adv.clamp(-self.limit, self.limit)
