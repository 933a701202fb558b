"""The sparse half of imitation: a token also answers for how far from the teacher it leads.

The gradient of KL(policy || teacher) over whole rows has two parts: the dense one, of each visited prefix's own KL
(`auxiliary.teacher_kl`), and this one, the score function times the KL of the tokens that follow. Covers: the suffix
sum of the old policy's full KL, with the mean of the group's other rows at the same index of a generated token as
baseline (a row that has ended has 0 to come), which leaves the expected gradient as it is. Leaves out: the dense half,
whose coefficient must be the same.

Source: "A Note on Hybrid Online Reinforcement and Imitation Learning for LLMs", arXiv 2512.23097; decomposition checked
by finite differences in tests/oracles.
"""

from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Le
from torch import Tensor

from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.settings import RecipeSettings


def future_sum(kl: Tensor, mask: Tensor, *, gamma: float = 1.0) -> Tensor:
    """[B,T] float64 sum over later tokens j > t of gamma^(j-t) KL_j, counted over tokens in `mask`; 0 off `mask`."""
    sums = torch.zeros_like(kl, dtype=torch.float64)
    carried = torch.zeros(len(kl), dtype=torch.float64, device=kl.device)
    for position in reversed(range(kl.shape[1])):
        here = mask[:, position]
        sums[:, position] = torch.where(here, carried, 0.0)
        carried = torch.where(here, gamma * (kl[:, position].double() + carried), carried)
    return sums


def others_mean(values: Tensor, mask: Tensor, group: Tensor, rows: Tensor) -> Tensor:
    """[B,T] mean over the group's other `rows` [B] of their value at the same index of a token in `mask`.

    A row without that many tokens counts with 0; without other rows the mean is 0.
    """
    position = (mask.long().cumsum(1) - 1).clamp(min=0)
    width = mask.shape[1]
    counted = mask & rows[:, None]
    cell = group[:, None] * width + position
    size = (int(group.max()) + 1) * width if len(group) else 0
    sums = torch.zeros(size, dtype=torch.float64, device=values.device)
    total = sums.index_add(0, cell[counted], values.double()[counted])[cell]
    members = torch.zeros(int(group.max()) + 1 if len(group) else 0, device=values.device, dtype=torch.float64)
    other_rows = members.index_add(0, group, rows.double())[group] - rows.double()
    filled = torch.where(counted, values.double(), 0.0)
    return (total - filled) / other_rows.clamp(min=1)[:, None]


class FutureKl(RecipeSettings, section="modulators"):
    """S7: A - coefficient (F - mean of the others' F), F = `future_sum`. `gamma` 0 leaves on-policy distillation alone.

    Rows without a reward, and rows alone in their group, are left as they are.
    """

    coefficient: Annotated[float, Ge(0)] = 0.1
    gamma: Annotated[float, Ge(0), Le(1)] = 1.0
    needs: ClassVar[frozenset[str]] = frozenset({"teacher_kl"})

    def modulate(self, batch: RolloutBatch) -> Tensor:
        future = future_sum(batch.extras["teacher_kl"], batch.mask, gamma=self.gamma)
        baseline = others_mean(future, batch.mask, batch.group, batch.valid)
        rows = torch.zeros(len(batch), dtype=torch.long).index_add(0, batch.group, batch.valid.long())[batch.group]
        learns = batch.mask & (batch.valid & (rows > 1))[:, None]
        adv = batch.estimated_adv
        return torch.where(learns, adv - self.coefficient * (future - baseline), adv.double()).float()
