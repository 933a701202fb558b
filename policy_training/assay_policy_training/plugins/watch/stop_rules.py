"""When a run ends early: a metric out of bounds for several steps, or no progress.

Leaves out: choosing a checkpoint afterwards (`training.checkpoint_choice`). A metric that a step does not have counts
neither way.
"""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge

from assay.errors import BadInputError
from assay_policy_training.core.metrics import is_kl
from assay_policy_training.core.settings import StatefulSettings

if TYPE_CHECKING:
    from assay_policy_training.plugins.protocols import StopRule


class OutOfBounds(StatefulSettings, section="stop"):
    """Stop when `metric` was above `above` or below `below` in each of the last `patience` steps that have it. NaN is
    out of any bound."""

    metric: str
    above: float | None = None
    below: float | None = None
    patience: Annotated[int, Ge(1)] = 3
    bad: int = field(init=False, default=0)  #: steps in a row

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.above is None) == (self.below is None):
            raise BadInputError("give either above or below", field="stop")

    @property
    def reads_kl(self) -> bool:
        return is_kl(self.metric)

    def is_out(self, row: Mapping[str, Any]) -> bool | None:
        """None: the step does not have the metric."""
        value = row.get(self.metric)
        if not isinstance(value, int | float):
            return None
        return value != value or (value > self.above if self.above is not None else value < (self.below or 0.0))

    def reason(self, row: Mapping[str, Any]) -> str | None:
        if (out := self.is_out(row)) is None:
            return None
        self.bad = self.bad + 1 if out else 0
        if self.bad < self.patience:
            return None
        bound = f"above {self.above:g}" if self.above is not None else f"below {self.below:g}"
        return f"{self.metric} was {bound} for {self.patience} steps (last {row[self.metric]:.4g})"


class NoProgress(StatefulSettings, section="stop"):
    """Stop when the mean of `metric` over `window` steps has not risen by `at_least` since `patience` steps.

    `falling`: progress is a lower value.
    """

    metric: str = "reward_mean"
    patience: Annotated[int, Ge(1)] = 50
    window: Annotated[int, Ge(1)] = 10
    at_least: float = 0.0
    falling: bool = False
    recent: list[float] = field(init=False, default_factory=list)
    best: float | None = field(init=False, default=None)
    since: int = field(init=False, default=0)  #: steps since the best

    @property
    def reads_kl(self) -> bool:
        return is_kl(self.metric)

    def reason(self, row: Mapping[str, Any]) -> str | None:
        value = row.get(self.metric)
        if not isinstance(value, int | float):
            return None
        self.recent = [*self.recent, -value if self.falling else float(value)][-self.window :]
        if len(self.recent) < self.window:
            return None
        mean = sum(self.recent) / self.window
        if self.best is None or mean > self.best + self.at_least:
            self.best, self.since = mean, 0
            return None
        self.since += 1
        if self.since < self.patience:
            return None
        best = -self.best if self.falling else self.best
        return (
            f"{self.metric} has been no better than {best:.4g} (mean of {self.window} steps) for {self.patience} steps"
        )


def missing_metrics(rules: "Iterable[StopRule]", row: Mapping[str, Any]) -> list[str]:
    """A warning for each rule about a metric that the step `row` does not have.

    Not an error: a number that does not exist in one step may exist in another.
    """
    messages = []
    for rule in rules:
        metric = getattr(rule, "metric", None)
        if isinstance(metric, str) and metric not in row:
            near = difflib.get_close_matches(metric, row, n=3)
            hint = f"; near it: {', '.join(near)}" if near else ""
            messages.append(f"a stop rule watches {metric!r}, which step {row.get('step')} does not have{hint}")
    return messages
