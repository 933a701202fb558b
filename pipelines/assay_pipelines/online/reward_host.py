"""Where the rollouts of a loop are scored: in this process, or by a child process `assay serve`.

Covers: one scorer for the policy training whose model is replaced between two requests; a child process that is started
again when it ends. Leaves out: making models (`refit`).
"""

from collections.abc import Sequence
from typing import Protocol

from assay.runs.progress_bar import Advance, silent
from assay.score import ScoreResult
from assay_pipelines.online.refit import RewardVersion
from assay_serving.scorer import ModelInfo, ScoreItem


class RewardHost(Protocol):
    """A scorer whose model can be replaced. No request fails because of a swap, and a score names its version."""

    @property
    def info(self) -> ModelInfo: ...
    def score(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[ScoreResult]: ...
    def swap(self, version: RewardVersion) -> None: ...
    def close(self) -> None: ...


class InProcessReward:
    """Scores here, with the heads that the loop has loaded anyway."""

    def __init__(self, version: RewardVersion) -> None:
        self._version = version

    @property
    def info(self) -> ModelInfo:
        return self._version.scorer.info

    def score(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[ScoreResult]:
        return self._version.scorer.score(items, on_progress)

    def swap(self, version: RewardVersion) -> None:
        self._version = version

    def close(self) -> None:
        pass
