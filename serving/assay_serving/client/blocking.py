"""The synchronous reward client: the same requests as the asynchronous one, from a few threads."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, TypeVar

import httpx

from assay.domain import Prompt
from assay.errors import AssayError, BackendError
from assay.runs.progress_bar import Advance, silent
from assay.score import ScoreResult
from assay_serving.client import protocol
from assay_serving.client.circuit import Circuit
from assay_serving.client.connection import ConnectionSettings, Pools, PriorityName
from assay_serving.client.principles import PrincipleUse
from assay_serving.client.retries import RETRYABLE_FAULTS, RETRYABLE_STATUSES, Attempts, request_id, retry_after_of
from assay_serving.preference import Preference, Ranking, rank
from assay_serving.scorer import ModelInfo, ScoreItem

T = TypeVar("T")


class RewardClient:
    """Scores through a reward server. Use as a context manager, or call `close`. Safe to share between threads.

    Can be pickled and used after a fork: connections belong to one process, and a copy opens its own.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        model: str | None = None,
        timeout: float | None = None,
        deadline: float | None = 600.0,
        retries: int = 5,
        max_items_per_request: int = 64,
        max_concurrency: int = 16,
        failures_in_place: bool = False,
        priority: PriorityName | None = None,
        ca: str | None = None,
    ) -> None:
        """`model`: which one, where the server has several. `api_key`: $ASSAY_API_KEY where none is given. `timeout`:
        seconds of one try, None = as long as the deadline leaves; `deadline`: seconds of one request with all its tries
        and pauses, None = no limit, but 180 of one try; `retries`: tries after the first, where a retry can help.
        `priority`: interactive (the server's default) goes before bulk. `ca`:
        a file of certificate authorities for https, in place of the default ones.

        A failure of a whole request (server gone, queue full until the deadline, wrong key) raises an `AssayError`, or
        with `failures_in_place` becomes a `ScoreFailure` for each of that request's items, so that a training step
        keeps the scores it has and masks the rest.
        """
        self.settings = ConnectionSettings(
            url,
            api_key,
            model,
            timeout,
            deadline,
            retries,
            max_items_per_request,
            max_concurrency,
            failures_in_place,
            priority,
            ca,
        )
        self._begin()

    def _begin(self) -> None:
        self._circuit = Circuit()
        self._opened: tuple[int, Pools[httpx.Client]] | None = None

    def __getstate__(self) -> ConnectionSettings:
        return self.settings

    def __setstate__(self, settings: ConnectionSettings) -> None:
        self.settings = settings
        self._begin()

    def score(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[ScoreResult]:
        """One result per item, in order: a `Score`, or a `ScoreFailure` where the server could not give one.

        Large inputs are cut into requests that run side by side. Raises BadInputError (request or key refused),
        NotFoundError (unknown model), BusyError (full or draining to the end; RateLimitError for this key's own limit),
        BackendError (gone, broken; LateError when not in time).
        """
        refused = [protocol.unsendable(item) for item in items]
        sent = [item for item, failure in zip(items, refused, strict=True) if failure is None]
        on_progress(len(items) - len(sent))
        runs = protocol.cut(sent, self.settings.max_items_per_request)
        parts = self._concurrently(lambda run: self._score_run(run, on_progress), runs)
        return protocol.put_in_place(refused, [result for part in parts for result in part])

    def score_group(
        self,
        prompt: str | Prompt,
        responses: Sequence[str],
        *,
        principle: str | None = None,
        references: Sequence[str] = (),
        label: str | None = None,
    ) -> list[ScoreResult]:
        """Scores of several responses to one prompt. `references`, `label`: see `ScoreItem`."""
        return self.score(
            protocol.group_items(prompt, responses, principle=principle, references=references, label=label)
        )

    def score_principles(
        self, prompt: str | Prompt, responses: Sequence[str], principles: Sequence[str]
    ) -> dict[str, list[ScoreResult]]:
        """Scores of the responses by each of the principles."""
        items = protocol.group_items(prompt, responses)
        return protocol.by_principle(items, principles, self.score(protocol.judged_by(items, principles)))

    def compare(self, prompt: str | Prompt, a: str, b: str, *, principle: str | None = None) -> Preference:
        """Which of two responses is preferred, by how much and how surely."""
        (pair,) = self.compare_pairs([(prompt, a, b)], principle=principle)
        return pair

    def compare_pairs(
        self, pairs: Sequence[tuple[str | Prompt, str, str]], *, principle: str | None = None
    ) -> list[Preference]:
        """As `compare`, of (prompt, a, b) each, in order. Errors as `score`; a pair that cannot be sent or, with
        `failures_in_place`, got no answer has two failures."""
        item_pairs = protocol.pair_items(pairs, principle)
        refused = [protocol.refused_pair(pair) for pair in item_pairs]
        sent = [pair for pair, failure in zip(item_pairs, refused, strict=True) if failure is None]
        runs = protocol.cut_pairs(sent, self.settings.max_items_per_request)
        parts = self._concurrently(self._compare_run, runs)
        preferences = (preference for part in parts for preference in part)
        return [failure if failure is not None else next(preferences) for failure in refused]

    def rank(
        self,
        prompt: str | Prompt,
        responses: Sequence[str],
        *,
        principle: str | None = None,
        tie_margin: float = 0.0,
    ) -> Ranking:
        """The responses in order, those without a score last; see `assay_serving.preference.rank`."""
        return rank(self.score_group(prompt, responses, principle=principle), tie_margin)

    def principles(self) -> list[PrincipleUse]:
        """What each served model does with principles."""
        return protocol.read_principles(self._send("GET", protocol.PRINCIPLES))

    def models(self) -> list[ModelInfo]:
        """What the server serves."""
        return protocol.read_models(self._send("GET", protocol.MODELS))

    def post(self, path: str, body: dict[str, Any]) -> httpx.Response:
        """The 200 reply of any route of the server, under the same limits, tries and errors as the client's own."""
        return self._send("POST", path, body)

    def wait_until_ready(self, timeout: float = 300.0) -> None:
        """Return once the server would score; raises BackendError after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        reason = "no answer"
        while (remaining := deadline - time.monotonic()) > 0:
            try:
                response = self._pools.clients[0].get(protocol.READY, timeout=min(5.0, remaining))
                if response.status_code == 200:
                    self._circuit.answered()
                    return
                if response.status_code not in RETRYABLE_STATUSES:
                    raise protocol.error_of(response, 1)
                reason = str(protocol.error_of(response, 1))
            except httpx.TransportError as error:
                reason = str(protocol.error_of_fault(error, self.settings.url, 1))
            time.sleep(min(0.25, max(0.0, deadline - time.monotonic())))
        raise BackendError(f"{self.settings.url} is not ready after {timeout:g} s: {reason}")

    def close(self) -> None:
        """Close the connections of this process. The client can be used again; it then opens new ones."""
        opened, self._opened = self._opened, None
        if opened is not None and opened[0] == os.getpid():
            for client in opened[1].clients:
                client.close()

    def __enter__(self) -> RewardClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def _pools(self) -> Pools[httpx.Client]:
        """This process's connections. Those from before a fork belong to the parent process."""
        opened = self._opened
        if opened is None or opened[0] != os.getpid():
            opened = self._opened = (os.getpid(), self.settings.pools(httpx.Client))
        return opened[1]

    def _concurrently(self, ask: Callable[[Sequence[Any]], list[T]], runs: Sequence[Sequence[Any]]) -> list[list[T]]:
        """The results of all runs, in order, requested from a few threads."""
        if len(runs) < 2:
            return [ask(run) for run in runs]
        with ThreadPoolExecutor(min(len(runs), self.settings.max_concurrency)) as pool:
            futures = [pool.submit(ask, run) for run in runs]
            try:
                return [future.result() for future in futures]
            except BaseException:
                for future in futures:  # after one error the others are not needed
                    future.cancel()
                raise

    def _score_run(self, items: Sequence[ScoreItem], on_progress: Advance) -> list[ScoreResult]:
        try:
            body = protocol.score_body(items, self.settings)
            results = protocol.read_scores(self._send("POST", protocol.SCORE, body), len(items))
        except AssayError as error:
            if not self.settings.failures_in_place:
                raise
            results = protocol.failures_of(error, len(items), self.settings.model)
        on_progress(len(items))
        return results

    def _compare_run(self, pairs: Sequence[tuple[ScoreItem, ScoreItem]]) -> list[Preference]:
        try:
            body = protocol.compare_body(pairs, self.settings)
            return protocol.read_preferences(self._send("POST", protocol.COMPARE, body), len(pairs))
        except AssayError as error:
            if not self.settings.failures_in_place:
                raise
            return protocol.failed_pairs(error, len(pairs), self.settings.model)

    def _send(self, method: str, path: str, body: dict[str, Any] | None = None) -> httpx.Response:
        """The 200 reply, with retries."""
        attempts = Attempts(self.settings.policy)
        headers = request_id()
        while True:
            fault: httpx.TransportError | None = None
            pause: float | None
            if not self._circuit.admits():
                pause = attempts.next_pause(retryable=True, retry_after=self._circuit.wait_s)
            else:
                try:
                    timeout = self.settings.timeout_within(attempts.remaining)
                    with self._pools.least_busy() as client:
                        response = client.request(method, path, json=body, headers=headers, timeout=timeout)
                except httpx.TransportError as error:
                    fault, retryable = error, isinstance(error, RETRYABLE_FAULTS)
                    if retryable:
                        self._circuit.failed()
                    pause = attempts.next_pause(retryable=retryable)
                else:
                    self._circuit.answered()
                    if response.status_code == 200:
                        return response
                    retryable = response.status_code in RETRYABLE_STATUSES
                    pause = attempts.next_pause(retryable=retryable, retry_after=retry_after_of(response))
                    if pause is None:
                        raise protocol.error_of(response, attempts.count)
            if pause is None:
                raise protocol.error_of_fault(fault, self.settings.url, attempts.count) from fault
            time.sleep(pause)
