"""The asynchronous reward client: batches, keep-alive connections, bounded concurrency."""

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

import httpx

from assay.domain import Prompt, Response
from assay.errors import AssayError
from assay.score import ScoreResult
from assay_serving.client import protocol
from assay_serving.client.base import ClientBase, Exchange
from assay_serving.client.connection import Pools
from assay_serving.client.principles import PrincipleUse
from assay_serving.preference import Preference, Ranking, rank
from assay_serving.scorer import ModelInfo, ScoreItem

T = TypeVar("T")


@dataclass
class _Connections:
    """The connections of one event loop in one process."""

    process: int
    pools: Pools[httpx.AsyncClient]
    slots: asyncio.Semaphore


class AsyncRewardClient(ClientBase):
    """Scores through a reward server. Use as an async context manager, or call `aclose`.

    One client serves any number of event loops, sequentially or concurrently, and can be pickled and used after
    a fork: each loop of each process has its own connections. Arguments are those of `RewardClient`.
    """

    def _begin(self) -> None:
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, _Connections] = WeakKeyDictionary()

    async def score(self, items: Sequence[ScoreItem]) -> list[ScoreResult]:
        """One result per item, in order. See `RewardClient.score`."""
        return await self._batch(protocol.score_call(items, self.settings))

    async def score_group(
        self,
        prompt: str | Prompt,
        responses: Sequence[Response],
        *,
        principle: str | None = None,
        references: Sequence[str] = (),
        label: str | None = None,
    ) -> list[ScoreResult]:
        """Scores of several responses to one prompt. `references`, `label`: see `ScoreItem`."""
        return await self.score(
            protocol.group_items(prompt, responses, principle=principle, references=references, label=label)
        )

    async def score_steps(self, responses: Sequence[tuple[str | Prompt, Sequence[str]]]) -> list[ScoreResult]:
        """Scores of (prompt, steps) each, by a process reward model: `Score.steps` are the log-odds of each step."""
        return await self.score([ScoreItem.of_steps(protocol.as_prompt(prompt), steps) for prompt, steps in responses])

    async def compare(
        self, prompt: str | Prompt, a: Response, b: Response, *, principle: str | None = None
    ) -> Preference:
        """Which of two responses is preferred, by how much and how surely."""
        (pair,) = await self.compare_pairs([(prompt, a, b)], principle=principle)
        return pair

    async def compare_pairs(
        self, pairs: Sequence[tuple[str | Prompt, Response, Response]], *, principle: str | None = None
    ) -> list[Preference]:
        """See `RewardClient.compare_pairs`."""
        return await self._batch(protocol.compare_call(pairs, principle, self.settings))

    async def rank(
        self,
        prompt: str | Prompt,
        responses: Sequence[Response],
        *,
        principle: str | None = None,
        tie_margin: float = 0.0,
    ) -> Ranking:
        """The responses in order, those without a score last; see `assay_serving.preference.rank`."""
        return rank(await self.score_group(prompt, responses, principle=principle), tie_margin)

    async def principles(self) -> list[PrincipleUse]:
        """What each served model does with principles."""
        return protocol.read_principles(await self._send(self._exchange("GET", protocol.PRINCIPLES)))

    async def models(self) -> list[ModelInfo]:
        """What the server serves."""
        return protocol.read_models(await self._send(self._exchange("GET", protocol.MODELS)))

    async def post(self, path: str, body: dict[str, Any], *, key: bytes = b"") -> httpx.Response:
        """See `RewardClient.post`."""
        async with self._here().slots:
            return await self._send(self._exchange("POST", path, body, key=key))

    async def wait_until_ready(self, timeout: float = 300.0, *, unreachable: float | None = None) -> None:
        """Return once the server would score; raises BackendError after `timeout` seconds, and after `unreachable`
        where nothing has answered at the address."""
        await self._send(self._until_ready(timeout, unreachable))

    async def aclose(self) -> None:
        """Close the connections of this event loop. The client can be used again; it then opens new ones."""
        connections = self._by_loop.pop(asyncio.get_running_loop(), None)
        if connections is not None and connections.process == os.getpid():
            for client in connections.pools.clients:
                await client.aclose()

    async def __aenter__(self) -> "AsyncRewardClient":
        return self

    async def __aexit__(self, *_: object) -> None:
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

    async def _batch(self, call: protocol.BatchCall[T]) -> list[T]:
        """All requests of a call, concurrently."""

        async def ask(run: Sequence[protocol.Entry]) -> list[T]:
            try:
                return call.read(await self.post(call.path, call.body(run), key=call.key(run)), run)
            except AssayError as error:
                return call.failures(error, run)

        rounds = call.rounds()
        numbers = next(rounds)
        while True:
            tasks = [asyncio.create_task(ask(call.runs[number])) for number in numbers]
            try:
                numbers = rounds.send(await asyncio.gather(*tasks))
            except StopIteration as end:
                return cast(list[T], end.value)
            finally:
                for task in tasks:  # after one error the others are not needed
                    task.cancel()

    async def _send(self, steps: Exchange) -> httpx.Response:
        outcome: httpx.Response | httpx.TransportError | None = None
        while True:
            try:
                step = steps.send(outcome)
            except StopIteration as end:
                return cast(httpx.Response, end.value)
            if not isinstance(step, dict):
                await asyncio.sleep(step)
                continue
            try:
                with self._here().pools.least_busy() as client:
                    outcome = await client.request(**step)
            except httpx.TransportError as error:
                outcome = error
