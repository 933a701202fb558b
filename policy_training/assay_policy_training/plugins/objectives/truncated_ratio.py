"""Objectives that weigh -A log theta by a detached ratio.

CISPO and AIPO weigh by a truncated ratio, so that no token loses its gradient: CISPO, theta / old, whose cap is given
in one of two units that released code calls by the same name: `cap_abs` is the largest ratio itself (TRL), `eps_high`
its distance from 1 (verl, the paper); AIPO, theta / mu, without an old policy. Their values are no surrogate to watch:
the sign follows log theta. Sources: CISPO arXiv 2506.13585; AIPO (LlamaRL) arXiv 2505.24034.

DPPO masks tokens whose probability, rather than ratio, has moved too far in the direction of the update: the change of
probability (total variation, `tv`) and the KL of the two outcomes "this token" and "another one" (`binary_kl`). A token
whose probability goes from .001 to .02 has ratio 20 and has hardly moved. The loss is -sg(min(r, cap)) A log theta on
tokens that are kept; the others stay in the denominators. Source: DPPO arXiv 2602.04879, as in verl; the thresholds
there differ by run.
"""

from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge, Gt, Le
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.ratios import truncated_is
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.protocols import Scope, UpdateContext


class Cispo(RecipeSettings, section="objective"):
    """S9, token scope: -sg(clamp(theta / old, floor, cap)) A log theta. Give the cap in one unit.

    `eps_low`: the floor is 1 - eps_low; None = no floor.
    """

    eps_high: Annotated[float | None, Ge(0)] = None
    cap_abs: Annotated[float | None, Ge(1)] = None
    eps_low: Annotated[float | None, Ge(0), Le(1)] = None
    scope: ClassVar[Scope] = "token"
    needs: ClassVar[frozenset[str]] = frozenset({"logp_old"})

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.eps_high is None) == (self.cap_abs is None):
            raise BadInputError("give either eps_high (cap 1 + eps_high) or cap_abs", field="objective.eps_high")

    @property
    def cap(self) -> float:
        """The largest ratio that counts in full."""
        return self.cap_abs if self.cap_abs is not None else 1 + (self.eps_high or 0.0)

    def loss(self, logp: Tensor, context: UpdateContext) -> tuple[Tensor, dict[str, Tensor]]:
        ratio = truncated_is(logp, context.logp_old, None)
        weight = ratio.clamp(max=self.cap)
        if self.eps_low is not None:
            weight = weight.clamp(min=1 - self.eps_low)
        return -weight * context.adv * logp, {"clip_fraction": (weight != ratio).float()}


class Aipo(RecipeSettings, section="objective"):
    """S9, token scope: -sg(min(theta / mu, cap)) A log theta. `cap`: usual 2 to 10; None = not truncated."""

    cap: Annotated[float | None, Gt(0)] = 5.0
    corrects_behaviour: ClassVar[bool] = True
    scope: ClassVar[Scope] = "token"
    needs: ClassVar[frozenset[str]] = frozenset({"logp_mu"})

    def loss(self, logp: Tensor, context: UpdateContext) -> tuple[Tensor, dict[str, Tensor]]:
        ratio = truncated_is(logp, context.logp_mu, None)
        weight = truncated_is(logp, context.logp_mu, self.cap)
        return -weight * context.adv * logp, {"clip_fraction": (weight < ratio).float()}


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
