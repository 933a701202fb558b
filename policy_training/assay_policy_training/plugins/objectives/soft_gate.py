"""SAPO: a smooth gate on the ratio in place of a clip.

f(r) = 4/tau sigmoid(tau (r - 1)), whose slope is 1 at r = 1 and falls off on both sides; loss -A f(r), with a steeper
gate for A <= 0. Source: SAPO arXiv 2511.20347, as in verl.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.ratios import log_ratio
from assay_policy_training.plugins.protocols import Scope, UpdateContext


def gate(ratio: Tensor, tau: float | Tensor) -> Tensor:
    """f(r); same shape as `ratio`."""
    return 4 / tau * torch.sigmoid(tau * (ratio - 1))


@dataclass(frozen=True)
class Sapo:
    """S9, token scope."""

    tau_pos: float = 1.0
    tau_neg: float = 1.05
    scope: ClassVar[Scope] = "token"
    needs: ClassVar[frozenset[str]] = frozenset({"logp_old"})

    def __post_init__(self) -> None:
        if not 0 < self.tau_pos <= self.tau_neg:
            raise BadInputError(f"tau_pos {self.tau_pos} must be in (0, tau_neg {self.tau_neg}]", field="objective")

    def loss(self, logp: Tensor, context: UpdateContext) -> tuple[Tensor, dict[str, Tensor]]:
        ratio = log_ratio(logp, context.logp_old).exp()
        tau = torch.where(context.adv > 0, self.tau_pos, self.tau_neg)
        return -context.adv * gate(ratio, tau), {}
