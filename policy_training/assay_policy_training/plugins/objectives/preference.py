"""Objectives on the pair of a group, INPO and SRPO; sums and means over groups.

Leaves out: a row's own number (`ratios`), the two passes that spare whole groups in one micro-batch (`gradients`).

INPO: iterative Nash policy optimisation from pairs, without a reward model. Covers: h = D_theta - (tau/eta) D_ref -
((eta - tau)/eta) D_old, D_p = log p(winner) - log p(loser) over whole responses (sums, not means), and the loss (h -
1/(2 eta))^2. The pair of a group: its rows of the largest and the smallest reward. `old` is the present iterate, frozen
during a batch. Leaves out: generating the pairs: from the policy (any sampler, with a preference as the reward) or from
recorded responses. Source: arXiv 2407.00617 (secondary sources). Oracle eta .5, tau .2, D .8 .3 .5: h .38, loss .3844.

SRPO: a policy that answers and a policy that improves an answer, fitted to the same pairs. Covers: with g(a|b) the
log-ratio to the reference of answer a after the previous answer b, and w, l the better and the worse answer of a group,

    improvement = 1/2 [ (1/2 - beta (g(w|l) - g(l|l)))^2 + (-1/2 - beta (g(l|w) - g(w|w)))^2 ]
    answer      = 1/2 [ beta ((g(w) - g(l)) - (g(w|w) - g(l|l))) ]^2
    loss        = (1 - mix) improvement + mix answer

The second states that log pi/ref(y) and log pi+/ref(y|y) differ by a constant of the prompt, which is what the game's
solution has; only differences are fitted, so the constant drops out. Leaves out: the rows (context `revise`: six a
prompt, recorded responses only). Source: arXiv 2406.01660 (secondary sources and derivation); the form of the second
loss and `mix` are ours. Oracle beta .5, g(w|l) .6, g(l|l) -.2, g(l|w) -.4, g(w|w) .1: improvement .03625.
"""

from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Gt, Le
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.prompt import PLACE, record_of
from assay_policy_training.core.ratios import row_sum
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


def nash_loss(margin: Tensor, eta: float) -> Tensor:
    """(h - 1/(2 eta))^2 of each pair."""
    return (margin - 1 / (2 * eta)) ** 2


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
        pairs = best_and_worst(rows.outcome, rows.group)
        if not len(pairs):
            return scores.sum() * 0, {"pairs": 0.0}
        margin = scores[pairs[:, 0]] - scores[pairs[:, 1]]
        reports = {"pairs": float(len(pairs)), "pair_margin": float(margin.detach().mean())}
        return nash_loss(margin, self.eta).mean(), reports


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
        return row_sum(logp - context.scored_logp_ref, context.loss_mask)

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
