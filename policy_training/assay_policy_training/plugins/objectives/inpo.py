"""INPO: iterative Nash policy optimisation from pairs, without a reward model.

Covers: h = D_theta - (tau/eta) D_ref - ((eta - tau)/eta) D_old, D_p = log p(winner) - log p(loser) over whole responses
(sums, not means), and the loss (h - 1/(2 eta))^2. The pair of a group: its rows of the largest and the smallest reward.
`old` is the present iterate, frozen during a batch. Leaves out: generating the pairs: from the policy (any sampler,
with a preference as the reward) or from recorded responses.

Source: arXiv 2407.00617 (secondary sources). Oracle eta .5, tau .2, D .8 .3 .5: h .38, loss .3844.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.ratios import row_sum
from assay_policy_training.plugins.objectives.row_scores import best_and_worst
from assay_policy_training.plugins.protocols import Scope, UpdateContext


def nash_loss(margin: Tensor, eta: float) -> Tensor:
    """(h - 1/(2 eta))^2 of each pair."""
    return (margin - 1 / (2 * eta)) ** 2


@dataclass(frozen=True)
class Inpo:
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
