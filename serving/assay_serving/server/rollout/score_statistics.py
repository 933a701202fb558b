"""What one model's latest scores look like: location, spread, truncation, failures, drift, time to answer.

Covers: a sliding window that costs a few appends on the hot path, figures computed when somebody looks. Leaves out:
counters since the start (`metrics`), formulas of drift (`drift`).

Drift is measured against the first scores after loading, unless an administrator sets the reference anew. A server
that starts again therefore starts a new reference.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from assay.score import Score, ScoreResult
from assay_serving.server.rollout.drift import Drift, Floats, drift

WINDOW = 4096  #: items
REFERENCE = 1000  #: scores
LEAST = 100  #: scores after the reference, before drift is told


class ScoreStatistics:
    """Of one loaded model. Used on the event loop only."""

    def __init__(self, *, window: int = WINDOW, reference: int = REFERENCE, least: int = LEAST) -> None:
        self._rewards: deque[float] = deque(maxlen=window)
        self._outcomes: deque[str] = deque(maxlen=window)  # "" scored, "truncated" scored, else a failure's code
        self._seconds: deque[float] = deque(maxlen=window)  # an answer each
        self._reference: list[float] = []
        self._wanted = reference
        self._least = least
        self.items = self.failed = self._scores_since = 0

    def add(self, results: Sequence[ScoreResult], seconds: float) -> None:
        """Results of one answer, and the time from its arrival."""
        self._seconds.append(seconds)
        self.items += len(results)
        for result in results:
            if isinstance(result, Score):
                self._outcomes.append("truncated" if result.truncated else "")
                self._rewards.append(result.reward)
                if len(self._reference) < self._wanted:
                    self._reference.append(result.reward)
                else:
                    self._scores_since += 1
            else:
                self.failed += 1
                self._outcomes.append(f"failed {result.code}")

    def lose(self, items: int, code: str) -> None:
        """So many items got no answer at all."""
        self.items += items
        self.failed += items
        self._outcomes.extend([f"failed {code}"] * items)

    def set_reference(self) -> None:
        """From now on drift is against the present window."""
        self._reference = list(self._rewards)[-self._wanted :]
        self._scores_since = 0

    @property
    def failure_rate(self) -> float:
        """Since loading."""
        return self.failed / self.items if self.items else 0.0

    @property
    def rewards(self) -> Floats:
        """Those of the window, oldest first."""
        return np.array(self._rewards, dtype=float)

    def shares(self) -> dict[str, float]:
        """Shares of the window's items: "truncated" and "failed CODE", those that occur."""
        counts = Counter(self._outcomes)
        counts.pop("", None)
        return {name: count / len(self._outcomes) for name, count in sorted(counts.items())}

    def drift(self) -> Drift | None:
        """Of the window's scores since the reference was complete; None while there are too few of them."""
        rewards = self.rewards[-self._scores_since :] if self._scores_since else np.array([])
        if len(self._reference) < self._wanted or len(rewards) < min(self._least, self._rewards.maxlen or self._least):
            return None
        return drift(self._reference, rewards)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; None where nothing has been scored."""
        rewards, seconds, moved = self.rewards, np.array(self._seconds), self.drift()
        shares = self.shares()
        return {
            "items": self.items,
            "failed": self.failed,
            "window": {
                "items": len(self._outcomes),
                "mean": float(rewards.mean()) if len(rewards) else None,
                "std": float(rewards.std()) if len(rewards) else None,
                "quantiles": _quantiles(rewards, (0.05, 0.25, 0.5, 0.75, 0.95)),
                "truncated": shares.pop("truncated", 0.0),
                "failed": {name.removeprefix("failed "): share for name, share in shares.items()},
            },
            "reference": {"scores": len(self._reference), "wanted": self._wanted},
            "drift": moved.to_dict() if moved is not None else None,
            "answer_seconds": _quantiles(seconds, (0.5, 0.95)),
        }


def _quantiles(values: Floats, shares: tuple[float, ...]) -> dict[str, float] | None:
    if not len(values):
        return None
    return {
        f"p{round(share * 100):02d}": float(value)
        for share, value in zip(shares, np.quantile(values, shares), strict=True)
    }
