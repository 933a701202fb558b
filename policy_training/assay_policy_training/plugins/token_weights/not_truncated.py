"""Overlong filtering as a mask: truncated rows get no gradient, and stay in their group's statistics.

Source: DAPO arXiv 2503.14476 ("masks the loss of truncated samples").
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.protocols import UpdateContext


@dataclass(frozen=True)
class NotTruncated(RecipeSettings, section="token_weights"):
    """S8: takes rows that the length limit cut out of `loss_mask`; denominators count the others only."""

    def prepare(self, batch: RolloutBatch) -> RolloutBatch:
        return batch.with_(loss_mask=batch.loss_mask & ~batch.truncated[:, None])

    def weight(self, logp: Tensor, context: UpdateContext) -> None:
        return None
