"""Only the best row of each group: rejection sampling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from assay_policy_training.core.batch import RolloutBatch


@dataclass(frozen=True)
class BestOfGroup:
    """S4: keep the row with the highest reward of each group, the first of equal ones; a group without one goes."""

    rounds: ClassVar[int] = 1

    def keep(self, batch: RolloutBatch) -> Tensor:
        """[B] bool."""
        reward: list[float] = batch.scored_reward.tolist()
        best: dict[str, int] = {}
        for row, uid in enumerate(batch.uid):
            if reward[row] == reward[row] and (uid not in best or reward[row] > reward[best[uid]]):
                best[uid] = row
        keep = torch.zeros(len(batch), dtype=torch.bool)
        keep[list(best.values())] = True
        return keep
