"""A scorer that scores each response once, however many comparisons it is in.

Leaves out: scoring, storing scores.
"""

from __future__ import annotations

from collections.abc import Sequence

from assay.runs.progress_bar import Advance, silent
from assay.score import ScoreResult
from assay_serving.scorer import ModelInfo, ScoreItem, Scorer


class MemoisedScorer:
    """Wraps another scorer for one evaluation."""

    def __init__(self, scorer: Scorer) -> None:
        self._scorer = scorer
        self._known: dict[ScoreItem, ScoreResult] = {}

    @property
    def info(self) -> ModelInfo:
        return self._scorer.info

    def score(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[ScoreResult]:
        """As the wrapped scorer; progress counts responses not scored before."""
        new = list(dict.fromkeys(item for item in items if item not in self._known))
        if new:
            self._known.update(zip(new, self._scorer.score(new, on_progress), strict=True))
        return [self._known[item] for item in items]
