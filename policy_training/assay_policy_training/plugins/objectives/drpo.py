"""DRPO: right rollouts against wrong ones of the same prompt, where shorter right ones count more and never turn
negative.

Covers: J of a group = sum over right rows of omega_i (s_i - tau log mean over wrong rows of exp(s_j / tau)), s the mean
log-prob of a row's tokens, omega proportional to exp((1 - length / maximum) / lam) and summing to 1 over the right
rows; the guard beta [KL(old || theta) - delta]+ x KL. Groups that are all right or all wrong give no J: they are
counted, and stay in the mean over groups. Leaves out: rewards that are not right or wrong.

Source: arXiv 2510.04474, code Optimization-AI/DRPO read. The KL estimate here is the mean of logp_old - logp, whose
gradient on tokens of old is that of KL(old || theta). Oracle s -.5 -.7 | -.6 -.9, lengths .2 .6 of the maximum: omega
.982014 .017986, J .245278, dL/ds -.982014 -.017986 .507499 .492501.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Gt
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.ratios import row_mean, row_sum
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.protocols import RecipeView, Scope, UpdateContext


def length_weights(share: Tensor, lam: float) -> Tensor:
    """omega [n] of right rows from their lengths as shares of the maximum; sums to 1."""
    return ((1 - share) / lam).softmax(0)


def group_gain(right: Tensor, wrong: Tensor, share: Tensor, *, tau: float, lam: float) -> Tensor:
    """J of one group: scores [p] of right rows with `share` [p] of the maximal length, scores [q] of wrong ones."""
    background = tau * ((wrong / tau).logsumexp(0) - torch.log(torch.tensor(float(len(wrong)))).to(wrong))
    return (length_weights(share, lam).to(right) * (right - background)).sum()


@dataclass(frozen=True)
class Drpo(RecipeSettings, section="objective"):
    """S9, group scope. `max_length`: tokens that lengths are shares of, at least what may be drawn. Right or wrong: the
    verifier's word."""

    max_length: Annotated[int, Ge(1)]
    tau: Annotated[float, Gt(0)] = 10.0
    lam: Annotated[float, Gt(0)] = 0.1
    beta: Annotated[float, Ge(0)] = 1000.0
    delta: Annotated[float, Ge(0)] = 1e-4
    scope: ClassVar[Scope] = "group"
    needs: ClassVar[frozenset[str]] = frozenset({"logp_old"})

    def check_recipe(self, recipe: RecipeView) -> None:
        """Raises BadInputError where responses may be longer than their maximal length."""
        if self.max_length < recipe.sampling.max_new_tokens:
            raise BadInputError(
                f"below sampling.max_new_tokens, {recipe.sampling.max_new_tokens}", field="objective.max_length"
            )

    def row_scores(self, logp: Tensor, context: UpdateContext) -> Tensor:
        return row_mean(logp, context.loss_mask)

    def batch_loss(self, scores: Tensor, rows: RolloutBatch) -> tuple[Tensor, dict[str, float]]:
        acc = torch.full((len(rows),), torch.nan) if rows.acc is None else rows.acc
        share = rows.lengths.double() / self.max_length
        gains, group = [], rows.group
        numbers = sorted(set(group.tolist()))
        for number in numbers:
            right, wrong = ((group == number) & (acc == verdict) for verdict in (1, 0))
            if right.any() and wrong.any():
                gains.append(group_gain(scores[right], scores[wrong], share[right], tau=self.tau, lam=self.lam))
        gain = torch.stack(gains).sum() / len(numbers) if gains else scores.sum() * 0
        kl = self._divergence(scores, rows)
        guard = (self.beta * (kl.detach() - self.delta)).clamp(min=0) * kl
        reports = {"drpo_gain": float(gain.detach()), "drpo_kl": float(kl.detach())}
        return guard - gain, {**reports, "drpo_mixed_groups": len(gains) / len(numbers)}

    def _divergence(self, scores: Tensor, rows: RolloutBatch) -> Tensor:
        """Mean of logp_old - logp over the loss tokens, from the rows' scores alone: their sum is score x length."""
        tokens = rows.loss_mask.sum(1).to(scores)
        if rows.logp_old is None:  # theta is old
            return scores.sum() * 0
        old = row_sum(rows.logp_old, rows.loss_mask).to(scores)
        return (old - scores * tokens).sum() / tokens.sum().clamp(min=1)
