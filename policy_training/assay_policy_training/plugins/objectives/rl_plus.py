"""RL-PLUS's loss: the policy's ratio on its own rows, multiple importance sampling on rows of others.

Covers: -A theta/old on own rows; on recorded rows -A (1 - theta)^gamma 2 theta / (old + external), the balance
heuristic over the two policies that may have written them, with (1 - theta)^gamma held constant. The external policy's
probability is the one recorded, or the released code's stand-in (old + 1) / 2, between what the policy thinks and
certainty. Leaves out: drawing such groups (sampler `demonstrations`), their advantages (estimator `above_own_mean`).

Source: arXiv 2508.00222, code YihongDong/RL-PLUS read. Oracle theta .2, old .1, external .5: .666667; with the stand-in
.615385; (1 - .2)^2 = .64.
"""

from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge
from torch import Tensor

from assay_policy_training.core.prompt import RECORD
from assay_policy_training.core.ratios import log_ratio
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.modulators.exploration import exploration_advantage
from assay_policy_training.plugins.protocols import Scope, UpdateContext


def mixture_ratio(logp: Tensor, logp_old: Tensor, logp_external: Tensor) -> Tensor:
    """2 theta / (old + external), elementwise; at most 2 theta / external."""
    return 2 * (logp - torch.logaddexp(logp_old, logp_external)).exp()


def assumed_external(logp_old: Tensor) -> Tensor:
    """log((old + 1) / 2)."""
    return ((logp_old.exp() + 1) / 2).log()


class RlPlus(RecipeSettings, section="objective"):
    """S9, token scope. `external`: `assumed` or `recorded` (records with `logprobs`). `gamma`: 0 = no exploration."""

    external: Literal["assumed", "recorded"] = "assumed"
    gamma: Annotated[float, Ge(0)] = 0.5
    scope: ClassVar[Scope] = "token"

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"logp_old"} | ({"logp_mu"} if self.external == "recorded" else set()))

    def loss(self, logp: Tensor, context: UpdateContext) -> tuple[Tensor, dict[str, Tensor]]:
        external = context.logp_mu if self.external == "recorded" else assumed_external(context.logp_old)
        ratio = mixture_ratio(logp, context.logp_old, external)
        explored = exploration_advantage(context.adv, logp.detach(), gamma=self.gamma)
        own = -context.adv * log_ratio(logp, context.logp_old).exp()
        recorded = context.given_rows.of_source(RECORD).to(logp.device)[:, None]
        share = recorded.expand_as(logp).float()
        return torch.where(recorded, -explored * ratio, own), {"recorded_share": share, "recorded_ratio": ratio * share}
