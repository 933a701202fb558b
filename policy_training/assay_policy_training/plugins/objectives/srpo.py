"""SRPO: a policy that answers and a policy that improves an answer, fitted to the same pairs.

Covers: with g(a|b) the log-ratio to the reference of answer a after the previous answer b, and w, l the better and the
worse answer of a group,

    improvement = 1/2 [ (1/2 - beta (g(w|l) - g(l|l)))^2 + (-1/2 - beta (g(l|w) - g(w|w)))^2 ]
    answer      = 1/2 [ beta ((g(w) - g(l)) - (g(w|w) - g(l|l))) ]^2
    loss        = (1 - mix) improvement + mix answer

The second states that log pi/ref(y) and log pi+/ref(y|y) differ by a constant of the prompt, which is what the game's
solution has; only differences are fitted, so the constant drops out. Leaves out: the rows (context `revise`: six a
prompt, recorded responses only).

Source: arXiv 2406.01660 (secondary sources and derivation); the form of the second loss and `mix` are ours. Oracle beta
.5, g(w|l) .6, g(l|l) -.2, g(l|w) -.4, g(w|w) .1: improvement .03625.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Gt, Le
from torch import Tensor

from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.ratios import row_sum
from assay_policy_training.core.recorded import PLACE, record_of
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.contexts.revise import PREVIOUS
from assay_policy_training.plugins.objectives.row_scores import best_and_worst
from assay_policy_training.plugins.protocols import Scope, UpdateContext


def improvement_loss(wl: Tensor, ll: Tensor, lw: Tensor, ww: Tensor, beta: float) -> Tensor:
    """Of g(w|l), g(l|l), g(l|w), g(w|w)."""
    return 0.5 * ((0.5 - beta * (wl - ll)) ** 2 + (-0.5 - beta * (lw - ww)) ** 2)


def answer_loss(w: Tensor, l: Tensor, ww: Tensor, ll: Tensor, beta: float) -> Tensor:  # noqa: E741 - the paper's names
    """Of g(w), g(l), g(w|w), g(l|l)."""
    return 0.5 * (beta * ((w - l) - (ww - ll))) ** 2


@dataclass(frozen=True)
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
