"""A scorer that scores each response once, however many comparisons it is in.

Leaves out: scoring; keeping scores beyond one evaluation (the store's matter).
"""

from __future__ import annotations

from collections.abc import Sequence

from assay.runs.progress_bar import Advance, silent
from assay.score import ScoreResult
from assay_serving.scorer import ModelInfo, ScoreItem, Scorer


class MemoisedScorer:
    """Around another scorer, for the length of one evaluation."""

    def __init__(self, scorer: Scorer) -> None:
        self._scorer = scorer
        self._known: dict[ScoreItem, ScoreResult] = {}

    @property
    def info(self) -> ModelInfo:
        return self._scorer.info

    def score(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[ScoreResult]:
        """As the scorer within; progress counts the responses that are scored anew."""
        new = list(dict.fromkeys(item for item in items if item not in self._known))
        if new:
            self._known.update(zip(new, self._scorer.score(new, on_progress), strict=True))
        return [self._known[item] for item in items]
