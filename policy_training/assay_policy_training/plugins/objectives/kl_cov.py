"""KL-Cov: no clip; a KL penalty on the tokens whose advantage and log-prob covary most.

Loss -A r, plus coefficient |log r| on the top share of tokens by covariance over the whole batch
(`token_weights.covariance`). |log r| has no gradient at r = 1, so a batch needs several optimiser steps for it to act.

Source: "The Entropy Mechanism of RL for reasoning language models" arXiv 2505.22617, as in verl.
"""

from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Gt, Le
from torch import Tensor

from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.ratios import log_ratio
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.protocols import Scope, UpdateContext
from assay_policy_training.plugins.token_weights.covariance import covariance, covariance_inputs, top_tokens

HELD = "kl_cov"  #: name in `extras`: 1 on the tokens that are held


def kl_cov_loss(ratio: Tensor, advantage: Tensor, held: Tensor, coefficient: float) -> Tensor:
    """Per-token loss; `ratio` holds log theta - log old, `held` is bool; one shape."""
    return -advantage * ratio.exp() + torch.where(held, coefficient * ratio.abs(), 0.0)


class KlCov(RecipeSettings, section="objective"):
    """S9, token scope. `share`: of all tokens, at least one."""

    share: Annotated[float, Gt(0), Le(1)] = 2e-4
    coefficient: Annotated[float, Ge(0)] = 1.0
    scope: ClassVar[Scope] = "token"
    needs: ClassVar[frozenset[str]] = frozenset({"logp_old"})

    def prepare(self, batch: RolloutBatch) -> RolloutBatch:
        advantage, logp, mask = covariance_inputs(batch)
        held = top_tokens(covariance(advantage, logp, mask), mask, self.share)
        return batch.with_(extras={**batch.extras, HELD: held.float()})

    def loss(self, logp: Tensor, context: UpdateContext) -> tuple[Tensor, dict[str, Tensor]]:
        held = context.given_rows.extras[HELD].to(logp.device) > 0
        ratio = log_ratio(logp, context.logp_old)
        return kl_cov_loss(ratio, context.adv, held, self.coefficient), {"held_share": held.float()}
