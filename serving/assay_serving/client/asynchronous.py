"""The asynchronous reward client: batches, keep-alive connections, bounded concurrency."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import httpx

from assay.domain import Prompt
from assay.errors import AssayError, BackendError
from assay.score import ScoreResult
from assay_serving.client import protocol
from assay_serving.client.circuit import Circuit
from assay_serving.client.connection import ConnectionSettings, Pools
from assay_serving.client.principles import PrincipleUse
from assay_serving.client.retries import RETRYABLE_FAULTS, RETRYABLE_STATUSES, Attempts, request_id, retry_after_of
from assay_serving.preference import Preference, Ranking, rank
from assay_serving.scorer import ModelInfo, ScoreItem

T = TypeVar("T")


@dataclass
class _Connections:
    """The connections of one event loop in one process."""

    process: int
    pools: Pools[httpx.AsyncClient]
    slots: asyncio.Semaphore


class AsyncRewardClient:
    """Scores through a reward server. Use as an async context manager, or call `aclose`.

    One client serves any number of event loops, sequentially or concurrently, and can be pickled and used after
    a fork: each loop of each process has its own connections. Arguments are those of `RewardClient`.
    """

    def __init__(self, url: str, **options: Any) -> None:
        self.settings = ConnectionSettings(url, **options)
        self._begin()

    def _begin(self) -> None:
        self._circuit = Circuit()
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, _Connections] = WeakKeyDictionary()

    def __getstate__(self) -> ConnectionSettings:
        return self.settings

    def __setstate__(self, settings: ConnectionSettings) -> None:
        self.settings = settings
        self._begin()

    async def score(self, items: Sequence[ScoreItem]) -> list[ScoreResult]:
        """One result per item, in order. See `RewardClient.score`."""
        refused = [protocol.unsendable(item) for item in items]
        sent = [item for item, failure in zip(items, refused, strict=True) if failure is None]
        runs = protocol.cut(sent, self.settings.max_items_per_request)
        parts = await _concurrently([self._score_run(run) for run in runs])
        return protocol.put_in_place(refused, [result for part in parts for result in part])

    async def score_group(
        self,
        prompt: str | Prompt,
        responses: Sequence[str],
        *,
        principle: str | None = None,
        references: Sequence[str] = (),
        label: str | None = None,
    ) -> list[ScoreResult]:
        """Scores of several responses to one prompt. `references`, `label`: see `ScoreItem`."""
        return await self.score(
            protocol.group_items(prompt, responses, principle=principle, references=references, label=label)
        )

    async def score_principles(
        self, prompt: str | Prompt, responses: Sequence[str], principles: Sequence[str]
    ) -> dict[str, list[ScoreResult]]:
        """Scores of the responses by each of the principles."""
        items = protocol.group_items(prompt, responses)
        return protocol.by_principle(items, principles, await self.score(protocol.judged_by(items, principles)))

    async def compare(self, prompt: str | Prompt, a: str, b: str, *, principle: str | None = None) -> Preference:
        """Which of two responses is preferred, by how much and how surely."""
        (pair,) = await self.compare_pairs([(prompt, a, b)], principle=principle)
        return pair

    async def compare_pairs(
        self, pairs: Sequence[tuple[str | Prompt, str, str]], *, principle: str | None = None
    ) -> list[Preference]:
        """See `RewardClient.compare_pairs`."""
        item_pairs = protocol.pair_items(pairs, principle)
        refused = [protocol.refused_pair(pair) for pair in item_pairs]
        sent = [pair for pair, failure in zip(item_pairs, refused, strict=True) if failure is None]
        runs = protocol.cut_pairs(sent, self.settings.max_items_per_request)
        parts = await _concurrently([self._compare_run(run) for run in runs])
        preferences = (preference for part in parts for preference in part)
        return [failure if failure is not None else next(preferences) for failure in refused]

    async def rank(
        self,
        prompt: str | Prompt,
        responses: Sequence[str],
        *,
        principle: str | None = None,
        tie_margin: float = 0.0,
    ) -> Ranking:
        """The responses in order, those without a score last; see `assay_serving.preference.rank`."""
        return rank(await self.score_group(prompt, responses, principle=principle), tie_margin)

    async def principles(self) -> list[PrincipleUse]:
        """What each served model does with principles."""
        return protocol.read_principles(await self._send("GET", protocol.PRINCIPLES))

    async def models(self) -> list[ModelInfo]:
        """What the server serves."""
        return protocol.read_models(await self._send("GET", protocol.MODELS))

    async def post(self, path: str, body: dict[str, Any]) -> httpx.Response:
        """The 200 reply of any route of the server, under the same limits, tries and errors as the client's own."""
        async with self._here().slots:
            return await self._send("POST", path, body)

    async def wait_until_ready(self, timeout: float = 300.0) -> None:
        """Return once the server would score; raises BackendError after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        reason = "no answer"
        while (remaining := deadline - time.monotonic()) > 0:
            try:
                response = await self._here().pools.clients[0].get(protocol.READY, timeout=min(5.0, remaining))
                if response.status_code == 200:
                    self._circuit.answered()
                    return
                if response.status_code not in RETRYABLE_STATUSES:
                    raise protocol.error_of(response, 1)
                reason = str(protocol.error_of(response, 1))
            except httpx.TransportError as error:
                reason = str(protocol.error_of_fault(error, self.settings.url, 1))
            await asyncio.sleep(min(0.25, max(0.0, deadline - time.monotonic())))
        raise BackendError(f"{self.settings.url} is not ready after {timeout:g} s: {reason}")

    async def aclose(self) -> None:
        """Close the connections of this event loop. The client can be used again; it then opens new ones."""
        connections = self._by_loop.pop(asyncio.get_running_loop(), None)
        if connections is not None and connections.process == os.getpid():
            for client in connections.pools.clients:
                await client.aclose()

    async def __aenter__(self) -> AsyncRewardClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _here(self) -> _Connections:
        """The connections of the running loop. Those of closed loops are dropped."""
        loop = asyncio.get_running_loop()
        connections = self._by_loop.get(loop)
        if connections is None or connections.process != os.getpid():
            for other in [other for other in self._by_loop if other.is_closed()]:
                self._by_loop.pop(other, None)
            pools = self.settings.pools(httpx.AsyncClient)
            connections = _Connections(os.getpid(), pools, asyncio.Semaphore(self.settings.max_concurrency))
            self._by_loop[loop] = connections
        return connections

    async def _score_run(self, items: Sequence[ScoreItem]) -> list[ScoreResult]:
        try:
            response = await self.post(protocol.SCORE, protocol.score_body(items, self.settings))
            return protocol.read_scores(response, len(items))
        except AssayError as error:
            if not self.settings.failures_in_place:
                raise
            return protocol.failures_of(error, len(items), self.settings.model)

    async def _compare_run(self, pairs: Sequence[tuple[ScoreItem, ScoreItem]]) -> list[Preference]:
        try:
            response = await self.post(protocol.COMPARE, protocol.compare_body(pairs, self.settings))
            return protocol.read_preferences(response, len(pairs))
        except AssayError as error:
            if not self.settings.failures_in_place:
                raise
            return protocol.failed_pairs(error, len(pairs), self.settings.model)

    async def _send(self, method: str, path: str, body: dict[str, Any] | None = None) -> httpx.Response:
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
                    with self._here().pools.least_busy() as client:
                        response = await client.request(method, path, json=body, headers=headers, timeout=timeout)
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
            await asyncio.sleep(pause)


async def _concurrently(coroutines: Sequence[Coroutine[Any, Any, list[T]]]) -> list[list[T]]:
    """The results, in order."""
    tasks = [asyncio.create_task(each) for each in coroutines]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:  # after one error the others are not needed
            task.cancel()
