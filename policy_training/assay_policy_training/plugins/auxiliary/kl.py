"""Estimators of KL(theta || ref) from one sampled token, as values and as losses; they are different objects.

Covers: k1, k2, k3, abs, and k3 in value with the gradient of k2; the auxiliary loss made of them. With
d = logp - logp_ref on tokens sampled from theta:

    as a value    E[k1] = E[k3] = KL; E[k2] is biased
    as a loss     E[grad k1] = 0; E[grad k2] = grad KL(theta || ref); E[grad k3] = grad KL(ref || theta), the forward KL

so k1 and k3 are for reports and in-reward penalties, k2 for a reverse-KL loss; the GRPO paper uses k3 as a loss.
Leaves out: the full KL over the vocabulary, importance ratios (off-policy tokens bias every estimator).

Source: J. Schulman, "Approximating KL divergence"; gradients checked numerically in tests/oracles.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.plugins.protocols import UpdateContext

CLAMP_D = 20.0
CLAMP_K3 = 10.0
ESTIMATORS = ("k1", "k2", "k3", "abs", "k3_straight_through")


def estimate(kind: str, logp: Tensor, logp_ref: Tensor) -> Tensor:
    """Per-token estimate, same shape as `logp`. d is clamped to +-20 and k3 to at most 10 against overflow."""
    d = (logp - logp_ref).clamp(-CLAMP_D, CLAMP_D)
    if kind == "k1":
        return d
    if kind == "abs":
        return d.abs()
    k2 = d * d / 2
    if kind == "k2":
        return k2
    k3 = (torch.expm1(-d) + d).clamp(max=CLAMP_K3)
    if kind == "k3":
        return k3
    if kind == "k3_straight_through":
        return k2 - k2.detach() + k3.detach()
    raise BadInputError(f"unknown KL estimator {kind!r}; one of {', '.join(ESTIMATORS)}", field="kl.estimator")


@dataclass(frozen=True)
class KlLoss:
    """S11: coefficient x KL to the reference, aggregated like the policy loss."""

    coefficient: float = 0.001
    estimator: str = "k3"
    name: ClassVar[str] = "kl"
    needs: ClassVar[frozenset[str]] = frozenset({"logp_ref"})

    def __post_init__(self) -> None:
        if self.estimator not in ESTIMATORS:
            raise BadInputError(
                f"unknown KL estimator {self.estimator!r}; one of {', '.join(ESTIMATORS)}", field="kl.estimator"
            )
        if not self.coefficient >= 0:
            raise BadInputError(f"must not be negative, not {self.coefficient}", field="kl.coefficient")

    def loss(self, logp: Tensor, context: UpdateContext) -> Tensor:
        """[B,T] unscaled loss matrix."""
        return estimate(self.estimator, logp, context.scored_logp_ref)
