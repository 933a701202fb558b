"""Auxiliary losses on log-probs.

KL: a per-token estimate of KL(theta || ref). Leaves out: the estimators and what their gradients are (`core.ratios`).

Teacher KL, dense imitation: the KL of the policy's next-token distribution to a teacher's, over the whole vocabulary.
Each visited prefix is taken as given, so the gradient by the logits is pi_v (log(pi_v / q_v) - KL): no sampling noise.
Leaves out: what a token does to the prefixes after it (`modulators.future_kl`, with the same coefficient), computing
the KL (`logprobs.full_kl`); the teacher is the recipe's `teacher`. Source: arXiv 2512.23097.

Likelihood of hints: the policy also learns to write the hints that its rollouts started from. Covers: -log pi on tokens
that are in a row and not the policy's own (`forced`), on their own mask. Leaves out: giving them (contexts). Source:
SEELE, arXiv 2509.06923 (paper read), coefficient 0.001.
"""

from typing import Annotated, ClassVar

import torch
from annotated_types import Ge
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.ratios import KL_ESTIMATORS, kl_estimate
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.protocols import UpdateContext


class KlLoss(RecipeSettings, section="kl"):
    """S11: coefficient x KL to the reference, aggregated like the policy loss."""

    coefficient: Annotated[float, Ge(0)] = 0.001
    estimator: str = "k3"
    name: ClassVar[str] = "kl"
    needs: ClassVar[frozenset[str]] = frozenset({"logp_ref"})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.estimator not in KL_ESTIMATORS:
            raise BadInputError(
                f"unknown KL estimator {self.estimator!r}; one of {', '.join(KL_ESTIMATORS)}", field="kl.estimator"
            )

    def loss(self, logp: Tensor, context: UpdateContext) -> Tensor:
        """[B,T] unscaled loss matrix."""
        return kl_estimate(self.estimator, logp, context.scored_logp_ref)


class TeacherKl(RecipeSettings, section="auxiliary"):
    """S11: coefficient x KL(policy || teacher) of each token's distribution."""

    coefficient: Annotated[float, Ge(0)] = 0.1
    name: ClassVar[str] = "teacher_kl"
    needs: ClassVar[frozenset[str]] = frozenset({"teacher_kl"})

    def loss(self, logp: Tensor, context: UpdateContext) -> Tensor:
        return context.extras["teacher_kl"]


class HintNll(RecipeSettings, section="auxiliary"):
    """S11: coefficient x negative log-likelihood of the given tokens, aggregated like the policy loss."""

    coefficient: Annotated[float, Ge(0)] = 0.001
    name: ClassVar[str] = "hint_nll"

    def own_mask(self, batch: RolloutBatch) -> Tensor:
        """[B,T] bool."""
        return torch.zeros_like(batch.mask) if batch.forced is None else batch.forced

    def loss(self, logp: Tensor, context: UpdateContext) -> Tensor:
        return -logp
