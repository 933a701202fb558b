"""The synchronous reward client: the same requests as the asynchronous one, from a few threads."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any

import httpx

from assay.domain import Prompt
from assay.errors import AssayError, BackendError
from assay.progress import Advance, silent
from assay.score import ScoreResult
from assay_serving.client import protocol
from assay_serving.client.connection import ConnectionSettings
from assay_serving.client.retries import RETRYABLE_FAULTS, RETRYABLE_STATUSES, Attempts, retry_after_of
from assay_serving.scorer import ModelInfo, ScoreItem


class RewardClient:
    """Scores through a reward server. Use as a context manager, or call `close`. Safe to share between threads."""

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        model: str | None = None,
        timeout: float = 180.0,
        deadline: float | None = 600.0,
        retries: int = 5,
        max_items_per_request: int = 64,
        max_concurrency: int = 16,
        failures_in_place: bool = False,
    ) -> None:
        """`model`: which one, where the server has several. `timeout`: seconds of one try; `deadline`: seconds of one
        request with all its tries and pauses; `retries`: tries after the first, made only where another can help.

        What concerns a whole request (server gone, queue full to the end, wrong key) raises an `AssayError`, or
        with `failures_in_place` becomes a `ScoreFailure` for each of that request's items, so that a training step
        keeps the scores it has and masks the rest.
        """
        self.settings = ConnectionSettings(
            url, api_key, model, timeout, deadline, retries, max_items_per_request, max_concurrency, failures_in_place
        )
        self._pools = self.settings.pools(httpx.Client)

    def score(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[ScoreResult]:
        """One result per item, in order: a `Score`, or a `ScoreFailure` where the server could not give one.

        Large inputs are cut into requests that run side by side. Raises BadInputError (request or key refused),
        NotFoundError (unknown model), BusyError (full or draining to the end), BackendError (gone, broken, late).
        """
        refused = [protocol.unsendable(item) for item in items]
        sent = [item for item, failure in zip(items, refused, strict=True) if failure is None]
        on_progress(len(items) - len(sent))
        runs = protocol.cut(sent, self.settings.max_items_per_request)
        if len(runs) < 2:
            parts = [self._score_run(run, on_progress) for run in runs]
        else:
            with ThreadPoolExecutor(min(len(runs), self.settings.max_concurrency)) as pool:
                futures = [pool.submit(self._score_run, run, on_progress) for run in runs]
                try:
                    parts = [future.result() for future in futures]
                except BaseException:
                    for future in futures:  # after one error the others would only cost
                        future.cancel()
                    raise
        return protocol.put_in_place(refused, [result for part in parts for result in part])

    def score_group(
        self, prompt: str | Prompt, responses: Sequence[str], *, principle: str | None = None
    ) -> list[ScoreResult]:
        """Scores of several responses to one prompt."""
        shared = protocol.as_prompt(prompt)
        return self.score([ScoreItem(shared, response, principle) for response in responses])

    def models(self) -> list[ModelInfo]:
        """What the server serves."""
        return protocol.read_models(self._send("GET", protocol.MODELS))

    def wait_until_ready(self, timeout: float = 300.0) -> None:
        """Return once the server would score; raises BackendError after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        reason = "no answer"
        while (left := deadline - time.monotonic()) > 0:
            try:
                response = self._pools.clients[0].get(protocol.READY, timeout=min(5.0, left))
                if response.status_code == 200:
                    return
                if response.status_code not in RETRYABLE_STATUSES:
                    raise protocol.error_of(response, 1)
                reason = str(protocol.error_of(response, 1))
            except httpx.TransportError as error:
                reason = str(protocol.error_of_fault(error, self.settings.url, 1))
            time.sleep(min(0.25, max(0.0, deadline - time.monotonic())))
        raise BackendError(f"{self.settings.url} is not ready after {timeout:g} s: {reason}")

    def close(self) -> None:
        for client in self._pools.clients:
            client.close()

    def __enter__(self) -> RewardClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _score_run(self, items: Sequence[ScoreItem], on_progress: Advance) -> list[ScoreResult]:
        body = protocol.score_body(items, self.settings.model)
        try:
            results = protocol.read_scores(self._send("POST", protocol.SCORE, body), len(items))
        except AssayError as error:
            if not self.settings.failures_in_place:
                raise
            results = protocol.failures_of(error, len(items), self.settings.model)
        on_progress(len(items))
        return results

    def _send(self, method: str, path: str, body: dict[str, Any] | None = None) -> httpx.Response:
        attempts = Attempts(self.settings.policy)
        while True:
            pause: float | None
            try:
                timeout = self.settings.timeout_within(attempts.remaining)
                with self._pools.least_busy() as client:
                    response = client.request(method, path, json=body, timeout=timeout)
            except httpx.TransportError as fault:
                pause = attempts.next_pause(retryable=isinstance(fault, RETRYABLE_FAULTS))
                if pause is None:
                    raise protocol.error_of_fault(fault, self.settings.url, attempts.made) from fault
            else:
                if response.status_code == 200:
                    return response
                retryable = response.status_code in RETRYABLE_STATUSES
                pause = attempts.next_pause(retryable=retryable, retry_after=retry_after_of(response))
                if pause is None:
                    raise protocol.error_of(response, attempts.made)
            time.sleep(pause)
