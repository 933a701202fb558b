"""A reward server that stops to answer: the rollouts are held until it is back.

Covers: telling an outage from rows that cannot be scored, waiting up to a limit, showing the wait. Leaves out: the
retries of one request, which come first (`assay_serving.client.retries`); the wait at the start of a run
(`open_rewards`).
"""

import logging
import time
from collections.abc import Sequence

from assay.errors import BackendError
from assay.runs.progress_bar import Advance, silent
from assay.score import ScoreFailure, ScoreResult
from assay.system.graceful_stop import stop_requested
from assay_serving.client import RemoteScorer
from assay_serving.scorer import ModelInfo, ScoreItem

log = logging.getLogger(__name__)
DEFAULT_LIMIT_S = 1800.0
SHOWN_EVERY_S = 30.0
PROBE_S = 5.0  #: of one wait for the server, after which Ctrl-C is looked at
#: What a request that failed as a whole leaves for its rows; a server that is ready may be full or late.
OUTAGE_CODES = frozenset({"backend", "busy", "timeout"})


class WaitingScorer:
    """The model of a server, which is waited for when it stops to answer.

    Rows that failed are scored again once the server is ready, and stay failed only if it was ready all the time.
    `limit`: seconds of one outage, after which `score` raises BackendError.
    """

    def __init__(self, scorer: RemoteScorer, *, limit: float = DEFAULT_LIMIT_S) -> None:
        self.scorer, self.limit = scorer, limit
        self.waited_s = 0.0  #: in all outages

    @property
    def info(self) -> ModelInfo:
        return self.scorer.info

    def score(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[ScoreResult]:
        """See `Scorer.score`. Raises BackendError when the server is away for longer than the limit."""
        results = self.scorer.score(items, on_progress)
        tried_again = False
        while failures := _failures(results, OUTAGE_CODES):
            away = not self._ready(PROBE_S)
            if away:
                self._wait(len(failures), next(iter(failures.values())).message)
            else:
                failures = _failures(results, frozenset({"backend"}))
                if tried_again or not failures:
                    break
            tried_again = True
            rows = list(failures)
            for row, result in zip(rows, self.scorer.score([items[row] for row in rows]), strict=True):
                results[row] = result
        return results

    def _ready(self, seconds: float) -> bool:
        try:
            self.scorer.client.wait_until_ready(seconds)
        except BackendError:
            return False
        return True

    def _wait(self, rows: int, reason: str) -> None:
        """Return when the server is ready. Raises BackendError at the limit, and when the run is to stop."""
        url, began = self.scorer.client.settings.url, time.monotonic()
        log.warning("%s: %s; %d rollouts are held, waiting up to %g s", url, reason, rows, self.limit)
        shown = 0.0
        try:
            while (waited := time.monotonic() - began) < self.limit:
                if stop_requested():
                    raise BackendError(f"{url} had not answered for {waited:.0f} s when the run was stopped")
                if waited - shown >= SHOWN_EVERY_S:
                    shown = waited
                    log.warning("%s: no answer for %.0f s of at most %g", url, waited, self.limit)
                if self._ready(min(PROBE_S, self.limit - waited)):
                    log.warning("%s: answers again after %.0f s", url, time.monotonic() - began)
                    return
        finally:
            self.waited_s += time.monotonic() - began
        raise BackendError(f"{url} has not answered for {self.limit:g} s: {reason}")


def outage_seconds(scorer: object) -> dict[str, float]:
    """The metric of a step: seconds waited so far in the run, where there was an outage."""
    waited = scorer.waited_s if isinstance(scorer, WaitingScorer) else 0.0
    return {"reward_outage_seconds": waited} if waited else {}


def _failures(results: Sequence[ScoreResult], codes: frozenset[str]) -> dict[int, ScoreFailure]:
    return {row: r for row, r in enumerate(results) if isinstance(r, ScoreFailure) and r.code in codes}
