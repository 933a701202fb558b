"""One-shot RLVR: a step's prompts are copies of one, two or four examples.

Covers: the copies (each is a separate group: the collector names groups by index, so a thousand rows never become one
group), choosing the examples by row or by how much their training accuracy varied in an earlier run. Leaves out: that
earlier run. Filters that drop solved groups must be off: training continues after the example is solved.

Source: arXiv 2504.20571, code ypwang61/One-Shot-RLVR read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import pvariance
from typing import Annotated, Any

from annotated_types import Ge

from assay.errors import BadInputError
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.prompts.source import prompts_digest
from assay_policy_training.plugins.protocols import RecipeView, StepReport


class RepeatedPrompts:
    """S0, opened: the examples in turn, endlessly."""

    def __init__(self, items: Sequence[PromptItem]) -> None:
        self.items = list(items)
        self.position = 0

    def next(self, n: int) -> list[PromptItem]:
        drawn = [self.items[(self.position + number) % len(self.items)] for number in range(n)]
        self.position = (self.position + n) % len(self.items)
        return drawn

    def observe(self, report: StepReport) -> None:
        """This source does not adapt."""

    def state_dict(self) -> dict[str, Any]:
        return {"position": self.position, "prompts": prompts_digest(self.items)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raises BadInputError when the prompts are not those that the state is about."""
        if state["prompts"] != prompts_digest(self.items):
            raise BadInputError("these are not the prompts that the interrupted run used", field="prompts")
        self.position = int(state["position"])


def most_varied(items: Sequence[PromptItem], count: int, key: str) -> list[int]:
    """Rows of the prompts whose recorded accuracies (`meta[key]`, one number an epoch) varied most, in falling order.

    Raises BadInputError where fewer than `count` prompts have a history of two numbers or more.
    """
    spread = {}
    for row, item in enumerate(items):
        history = item.meta.get(key)
        if isinstance(history, list | tuple) and len(history) > 1:
            spread[row] = pvariance([float(value) for value in history])
    if len(spread) < count:
        raise BadInputError(f"{len(spread)} prompts have a history of accuracies, {count} are needed", field=key)
    return sorted(spread, key=lambda row: (-spread[row], row))[:count]


@dataclass(frozen=True)
class OneShot(RecipeSettings, section="source"):
    """S0: the examples are the prompts of these `rows` (from 0); none given: the `count` most varied by `history`."""

    rows: tuple[int, ...] = (0,)
    count: Annotated[int, Ge(1)] = 1
    history: str = "accuracy_history"

    def check_recipe(self, recipe: RecipeView) -> None:
        """Raises BadInputError for a filter that refills until groups are mixed: solved examples stay in training."""
        if any(plugin.rounds > 1 for plugin in recipe.filters):
            raise BadInputError("one shot has nothing else to draw; take filters that drop rows out", field="filters")

    def open(self, items: Sequence[PromptItem], *, seed: int, policy: object = None) -> RepeatedPrompts:
        """Raises BadInputError for a row that is not there."""
        rows = list(self.rows) or most_varied(items, self.count, self.history)
        for row in rows:
            if not 0 <= row < len(items):
                raise BadInputError(f"there are {len(items)} prompts, no row {row} (from 0)", field="source.rows")
        return RepeatedPrompts([items[row] for row in rows])
