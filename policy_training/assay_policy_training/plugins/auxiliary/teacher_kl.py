"""Dense imitation: the KL of the policy's next-token distribution to a teacher's, over the whole vocabulary.

Each visited prefix is taken as given, so the gradient by the logits is pi_v (log(pi_v / q_v) - KL): no sampling noise.
Covers: the loss. Leaves out: what a token does to the prefixes after it (`modulators.future_kl`, with the same
coefficient), computing the KL (`logprobs.full_kl`); the teacher is the recipe's `teacher`.

Source: arXiv 2512.23097.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge
from torch import Tensor

from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.protocols import UpdateContext


@dataclass(frozen=True)
class TeacherKl(RecipeSettings, section="auxiliary"):
    """S11: coefficient x KL(policy || teacher) of each token's distribution."""

    coefficient: Annotated[float, Ge(0)] = 0.1
    name: ClassVar[str] = "teacher_kl"
    needs: ClassVar[frozenset[str]] = frozenset({"teacher_kl"})

    def loss(self, logp: Tensor, context: UpdateContext) -> Tensor:
        return context.extras["teacher_kl"]
