"""Settings that change in stages: longer rollouts, another temperature, from given steps on.

Covers: a stage gives the setting's value, or a factor of the recipe's own number (so that `--max-new-tokens` scales all
stages). Skywork-OR1 trains with 8k, 16k and 32k tokens: factors 1, 2, 4. Leaves out: changes that follow a measurement.

Note: a constant length that an aggregation divides by stays the recipe's `sampling.max_new_tokens`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge

from assay.errors import BadInputError
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.protocols import RecipeView
from assay_policy_training.plugins.schedules.decay import Scheduled, check_only_one


@dataclass(frozen=True)
class ScheduleStage(RecipeSettings, section="schedules.stages"):
    """From `step` (1-based) on, until the next stage. Exactly one of `value` and `factor`."""

    step: Annotated[int, Ge(1)]
    value: float | None = None
    factor: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        numbers = [number for number in (self.value, self.factor) if number is not None]
        if len(numbers) != 1 or not numbers[0] > 0:
            raise BadInputError("either a value or a factor, above 0", field="schedules.stages.value")


@dataclass(frozen=True)
class StagedSchedule(RecipeSettings, section="schedules"):
    """S13: the setting `name` by the last stage that has begun; before the first one it is what it was."""

    setting: Scheduled
    stages: tuple[ScheduleStage, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        steps = [stage.step for stage in self.stages]
        if not steps or sorted(set(steps)) != steps:
            raise BadInputError("stages begin one after the other", field="schedules.stages")

    @property
    def changes(self) -> frozenset[str]:
        return frozenset({self.setting})

    def check_recipe(self, recipe: RecipeView) -> None:
        check_only_one(self.setting, recipe)

    def value(self, name: str, value: float, step: int) -> float:
        begun = [stage for stage in self.stages if stage.step <= step]
        if name != self.setting or not begun:
            return value
        stage = begun[-1]
        return stage.value if stage.value is not None else value * (stage.factor or 1.0)
