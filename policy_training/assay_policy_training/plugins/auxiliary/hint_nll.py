"""Likelihood of given tokens: the policy also learns to write the hints that its rollouts started from.

Covers: -log pi on tokens that are in a row and not the policy's own (`forced`), on their own mask. Leaves out: giving
them (contexts). Source: SEELE, arXiv 2509.06923 (paper read), coefficient 0.001.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge
from torch import Tensor

from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.protocols import UpdateContext


@dataclass(frozen=True)
class HintNll(RecipeSettings, section="auxiliary"):
    """S11: coefficient x negative log-likelihood of the given tokens, aggregated like the policy loss."""

    coefficient: Annotated[float, Ge(0)] = 0.001
    name: ClassVar[str] = "hint_nll"

    def own_mask(self, batch: RolloutBatch) -> Tensor:
        """[B,T] bool."""
        return torch.zeros_like(batch.mask) if batch.forced is None else batch.forced

    def loss(self, logp: Tensor, context: UpdateContext) -> Tensor:
        return -logp
