"""SEELE: several rounds a prompt, each starting from as much of the solution as makes half of its rollouts right.

Covers: the rounds (all rows of a prompt stay in one group), the share of the next round from the curve fitted to the
accuracies so far (`irt`), the solution's beginning as the given start of the policy's turn, the last share of each
prompt for the next time it comes. Prompts without a solution are drawn in one round without a hint; one without a
verifier too. Leaves out: the small likelihood loss on the hint's tokens (auxiliary loss `hint_nll`).

Source: "Staying in the Sweet Spot", arXiv 2509.06923 (paper read): 4 rounds of 8, target 0.5, first share
(steps - 1) / steps of the solution's steps; here a step is a line or a sentence.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

from annotated_types import Ge, Gt, Lt

from assay.ids import prompt_id
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.settings import StatefulSettings
from assay_policy_training.plugins.contexts.hints import hint_of, row_text
from assay_policy_training.plugins.contexts.irt import next_share
from assay_policy_training.plugins.protocols import ResampleRequest

SHARE = "hint_share"  #: entry of a row's prompt: how much of the solution it starts from
_STEP = re.compile(r"\n+|(?<=[.!?])\s+")


def steps_of(solution: str) -> int:
    """Lines or sentences, at least 1."""
    return max(1, sum(bool(part.strip()) for part in _STEP.split(solution)))


@dataclass
class Seele(StatefulSettings, section="contexts"):
    """S1. `rounds` a prompt, `group_size` rollouts each; `target`: the accuracy wanted."""

    rounds: Annotated[int, Ge(1)] = 4
    target: Annotated[float, Gt(0), Lt(1)] = 0.5
    solution: str = "solution"
    last: dict[str, float] = field(init=False, default_factory=dict)  #: prompt's id -> the last share chosen for it

    def first(self, items: Sequence[PromptItem]) -> list[PromptItem]:
        return [
            self._hinted(item, self._first_share(item)) if row_text(item, self.solution) else item for item in items
        ]

    def again(self, batch: RolloutBatch, round: int) -> list[ResampleRequest]:
        """After each round but the last, more rows of every prompt whose accuracy is known. The share found after the
        last round is kept for the prompt's next time."""
        redraws = []
        for uid, (shares, accuracies, item) in self._points(batch).items():
            share = next_share(shares, accuracies, self.target)
            self.last[prompt_id(item.prompt)] = share
            if round < self.rounds:
                redraws.append(ResampleRequest(uid, self._hinted(item, share), replace=False))
        return redraws if round < self.rounds else []

    def _points(self, batch: RolloutBatch) -> dict[str, tuple[list[float], list[float], PromptItem]]:
        """Per group: the shares tried, the mean accuracy at each, the prompt."""
        pass_rates: dict[str, dict[float, list[float]]] = {}
        items: dict[str, PromptItem] = {}
        for row, uid in enumerate(batch.uid):
            item = batch.items[row]
            acc = math.nan if batch.acc is None else float(batch.acc[row])
            if SHARE in item.meta and not math.isnan(acc):
                pass_rates.setdefault(uid, {}).setdefault(float(item.meta[SHARE]), []).append(acc)
                items[uid] = item
        return {
            uid: (list(points), [sum(accs) / len(accs) for accs in points.values()], items[uid])
            for uid, points in pass_rates.items()
        }

    def _first_share(self, item: PromptItem) -> float:
        steps = steps_of(row_text(item, self.solution))
        return self.last.get(prompt_id(item.prompt), (steps - 1) / steps)

    def _hinted(self, item: PromptItem, share: float) -> PromptItem:
        return replace(item, forced=hint_of(row_text(item, self.solution), share), meta={**item.meta, SHARE: share})
