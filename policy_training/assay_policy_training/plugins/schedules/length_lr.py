"""The learning rate is halved again and again once responses have grown long.

Covers: a detector of the surge in response length, which is taken as the sign that the gradient's noise and the
mismatch of sampler and trainer are about to grow, and the decay after it:

    lr(step) = lr0 max(least, .5^floor((step - s) / (stretch s)))      from the surge step s on

s is the first step after `baseline_steps` in which the mean (or median) length exceeds `surge` times the mean of the
baseline steps. It is remembered in checkpoints; a resumed run does not detect it again. Truncated rows hide growth from
the mean, and runs that penalise length may never trigger: then give `at`. Leaves out: the warm-up.

Source: arXiv 2602.01826 (abstract and a third-party reproduction, whose detector this is).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Gt, Le

from assay.errors import BadInputError
from assay_policy_training.core.settings import StatefulSettings
from assay_policy_training.plugins.protocols import RecipeView, StepReport
from assay_policy_training.plugins.schedules.decay import check_only_one


def decayed_lr(step: int, surge_step: int, *, stretch: float, least: float) -> float:
    """The factor on lr0 in `step` >= `surge_step`."""
    return float(max(least, 0.5 ** math.floor((step - surge_step) / (stretch * surge_step))))


@dataclass
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
