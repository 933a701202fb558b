"""Plain schedules: a setting falls along half a cosine or a line.

Covers: the learning rate, or another setting that schedules may change. Leaves out: the warm-up
(`optimisation.warmup_steps`), schedules that look at the run (`length_lr`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

from assay.errors import BadInputError
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.protocols import RecipeView

Scheduled: TypeAlias = Literal["lr", "max_new_tokens", "temperature"]


def check_only_one(setting: str, recipe: RecipeView) -> None:
    """Raises BadInputError where two schedules of a recipe say that they change the same setting."""
    if sum(setting in getattr(plugin, "changes", ()) for plugin in recipe.schedules) > 1:
        raise BadInputError(f"two schedules change {setting}", field="schedules")


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class Cosine(Linear):
    """S13: the same along half a cosine."""

    def curve(self, done: float) -> float:
        return 0.5 * (1 + math.cos(math.pi * done))
