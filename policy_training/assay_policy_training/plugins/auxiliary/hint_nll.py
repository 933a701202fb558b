"""Likelihood of given tokens: the policy also learns to write the hints that its rollouts started from.

Covers: -log pi on tokens that are in a row and not the policy's own (`forced`), on their own mask. Leaves out: giving
them (contexts). Source: SEELE, arXiv 2509.06923 (paper read), coefficient 0.001.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.plugins.protocols import UpdateContext


@dataclass(frozen=True)
class HintNll:
    """S11: coefficient x negative log-likelihood of the given tokens, aggregated like the policy loss."""

    coefficient: float = 0.001
    name: ClassVar[str] = "hint_nll"
    needs: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        if not self.coefficient >= 0:
            raise BadInputError(f"must not be negative, not {self.coefficient}", field="auxiliary.coefficient")

    def own_mask(self, batch: RolloutBatch) -> Tensor:
        """[B,T] bool."""
        return torch.zeros_like(batch.mask) if batch.forced is None else batch.forced

    def loss(self, logp: Tensor, context: UpdateContext) -> Tensor:
        return -logp
