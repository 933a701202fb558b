"""Only the tokens of highest entropy are trained on ("80/20").

The threshold is a quantile of the old policy's entropies, at the sampling temperature, over all of the policy's tokens
of the step; only kept tokens are in the denominators. TRL takes the entropies of each forward pass instead; those of
old do not change between minibatches.

Source: "Beyond the 80/20 Rule" arXiv 2506.01939, as in TRL.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Gt, Le
from torch import Tensor

from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.protocols import UpdateContext
from assay_policy_training.plugins.token_weights.quantile import quantile


def high_entropy(entropy: Tensor, mask: Tensor, share: float) -> Tensor:
    """[B,T] bool: tokens of `mask` whose entropy is at least its (1 - share) quantile."""
    if not mask.any():
        return torch.zeros_like(mask)
    return mask & (entropy.double() >= quantile(entropy[mask], 1 - share))


@dataclass(frozen=True)
class HighEntropy(RecipeSettings, section="token_weights"):
    """S8: `share` of the tokens keep their gradient."""

    share: Annotated[float, Gt(0), Le(1)] = 0.2
    needs: ClassVar[frozenset[str]] = frozenset({"entropy"})

    def prepare(self, batch: RolloutBatch) -> RolloutBatch:
        return batch.with_(loss_mask=batch.loss_mask & high_entropy(batch.scored_entropy, batch.mask, self.share))

    def weight(self, logp: Tensor, context: UpdateContext) -> None:
        return None
