"""Objectives on the pairs of a group: online DPO, INPO, PRDP, SRPO; sums and means over groups.

Leaves out: a row's own number (`ratios`), the two passes that spare whole groups in one micro-batch (`gradients`).

Online DPO: the best and the worst response that the policy drew to a prompt, as a pair for DPO's or IPO's loss. Covers:
with m the difference of the log-ratios to the reference of whole responses, -log sigmoid(beta m) or (m - 1/(2 beta))^2.
Leaves out: recorded pairs (the reward models' training has those methods). Source: arXiv 2402.04792, TRL's
OnlineDPOTrainer read. Oracle m .8, beta .1: .653947, 17.64.

INPO: iterative Nash policy optimisation from pairs, without a reward model. Covers: h = D_theta - (tau/eta) D_ref -
((eta - tau)/eta) D_old, D_p = log p(winner) - log p(loser) over whole responses (sums, not means), and the loss (h -
1/(2 eta))^2. The pair of a group: its rows of the largest and the smallest reward. `old` is the present iterate, frozen
during a batch. Source: arXiv 2407.00617 (secondary sources). Oracle eta .5, tau .2, D .8 .3 .5: h .38, loss .3844.

PRDP: the scaled difference of two log-ratios to the reference predicts the difference of the rewards. Covers: over all
pairs of a group, the larger of (beta m - (r_i - r_j))^2 with the present log-ratios and with log-ratios that are held
within `clip` of old's: nothing is gained by moving further in one batch. Source: arXiv 2402.08714 (diffusion models;
recalled), where the ratio of each denoising step is clipped; here that of a whole response. Oracle beta .5, log-ratios
.9 -.3 (old .2 -.1), rewards 1 0: .16; with clip .3: .36.

SRPO: a policy that answers and a policy that improves an answer, fitted to the same pairs. Covers: with g(a|b) the
log-ratio to the reference of answer a after the previous answer b, and w, l the better and the worse answer of a group,

    improvement = 1/2 [ (1/2 - beta (g(w|l) - g(l|l)))^2 + (-1/2 - beta (g(l|w) - g(w|w)))^2 ]
    answer      = 1/2 [ beta ((g(w) - g(l)) - (g(w|w) - g(l|l))) ]^2
    loss        = (1 - mix) improvement + mix answer

The second states that log pi/ref(y) and log pi+/ref(y|y) differ by a constant of the prompt, which is what the game's
solution has; only differences are fitted, so the constant drops out. Leaves out: the rows (context `revise`: six a
pair, of recorded answers or of the sampler `self_revision`). Source: arXiv 2406.01660 (secondary sources and
derivation); the form of the second loss and `mix` are ours. Oracle beta .5, g(w|l) .6, g(l|l) -.2, g(l|w) -.4,
g(w|w) .1: improvement .03625.
"""

from collections.abc import Callable
from functools import partial
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge, Gt, Le
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.prompt import PLACE, record_of
from assay_policy_training.core.ratios import dpo_loss, ipo_loss, row_sum
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.contexts.revise import PREVIOUS
from assay_policy_training.plugins.protocols import Scope, UpdateContext


def group_sum(values: Tensor, group: Tensor) -> Tensor:
    """[groups] sums of `values` [n]; differentiable. `group` [n] from `batch.group_index`, or a selection of one."""
    size = int(group.max()) + 1 if len(group) else 0
    return values.new_zeros(size).index_add(0, group, values)


def group_mean(values: Tensor, group: Tensor) -> Tensor:
    """[n] the mean of each row's group."""
    return (group_sum(values, group) / group_sum(torch.ones_like(values), group).clamp(min=1))[group]


def best_and_worst(reward: Tensor, group: Tensor) -> Tensor:
    """[pairs,2] the rows of the largest and the smallest reward of each group; the first of equals. Groups whose
    present rewards are all equal, or fewer than two, have no pair."""
    pairs = []
    for number in sorted(set(group.tolist())):
        rows = ((group == number) & ~reward.isnan()).nonzero().squeeze(1)
        if len(rows) > 1 and float(reward[rows].max()) > float(reward[rows].min()):
            pairs.append([int(rows[reward[rows].argmax()]), int(rows[reward[rows].argmin()])])
    return torch.tensor(pairs, dtype=torch.long).reshape(-1, 2)


def mean_over_pairs(
    scores: Tensor, rows: RolloutBatch, loss: Callable[[Tensor], Tensor]
) -> tuple[Tensor, dict[str, float]]:
    """The mean of `loss` over the differences of `scores` [n] between the best and the worst row of each group, and
    reports; 0 without a pair."""
    pairs = best_and_worst(rows.outcome, rows.group)
    if not len(pairs):
        return scores.sum() * 0, {"pairs": 0.0}
    margin = scores[pairs[:, 0]] - scores[pairs[:, 1]]
    return loss(margin).mean(), {"pairs": float(len(pairs)), "pair_margin": float(margin.detach().mean())}


def reference_ratio(logp: Tensor, context: UpdateContext) -> Tensor:
    """[b] log pi/ref of each whole response."""
    return row_sum(logp - context.scored_logp_ref, context.loss_mask)


class OnlineDpo(RecipeSettings, section="objective"):
    """S9, group scope. `loss`: `sigmoid` is DPO's, `ipo` IPO's."""

    beta: Annotated[float, Gt(0)] = 0.1
    loss: Literal["sigmoid", "ipo"] = "sigmoid"
    scope: ClassVar[Scope] = "group"
    needs: ClassVar[frozenset[str]] = frozenset({"logp_ref"})

    def row_scores(self, logp: Tensor, context: UpdateContext) -> Tensor:
        return reference_ratio(logp, context)

    def batch_loss(self, scores: Tensor, rows: RolloutBatch) -> tuple[Tensor, dict[str, float]]:
        loss = dpo_loss if self.loss == "sigmoid" else ipo_loss
        return mean_over_pairs(scores, rows, partial(loss, beta=self.beta))


class Inpo(RecipeSettings, section="objective"):
    """S9, group scope. 0 < tau < eta: tau is the pull to the reference, 1/eta the step."""

    eta: float = 0.0075
    tau: float = 0.0025
    scope: ClassVar[Scope] = "group"
    needs: ClassVar[frozenset[str]] = frozenset({"logp_old", "logp_ref"})

    def __post_init__(self) -> None:
        if not 0 < self.tau < self.eta:
            raise BadInputError(f"0 < tau < eta, not {self.tau}, {self.eta}", field="objective.tau")

    def row_scores(self, logp: Tensor, context: UpdateContext) -> Tensor:
        """h of a pair is the difference of this number between its rows."""
        pull = self.tau / self.eta
        return row_sum(logp - pull * context.scored_logp_ref - (1 - pull) * context.logp_old, context.loss_mask)

    def batch_loss(self, scores: Tensor, rows: RolloutBatch) -> tuple[Tensor, dict[str, float]]:
        return mean_over_pairs(scores, rows, partial(ipo_loss, beta=self.eta))


def difference_loss(scores: Tensor, old: Tensor, reward: Tensor, *, beta: float, clip: float) -> Tensor:
    """[n,n] PRDP's loss of each ordered pair of rows; `scores`, `old`: their log-ratios to the reference [n]."""

    def error(ratios: Tensor) -> Tensor:
        gap = beta * (ratios[:, None] - ratios) - (reward[:, None] - reward)
        return gap**2

    return torch.maximum(error(scores), error(old + (scores - old).clamp(-clip, clip)))


class RewardDifference(RecipeSettings, section="objective"):
    """S9, group scope. `beta`: reward a nat of log-ratio; `clip`: nats that a response may move from old."""

    beta: Annotated[float, Gt(0)] = 0.1
    clip: Annotated[float, Gt(0)] = 1.0
    scope: ClassVar[Scope] = "group"
    needs: ClassVar[frozenset[str]] = frozenset({"logp_old", "logp_ref"})

    def row_scores(self, logp: Tensor, context: UpdateContext) -> Tensor:
        return reference_ratio(logp, context)

    def batch_loss(self, scores: Tensor, rows: RolloutBatch) -> tuple[Tensor, dict[str, float]]:
        old = scores.detach()
        if rows.logp_old is not None:  # else theta is old
            old = row_sum(rows.logp_old - rows.scored_logp_ref, rows.loss_mask).to(scores)
        reward, valid = rows.outcome.to(scores), ~rows.outcome.isnan()
        pair = (rows.group[:, None] == rows.group) & valid[:, None] & valid
        pair = pair.triu(1)
        if not pair.any():
            return scores.sum() * 0, {"pairs": 0.0}
        loss = difference_loss(scores, old, reward.nan_to_num(), beta=self.beta, clip=self.clip)[pair].mean()
        held = ((scores.detach() - old).abs() > self.clip).double()[valid]
        return loss, {"pairs": float(pair.sum()), "clip_fraction": float(held.mean())}


def improvement_loss(wl: Tensor, ll: Tensor, lw: Tensor, ww: Tensor, beta: float) -> Tensor:
    """Of g(w|l), g(l|l), g(l|w), g(w|w)."""
    return 0.5 * ((0.5 - beta * (wl - ll)) ** 2 + (-0.5 - beta * (lw - ww)) ** 2)


def answer_loss(w: Tensor, l: Tensor, ww: Tensor, ll: Tensor, beta: float) -> Tensor:  # noqa: E741 - the paper's names
    """Of g(w), g(l), g(w|w), g(l|l)."""
    return 0.5 * (beta * ((w - l) - (ww - ll))) ** 2


class Srpo(RecipeSettings, section="objective"):
    """S9, group scope. `mix`: share of the loss that fits plain answers."""

    beta: Annotated[float, Gt(0)] = 0.1
    mix: Annotated[float, Ge(0), Le(1)] = 0.5
    scope: ClassVar[Scope] = "group"
    needs: ClassVar[frozenset[str]] = frozenset({"logp_ref"})

    def row_scores(self, logp: Tensor, context: UpdateContext) -> Tensor:
        """g of each row."""
        return reference_ratio(logp, context)

    def batch_loss(self, scores: Tensor, rows: RolloutBatch) -> tuple[Tensor, dict[str, float]]:
        per_prompt = [self._prompt_loss(scores, rows, number) for number in sorted(set(rows.group.tolist()))]
        losses = [loss for loss in per_prompt if loss is not None]
        if not losses:
            return scores.sum() * 0, {"pairs": 0.0}
        return torch.stack(losses).mean(), {"pairs": float(len(losses))}

    def _prompt_loss(self, scores: Tensor, rows: RolloutBatch, number: int) -> Tensor | None:
        """None where the group has no better and worse answer, or not all six rows."""
        members = (rows.group == number).nonzero().squeeze(1).tolist()
        row_of = {(record_of(rows.items[row]).get(PLACE), rows.items[row].meta.get(PREVIOUS)): row for row in members}
        plain = [row for (answer, previous), row in row_of.items() if answer is not None and previous is None]
        pair = best_and_worst(rows.outcome[plain], torch.zeros(len(plain), dtype=torch.long))
        if not len(pair):
            return None
        w, l = (record_of(rows.items[plain[int(row)]])[PLACE] for row in pair[0])  # noqa: E741
        if any(key not in row_of for key in ((w, l), (l, l), (l, w), (w, w))):
            return None

        def g(answer: int, previous: int | None = None) -> Tensor:
            return scores[row_of[answer, previous]]

        improved = improvement_loss(g(w, l), g(l, l), g(l, w), g(w, w), self.beta)
        return (1 - self.mix) * improved + self.mix * answer_loss(g(w), g(l), g(w, w), g(l, l), self.beta)
