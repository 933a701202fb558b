"""The asynchronous reward client: batch first, one pool of kept-alive connections, bounded concurrency."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import httpx

from assay.domain import Prompt
from assay.errors import AssayError, BackendError
from assay.score import ScoreResult
from assay_serving.client import protocol
from assay_serving.client.connection import ConnectionSettings
from assay_serving.client.retries import RETRYABLE_FAULTS, RETRYABLE_STATUSES, Attempts, retry_after_of
from assay_serving.scorer import ModelInfo, ScoreItem


class AsyncRewardClient:
    """Scores through a reward server. Use as an async context manager, or call `aclose`.

    Arguments are those of `RewardClient`.
    """

    def __init__(self, url: str, **options: Any) -> None:
        self.settings = ConnectionSettings(url, **options)
        self._pools = self.settings.pools(httpx.AsyncClient)
        self._slots = asyncio.Semaphore(self.settings.max_concurrency)

    async def score(self, items: Sequence[ScoreItem]) -> list[ScoreResult]:
        """One result per item, in order. See `RewardClient.score`."""
        refused = [protocol.unsendable(item) for item in items]
        sent = [item for item, failure in zip(items, refused, strict=True) if failure is None]
        runs = protocol.cut(sent, self.settings.max_items_per_request)
        tasks = [asyncio.create_task(self._score_run(run)) for run in runs]
        try:
            parts = await asyncio.gather(*tasks)
        finally:
            for task in tasks:  # after one error the others would only cost
                task.cancel()
        return protocol.put_in_place(refused, [result for part in parts for result in part])

    async def score_group(
        self, prompt: str | Prompt, responses: Sequence[str], *, principle: str | None = None
    ) -> list[ScoreResult]:
        """Scores of several responses to one prompt."""
        shared = protocol.as_prompt(prompt)
        return await self.score([ScoreItem(shared, response, principle) for response in responses])

    async def models(self) -> list[ModelInfo]:
        """What the server serves."""
        return protocol.read_models(await self._send("GET", protocol.MODELS))

    async def wait_until_ready(self, timeout: float = 300.0) -> None:
        """Return once the server would score; raises BackendError after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        reason = "no answer"
        while (left := deadline - time.monotonic()) > 0:
            try:
                response = await self._pools.clients[0].get(protocol.READY, timeout=min(5.0, left))
                if response.status_code == 200:
                    return
                if response.status_code not in RETRYABLE_STATUSES:
                    raise protocol.error_of(response, 1)
                reason = str(protocol.error_of(response, 1))
            except httpx.TransportError as error:
                reason = str(protocol.error_of_fault(error, self.settings.url, 1))
            await asyncio.sleep(min(0.25, max(0.0, deadline - time.monotonic())))
        raise BackendError(f"{self.settings.url} is not ready after {timeout:g} s: {reason}")

    async def aclose(self) -> None:
        for client in self._pools.clients:
            await client.aclose()

    async def __aenter__(self) -> AsyncRewardClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _score_run(self, items: Sequence[ScoreItem]) -> list[ScoreResult]:
        body = protocol.score_body(items, self.settings.model)
        try:
            async with self._slots:
                response = await self._send("POST", protocol.SCORE, body)
            return protocol.read_scores(response, len(items))
        except AssayError as error:
            if not self.settings.failures_in_place:
                raise
            return protocol.failures_of(error, len(items), self.settings.model)

    async def _send(self, method: str, path: str, body: dict[str, Any] | None = None) -> httpx.Response:
        attempts = Attempts(self.settings.policy)
        while True:
            pause: float | None
            try:
                timeout = self.settings.timeout_within(attempts.remaining)
                with self._pools.least_busy() as client:
                    response = await client.request(method, path, json=body, timeout=timeout)
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
            await asyncio.sleep(pause)
