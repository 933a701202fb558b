"""What a figure rests on: how much of the data a training used or an evaluation scored, and the warnings that follow.

Covers: the thresholds, the share of items used, which results may be ranked, warnings as sentences for terminal, page,
model card and JSON. Leaves out: the figures and their intervals.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

LEAST_USED = 0.9  #: share of the data: a figure over less says so, and a benchmark result over less is not ranked
MOST_TRUNCATED = 0.1  #: share of the used items that lost a part of their conversation
FEWEST_ITEMS = 30  #: an accuracy over fewer says so


@dataclass(frozen=True)
class Coverage:
    """`used` of `total` items, the others by reason in `left_out`. `truncated`: of the used ones; None: not known.
    `unit`: what an item is called, plural."""

    total: int
    used: int
    unit: str = "items"
    left_out: Mapping[str, int] = field(default_factory=dict)
    truncated: int | None = None

    @property
    def share(self) -> float:
        """Of the items, 0 to 1."""
        return self.used / self.total if self.total else 0.0

    @property
    def truncated_share(self) -> float | None:
        """Of the used items, 0 to 1."""
        return None if self.truncated is None or not self.used else self.truncated / self.used

    @property
    def ranked(self) -> bool:
        """Whether enough was scored to compare the result with others."""
        return self.share >= LEAST_USED

    def of_training(self) -> list[str]:
        """Warnings of a training that used these items."""
        warnings = []
        if self.share < LEAST_USED:
            share = "under half" if self.share < 0.5 else f"{_percent(self.share)}"
            warnings.append(
                f"trained on {share} of its data: {self.used} of {self.total} {self.unit}; left out: {self._reasons()}"
            )
        return warnings + self._cut()

    def of_evaluation(self) -> list[str]:
        """Warnings of a figure over these items."""
        warnings = []
        if not self.ranked:
            warnings.append(
                f"only {self.used} of {self.total} {self.unit} ({_percent(self.share)}) could be scored: "
                f"{self._reasons()}"
            )
        if self.used < FEWEST_ITEMS:
            warnings.append(f"the figures rest on {self.used} {self.unit}, fewer than {FEWEST_ITEMS}")
        return warnings + self._cut()

    def to_dict(self) -> dict[str, Any]:
        return {
            "total": self.total,
            "used": self.used,
            "share": self.share,
            "left_out": dict(self.left_out),
            "truncated": self.truncated,
            "truncated_share": self.truncated_share,
        }

    def _cut(self) -> list[str]:
        share = self.truncated_share
        if share is None or share <= MOST_TRUNCATED:
            return []
        return [f"{self.truncated} of {self.used} {self.unit} ({_percent(share)}) were truncated"]

    def _reasons(self) -> str:
        return ", ".join(f"{n} ({reason})" for reason, n in sorted(self.left_out.items())) or "no reason recorded"


def warnings_of(metrics: Mapping[str, Any]) -> list[str]:
    """The warnings in a run's metrics; none where it has not written any."""
    listed = metrics.get("warnings")
    return [str(one) for one in listed] if isinstance(listed, list | tuple) else []


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
