"""Which checkpoints of a run are kept, and which one the policy is saved from.

Covers: the newest ones, the best by a metric of the steps, the last good one before a stop rule's bound was broken. All
follow from metrics.jsonl, so a resumed run chooses as one that never stopped. Leaves out: the files (`checkpoint`), the
rules (`plugins.watch.stop_rules`).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assay_policy_training.plugins.protocols import StopRule
from assay_policy_training.plugins.watch.stop_rules import OutOfBounds
from assay_policy_training.training.config import BEST_BY, Keep

STEERED = -1


@dataclass
class CheckpointChoice:
    """`newest`: how many of the newest are kept. `best_by`: a metric of steps; with a `-` before it a lower value is
    better. `keep`: whether the policy of the last step or of the best is saved."""

    newest: int = 1
    best_by: str = BEST_BY
    keep: Keep = "last"
    best: tuple[int, float] | None = field(init=False, default=None)  #: step and value of the metric
    #: Rule (its position, `STEERED`: plug-ins that steer the run) -> last step within its bound.
    good: dict[int, int] = field(init=False, default_factory=dict)

    def note(self, row: Mapping[str, Any], rules: Sequence[StopRule]) -> bool:
        """Call with the metrics of each step in order; returns whether it is the best so far."""
        for position, rule in enumerate(rules):
            if isinstance(rule, OutOfBounds) and rule.is_out(row) is False:
                self.good[position] = int(row.get(f"{rule.metric}_good_step", row["step"]))
        value = row.get(self.best_by.removeprefix("-"))
        if not isinstance(value, int | float) or not math.isfinite(value):
            return False
        value = -value if self.best_by.startswith("-") else value
        if self.best is not None and value <= self.best[1]:
            return False
        self.best = (int(row["step"]), value)
        return True

    def steps_to_keep(self, saved: Sequence[int], coming: int) -> set[int]:
        """Of the steps that have a checkpoint, in order, those to keep when that of the step `coming` is there."""
        earlier = [step for step in saved if step < coming]
        steps = set(earlier[len(earlier) - self.newest + 1 :]) if self.newest > 1 else set()
        if self.best is not None:
            steps.add(self.best[0])
        good = [at_most([*earlier, coming], step) for step in self.good.values()]
        return steps | {step for step in good if step is not None}

    def final(self, saved: Sequence[int], broken: int | None) -> int | None:
        """The step whose checkpoint the policy is saved from; None: the weights as they are. `broken`: the position of
        the rule that ended the run, whose last good step is the latest that counts."""
        limit = self.good.get(broken) if broken is not None else None
        best = self.best[0] if self.keep == "best" and self.best is not None else None
        if best is not None and best in saved and (limit is None or best <= limit):
            return best
        return None if limit is None else at_most(saved, limit)


def at_most(steps: Sequence[int], limit: int) -> int | None:
    """The last of the steps that is no later than `limit`."""
    return max((step for step in steps if step <= limit), default=None)
