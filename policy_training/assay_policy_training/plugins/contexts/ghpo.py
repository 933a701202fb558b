"""GHPO: a prompt that no row of the group solves shows a growing part of its solution, and is trained with it.

Covers: the share of the solution by round, a cold start in which every prompt is hinted. Whether a group failed is
decided by the verifier (`acc`), never by a reward that a right format raises; a prompt without a verifier or a solution
is not hinted. Rows generated with a hint have the source `hinted`. Leaves out: hints that are not trained with
(`guide`), shares that fit the prompt (`seele`).

Source: arXiv 2507.10628, code hkgc-1/GHPO read. The hint is cut by characters, as there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

from annotated_types import Ge

from assay.errors import BadInputError
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.settings import StatefulSettings
from assay_policy_training.plugins.contexts.hints import check_wording, group_accuracies, hint_of, row_text, with_hint
from assay_policy_training.plugins.protocols import ResampleRequest, StepReport

HINTED = "hinted"


@dataclass
class Ghpo(StatefulSettings, section="contexts"):
    """S1. `shares`: of the solution, by round. `cold_start`: steps in which every prompt is shown the first share."""

    shares: tuple[float, ...] = (0.25, 0.5, 0.75)
    cold_start: Annotated[int, Ge(0)] = 0
    solution: str = "solution"
    wording: str = "\n\nThe following is the beginning of a solution; continue from it: {hint}"
    steps: int = field(init=False, default=0)  #: done

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.shares or not all(0 < share <= 1 for share in self.shares):
            raise BadInputError("shares in (0, 1], at least one", field="contexts.shares")
        check_wording(self.wording)

    def first(self, items: Sequence[PromptItem]) -> list[PromptItem]:
        if self.steps >= self.cold_start:
            return list(items)
        return [self._hinted(item, self.shares[0]) if row_text(item, self.solution) else item for item in items]

    def again(self, batch: RolloutBatch, round: int) -> list[ResampleRequest]:
        """Generate the groups without a right answer again, with the share of this round."""
        if round > len(self.shares):
            return []
        return [
            ResampleRequest(uid, self._hinted(item, self.shares[round - 1]))
            for uid, item, acc in group_accuracies(batch)
            if acc == 0 and row_text(item, self.solution)
        ]

    def _hinted(self, item: PromptItem, share: float) -> PromptItem:
        prompt = with_hint(item.prompt, hint_of(row_text(item, self.solution), share), self.wording)
        return replace(item, generate_from=prompt, train_on=prompt, source=HINTED)

    def observe(self, report: StepReport) -> None:
        self.steps = report.step
