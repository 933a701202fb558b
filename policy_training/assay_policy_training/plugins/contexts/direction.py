"""A direction of preference for each prompt, stated in the system turn.

Source: arXiv 2402.18571 (DPA): v = (cos t, sin t) over two attributes, stated as whole numbers 100 v in the system
turn. The wording of the turn is ours. The drawn angle is in the prompt's row under `direction`, in degrees: a reward
source reads it from there (`rewards.RowNumber`), so that it is a recorded part of every rollout, and the composition
`directional` rewards by it. The reward model sees the prompt without it. An evaluation adds a direction to each
held-out prompt too, the same before and after: sampled by the seed and the prompt's index, or fixed.
"""

import random
from collections.abc import Sequence
from dataclasses import field, replace
from typing import Annotated

from annotated_types import Ge, Le

from assay.domain import Message, Prompt
from assay.errors import BadInputError
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.settings import StatefulSettings
from assay_policy_training.plugins.compositions.weighted import direction_text
from assay_policy_training.plugins.protocols import ResampleRequest

ROW_KEY = "direction"


def with_direction(prompt: Prompt, attributes: Sequence[str], degrees: float) -> Prompt:
    """The prompt with the direction in its system turn."""
    first, second = direction_text(degrees)
    line = f"Weigh your answer: {attributes[0]} {first}, {attributes[1]} {second} (of 100)."
    if prompt and prompt[0].role == "system":
        return (Message("system", f"{prompt[0].content}\n{line}"), *prompt[1:])
    return (Message("system", line), *prompt)


class DrawnDirection(StatefulSettings, section="contexts"):
    """S1: each prompt gets an angle, uniform between `low` and `high` degrees. `evaluate_at`: of every held-out
    prompt; None = sampled alike, once for each prompt."""

    low: float = -45.0
    high: float = 0.0
    attributes: tuple[str, ...] = ("helpfulness", "verbosity")
    seed: int = 0
    evaluate_at: Annotated[float | None, Ge(-180), Le(180)] = None
    drawn: int = field(init=False, default=0)  #: prompts so far

    def __post_init__(self) -> None:
        super().__post_init__()
        if not -180 <= self.low <= self.high <= 180:
            raise BadInputError(f"low ({self.low}) and high ({self.high}) are degrees", field="contexts.low")
        if len(self.attributes) != 2:
            raise BadInputError("a direction is over two attributes", field="contexts.attributes")

    def first(self, items: Sequence[PromptItem]) -> list[PromptItem]:
        first, self.drawn = self.drawn, self.drawn + len(items)
        return [self._directed(item, self._angle(first + n)) for n, item in enumerate(items)]

    def evaluated(self, items: Sequence[PromptItem]) -> list[PromptItem]:
        at = self.evaluate_at
        return [
            self._directed(item, self._angle(f"evaluation/{n}") if at is None else at) for n, item in enumerate(items)
        ]

    def _angle(self, which: int | str) -> float:
        """Degrees."""
        return random.Random(f"{self.seed}/{which}").uniform(self.low, self.high)

    def _directed(self, item: PromptItem, degrees: float) -> PromptItem:
        return replace(
            item,
            meta={**item.meta, ROW_KEY: degrees},
            generate_from=with_direction(item.generation_context, self.attributes, degrees),
            train_on=with_direction(item.training_context, self.attributes, degrees),
        )

    def again(self, batch: RolloutBatch, round: int) -> list[ResampleRequest]:
        return []
