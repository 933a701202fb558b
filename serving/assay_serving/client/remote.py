"""A reward server as a `Scorer`, so that evaluation and curation take one where they take a local model."""

from __future__ import annotations

from collections.abc import Sequence

from assay.errors import BadInputError, NotFoundError
from assay.runs.progress_bar import Advance, silent
from assay.score import ScoreResult
from assay_serving.client.blocking import RewardClient
from assay_serving.scorer import ModelInfo, ScoreItem


class RemoteScorer:
    """One model of a server. Asks the server what it is once, when it is made."""

    def __init__(self, client: RewardClient) -> None:
        self.client = client
        served = {info.name: info for info in client.models()}
        wanted = client.settings.model
        if wanted is None and len(served) > 1:
            raise BadInputError(f"{client.settings.url} serves several models; name one of {', '.join(served)}")
        if wanted is not None and wanted not in served:
            raise NotFoundError(f"{client.settings.url} serves no model {wanted!r}; served: {', '.join(served)}")
        self._info = served[wanted] if wanted is not None else next(iter(served.values()))

    @property
    def info(self) -> ModelInfo:
        return self._info

    def score(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[ScoreResult]:
        """See `Scorer.score`."""
        return self.client.score(items, on_progress)
