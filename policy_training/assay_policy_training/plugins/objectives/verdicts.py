"""Objectives that set right rollouts against wrong ones of the same prompt: PACS, DRPO.

PACS: the policy's log-ratio as the score of a classifier that separates right rollouts from wrong ones. Covers: s_i =
beta sum_t (logp - logp_old) over the row's own loss tokens (the released code sums without a mask, which is right only
if padding has equal log-probs on both sides), psi_i = s_i less a baseline of the group, binary cross-entropy against
the verifier's result. Leaves out: rewards that are not right or wrong. At the first optimiser step s is 0 for all rows,
and a group that is all right or all wrong gives no gradient under the leave-one-out baseline; once its scores differ it
does. Source: arXiv 2509.02522, code ritzz-ai/PACS read. Oracle s 1 -1 0 -.5, y 1 0 0 1: psi 1.5 -1.166667 .166667 -.5,
mean .556634, dL/dpsi -.045606 .059365 .135393 -.155615.

DRPO: right rollouts against wrong ones of the same prompt, where shorter right ones count more and never turn negative.
Covers: J of a group = sum over right rows of omega_i (s_i - tau log mean over wrong rows of exp(s_j / tau)), s the mean
log-prob of a row's tokens, omega proportional to exp((1 - length / maximum) / lam) and summing to 1 over the right
rows; the guard beta [KL(old || theta) - delta]+ x KL. Groups that are all right or all wrong give no J: they are
counted, and stay in the mean over groups. Leaves out: rewards that are not right or wrong. Source: arXiv 2510.04474,
code Optimization-AI/DRPO read. The KL estimate here is the mean of logp_old - logp, whose gradient on tokens of old is
that of KL(old || theta). Oracle s -.5 -.7 | -.6 -.9, lengths .2 .6 of the maximum: omega .982014 .017986, J .245278,
dL/ds -.982014 -.017986 .507499 .492501.
"""

from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge, Gt
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from assay.errors import BadInputError
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.ratios import row_mean, row_sum
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.objectives.preference import group_mean, group_sum
from assay_policy_training.plugins.protocols import RecipeView, Scope, UpdateContext


def against_group(scores: Tensor, group: Tensor, kind: str) -> Tensor:
    """psi [n] from scores [n]: less the mean of the group's others (`rloo`; a row alone keeps its score), z-scored
    (`grpo`, ddof 1, eps 1e-6), or as they are (`none`). Differentiable."""
    if kind == "none":
        return scores
    count = group_sum(torch.ones_like(scores), group)[group]
    mean = group_mean(scores, group)
    centred = scores - mean
    if kind == "rloo":
        return torch.where(count > 1, centred * count / (count - 1).clamp(min=1), scores)
    variance = group_sum(centred**2, group)[group] / (count - 1).clamp(min=1)
    return centred / ((variance + 1e-24).sqrt() + 1e-6)


def class_weights(label: Tensor, group: Tensor) -> Tensor:
    """[n] G / (2 n_class) of each row's own class in its group: 2 and 2/3 for one right row of four; 1 in a group of
    one class, as in the released code."""
    size = group_sum(torch.ones_like(label), group)[group]
    right = group_sum(label, group)[group]
    class_size = torch.where(label > 0, right, size - right)
    return torch.where(class_size == size, 1.0, size / (2 * class_size.clamp(min=1)))


class Pacs(RecipeSettings, section="objective"):
    """S9, group scope. `label`: the verifier's result (`acc`), or whether the reward is above `threshold`. Rows without
    a label take no part."""

    beta: Annotated[float, Gt(0)] = 1.0
    baseline: Literal["rloo", "grpo", "none"] = "rloo"
    balanced: bool = False
    label: Literal["acc", "reward"] = "acc"
    threshold: float = 0.5
    scope: ClassVar[Scope] = "group"
    needs: ClassVar[frozenset[str]] = frozenset({"logp_old"})

    def row_scores(self, logp: Tensor, context: UpdateContext) -> Tensor:
        return self.beta * row_sum(logp - context.logp_old, context.loss_mask)

    def batch_loss(self, scores: Tensor, rows: RolloutBatch) -> tuple[Tensor, dict[str, float]]:
        label = self._labels(rows).to(scores)
        labelled = ~label.isnan()
        if not labelled.any():
            return scores.sum() * 0, {}
        psi = against_group(scores[labelled], rows.group[labelled], self.baseline)
        target = label[labelled]
        weight = class_weights(target, rows.group[labelled]) if self.balanced else None
        loss = binary_cross_entropy_with_logits(psi, target, weight=weight)
        return loss, {"pacs_accuracy": float(((psi > 0) == (target > 0)).double().mean())}

    def _labels(self, rows: RolloutBatch) -> Tensor:
        if self.label == "reward":
            reward = rows.outcome
            return torch.where(reward.isnan(), reward, (reward > self.threshold).double())
        return torch.full((len(rows),), torch.nan) if rows.acc is None else rows.acc


def length_weights(share: Tensor, lam: float) -> Tensor:
    """omega [n] of right rows from their lengths as shares of the maximum; sums to 1."""
    return ((1 - share) / lam).softmax(0)


def group_gain(right: Tensor, wrong: Tensor, share: Tensor, *, tau: float, lam: float) -> Tensor:
    """J of one group: scores [p] of right rows with `share` [p] of the maximal length, scores [q] of wrong ones."""
    background = tau * ((wrong / tau).logsumexp(0) - torch.log(torch.tensor(float(len(wrong)))).to(wrong))
    return (length_weights(share, lam).to(right) * (right - background)).sum()


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
