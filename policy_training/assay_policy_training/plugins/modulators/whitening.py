"""Advantages with mean 0 and deviation 1 over the tokens of the whole batch.

Covers: the moments over every token that counts, rows without a reward left out. Leaves out: normalising within groups
(the estimators).

Source: verl's masked whitening, as in PPO and REINFORCE++ (arXiv 2501.03262); reference numbers in tests/oracles.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from annotated_types import Ge, Le
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


@dataclass(frozen=True)
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
