"""Schedules of the learning rate, the temperature and the length.

Decay: a setting falls along half a cosine or a line. Leaves out: the warm-up (`optimisation.warmup_steps`).

Stages: longer rollouts, another temperature, from given steps on. Covers: a stage gives the setting's value, or a
factor of the recipe's own number (so that `--max-new-tokens` scales all stages). Skywork-OR1 trains with 8k, 16k and
32k tokens: factors 1, 2, 4. Leaves out: changes that follow a measurement. Note: a constant length that an aggregation
divides by stays the recipe's `sampling.max_new_tokens`.

By length: the learning rate is halved again and again once responses have grown long. A detector of the surge in
response length, which is taken as the sign that the gradient's noise and the mismatch of sampler and trainer are about
to grow, and the decay after it:

    lr(step) = lr0 max(least, .5^floor((step - s) / (stretch s)))      from the surge step s on

s is the first step after `baseline_steps` in which the mean (or median) length exceeds `surge` times the mean of the
baseline steps. It is remembered in checkpoints; a resumed run does not detect it again. Truncated rows hide growth from
the mean, and runs that penalise length may never trigger: then give `at`. Leaves out: the warm-up. Source: arXiv
2602.01826 (abstract and a third-party reproduction, whose detector this is).
"""

import math
from dataclasses import field
from typing import Annotated, ClassVar, Literal, TypeAlias

from annotated_types import Ge, Gt, Le

from assay.errors import BadInputError
from assay_policy_training.core.settings import RecipeSettings, StatefulSettings
from assay_policy_training.plugins.protocols import RecipeView, StepReport

Scheduled: TypeAlias = Literal["lr", "max_new_tokens", "temperature"]


def check_only_one(setting: str, recipe: RecipeView) -> None:
    """Raises BadInputError where two schedules of a recipe say that they change the same setting."""
    if sum(setting in getattr(plugin, "changes", ()) for plugin in recipe.schedules) > 1:
        raise BadInputError(f"two schedules change {setting}", field="schedules")


class Linear(RecipeSettings, section="schedules"):
    """S13: from the value so far in step `start` to `final` times that in step `end`, and so on after it."""

    end: int
    start: int = 1
    final: float = 0.0
    setting: Scheduled = "lr"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.start < self.end:
            raise BadInputError(f"start {self.start} must be at least 1, end {self.end} after it", field="schedules")
        lowest_allowed = self.final >= 0 if self.setting == "lr" else self.final > 0
        if not lowest_allowed:
            raise BadInputError(f"too small for {self.setting}: {self.final}", field="schedules.final")

    @property
    def changes(self) -> frozenset[str]:
        return frozenset({self.setting})

    def check_recipe(self, recipe: RecipeView) -> None:
        check_only_one(self.setting, recipe)

    def value(self, name: str, value: float, step: int) -> float:
        return value * self.factor(step) if name == self.setting else value

    def factor(self, step: int) -> float:
        """1 up to `start`, `final` from `end` on."""
        done = min(1.0, max(0.0, (step - self.start) / (self.end - self.start)))
        return self.final + (1 - self.final) * self.curve(done)

    def curve(self, done: float) -> float:
        """From 1 to 0 as `done` goes from 0 to 1."""
        return 1 - done


class Cosine(Linear):
    """S13: the same along half a cosine."""

    def curve(self, done: float) -> float:
        return 0.5 * (1 + math.cos(math.pi * done))


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


def decayed_lr(step: int, surge_step: int, *, stretch: float, least: float) -> float:
    """The factor on lr0 in `step` >= `surge_step`."""
    return float(max(least, 0.5 ** math.floor((step - surge_step) / (stretch * surge_step))))


class LengthLr(StatefulSettings, section="schedules"):
    """S13. `at`: the surge step, where it is known; None = detect it."""

    baseline_steps: Annotated[int, Ge(1)] = 50
    surge: Annotated[float, Gt(1)] = 3.0
    statistic: Literal["mean", "median"] = "mean"
    stretch: Annotated[float, Gt(0)] = 1.8  #: length of a halving period in surge steps
    least: Annotated[float, Ge(0), Le(1)] = 0.1  #: smallest factor on the learning rate
    at: Annotated[int | None, Ge(1)] = None
    surge_step: int | None = field(init=False, default=None)
    _total: float = field(init=False, default=0.0, repr=False)
    _seen: int = field(init=False, default=0, repr=False)
    changes: ClassVar[frozenset[str]] = frozenset({"lr"})

    def __post_init__(self) -> None:
        super().__post_init__()
        self.surge_step = self.at

    def check_recipe(self, recipe: RecipeView) -> None:
        check_only_one("lr", recipe)
        if self.at is None and self.baseline_steps < recipe.optimisation.warmup_steps:
            raise BadInputError(
                f"must cover the warm-up of {recipe.optimisation.warmup_steps} steps", field="schedules.baseline_steps"
            )

    def value(self, name: str, value: float, step: int) -> float:
        if name != "lr" or self.surge_step is None or step < self.surge_step:
            return value
        return value * decayed_lr(step, self.surge_step, stretch=self.stretch, least=self.least)

    def observe(self, report: StepReport) -> None:
        """The lengths of a step that is done."""
        if self.surge_step is not None:
            return
        lengths = report.batch.lengths.double()
        length = float(lengths.mean() if self.statistic == "mean" else lengths.median())
        if self._seen < self.baseline_steps:
            self._total, self._seen = self._total + length, self._seen + 1
        elif length > self.surge * self._total / self._seen:
            self.surge_step = report.step
