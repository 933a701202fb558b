"""DPPO: masks tokens whose probability, rather than ratio, has moved too far in the direction of the update.

Covers: the change of probability (total variation, `tv`) and the KL of the two outcomes "this token" and "another one"
(`binary_kl`). A token whose probability goes from .001 to .02 has ratio 20 and has hardly moved. The loss is
-sg(min(r, cap)) A log theta on tokens that are kept; the others stay in the denominators.

Source: DPPO arXiv 2602.04879, as in verl; the thresholds there differ by run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Gt
from torch import Tensor

from assay_policy_training.core.ratios import truncated_is
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.protocols import Scope, UpdateContext

TINY = 1e-8


def tv_keep(prob: Tensor, prob_old: Tensor, advantage: Tensor, *, eps_low: float, eps_high: float) -> Tensor:
    """Bool, of one shape: A > 0 needs prob - old <= eps_high, A < 0 needs it >= -eps_low."""
    change = prob - prob_old
    return torch.where(advantage > 0, change <= eps_high, change >= -eps_low)


def binary_kl(prob: Tensor, prob_old: Tensor) -> Tensor:
    """KL(old || theta) of "this token" against all others; one shape."""
    here = prob_old * (prob_old.clamp(min=TINY) / prob.clamp(min=TINY)).log()
    other = (1 - prob_old) * ((1 - prob_old).clamp(min=TINY) / (1 - prob).clamp(min=TINY)).log()
    return here + other


def binary_kl_keep(prob: Tensor, prob_old: Tensor, advantage: Tensor, *, eps_low: float, eps_high: float) -> Tensor:
    """Bool, of one shape: A > 0 needs KL <= eps_high where the probability rose, A < 0 <= eps_low where it fell."""
    divergence = binary_kl(prob, prob_old)
    too_high = (advantage > 0) & (prob > prob_old) & (divergence > eps_high)
    too_low = (advantage <= 0) & (prob < prob_old) & (divergence > eps_low)
    return ~(too_high | too_low)


@dataclass(frozen=True)
class Dppo(RecipeSettings, section="objective"):
    """S9, token scope."""

    divergence: Literal["tv", "binary_kl"] = "tv"
    eps_low: Annotated[float, Gt(0)] = 0.05
    eps_high: Annotated[float, Gt(0)] = 0.05
    cap: Annotated[float, Gt(0)] = 20.0
    scope: ClassVar[Scope] = "token"
    needs: ClassVar[frozenset[str]] = frozenset({"logp_old"})

    def loss(self, logp: Tensor, context: UpdateContext) -> tuple[Tensor, dict[str, Tensor]]:
        test = tv_keep if self.divergence == "tv" else binary_kl_keep
        prob, prob_old = logp.detach().exp(), context.logp_old.exp()
        keep = test(prob, prob_old, context.adv, eps_low=self.eps_low, eps_high=self.eps_high)
        weight = truncated_is(logp, context.logp_old, self.cap) * keep
        return -weight * context.adv * logp, {"clip_fraction": (~keep).float()}
