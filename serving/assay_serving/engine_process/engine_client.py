"""The backend of an HTTP worker, whose models run in the engine process, or in several that are replicas.

Covers: `EngineClient`, which routes requests to replicas by prompt and holds them while no engine answers. Leaves out:
the connection to one engine (`engine_link`), the messages (`wire`), the other side (`engine_server`), noticing that an
engine hangs and changes of all replicas together (`supervisor`).

Each prompt has a home among the replicas (`routing`); another one takes it while its home is away, refuses it, or is
far behind. While no engine is there, requests wait for the next one up to their deadline, those in progress included:
scoring twice changes nothing. Then they fail with BusyError (503, Retry-After), as do at once administrators' orders
and what was in progress at `MOST_LOSSES` engines, because it may be what ends them.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any, TypeVar

from assay.errors import AssayError, BackendError, BusyError, ConflictError, LateError, RateLimitError
from assay_serving.engine_process import merging, wire
from assay_serving.engine_process.engine_link import EngineLink, EngineLostError
from assay_serving.routing import preference, prompt_bytes, prompt_key
from assay_serving.scorer import ModelInfo, ScoreItem
from assay_serving.server.core.scoring_backend import (
    ChatRequest,
    ChatResponse,
    Client,
    ScoreRequest,
    ScoreResponse,
    TokenRequest,
    TokenResponse,
)

T = TypeVar("T")

MOST_LOSSES = 3  #: engines that may end while one request is in progress
#: A replica is far behind with more than so many times the work of the least busy one, and so many characters.
BEHIND_TIMES, BEHIND_CHARACTERS = 2, 1 << 16

_GRACE_S = 5.0  # for the engine to report a timeout itself
_QUERY_S = 30.0  # for calls that need no model
_METRICS_S = 2.0
_BETWEEN_VERSIONS_S = 0.01  # before a replica that has not changed its model yet is asked again
_READS = ("status", "swap_status")  # orders that change nothing


class EngineClient:
    """A `ScoringBackend` at the other end of Unix sockets, one for each replica.

    `order`: gives an administrator's order to all replicas together; a single engine gets it from here.
    """

    def __init__(self, paths: Sequence[str], token: str, *, max_frame_bytes: int) -> None:
        names = [f"replica {number}" for number in range(1, len(paths) + 1)] if len(paths) > 1 else ["the engine"]
        self._links = [
            EngineLink(path, token, max_frame_bytes=max_frame_bytes, changed=self._changed, name=name)
            for name, path in zip(names, paths, strict=True)
        ]
        self._names = names
        self.draining = False
        self.order: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]] | None = None
        self._may_go_on = asyncio.Event()  # requests that wait for an engine: one accepts calls, or none will again

    @property
    def ready(self) -> bool:
        return not self.draining and any(link.ready for link in self._links)

    @property
    def state(self) -> str:
        """Ready, or why not, in a few words."""
        if self.draining:
            return "draining"
        return "ready" if self.ready else "; ".join(f"{link.name} is {link.state}" for link in self._links)

    async def start(self) -> None:
        for link in self._links:
            link.start()

    async def stop(self) -> None:
        self.drain()
        await asyncio.gather(*(link.stop() for link in self._links))

    def drain(self) -> None:
        """This worker accepts no new work and waits for no other engine; the engine still serves the others."""
        self.draining = True
        for link in self._links:
            link.closing()
        self._may_go_on.set()

    async def models(self) -> list[ModelInfo]:
        models: list[ModelInfo] = await self._query("models", None, list[ModelInfo])
        return models

    async def missing_models(self) -> dict[str, str]:
        """Those that no replica could load."""
        if len(self._links) == 1:
            reasons: dict[str, str] = await self._query("missing_models", None, dict[str, str])
            return reasons
        missing = [reasons for _, reasons in await self._of_all("missing_models", None, dict[str, str])]
        return {name: why for name, why in missing[0].items() if all(name in each for each in missing)}

    async def score(self, request: ScoreRequest) -> ScoreResponse:
        self._check_draining()
        deadline = time.monotonic() + request.timeout_s
        if len(self._links) == 1:
            return await self._score_part(request, deadline)
        async with self._limited(request.client, len(request.items)) as client:
            request = replace(request, client=client)
            parts = self._parts(request.items)
            if len(parts) == 1:
                return await self._score_part(request, deadline)
            requests = [replace(request, items=tuple(request.items[n] for n in part)) for part in parts]
            responses = await self._one_generation(requests, deadline)
        in_order = sorted(
            (n, result)
            for part, response in zip(parts, responses, strict=True)
            for n, result in zip(part, response.results, strict=True)
        )
        versions = dict.fromkeys(version for response in responses for version in response.version.split("+"))
        results, cached = tuple(result for _, result in in_order), sum(response.cached for response in responses)
        return ScoreResponse(responses[0].model, "+".join(versions), results, cached)

    async def chat(self, request: ChatRequest) -> ChatResponse:
        self._check_draining()
        async with self._limited(request.client, 1) as client:

            async def call(link: EngineLink, seconds: float) -> ChatResponse:
                argument = replace(request, timeout_s=seconds, client=client)
                response: ChatResponse = await link.call("chat", argument, ChatResponse, seconds + _GRACE_S)
                return response

            size = sum(len(message.text) for message in request.messages) + request.max_tokens
            key = prompt_bytes(request.messages[:1]) if len(self._links) > 1 else b""
            return await self._through_restarts(call, time.monotonic() + request.timeout_s, key, size)

    async def tokenize(self, request: TokenRequest) -> TokenResponse:
        self._check_draining()
        async with self._limited(request.client, 1) as client:
            response: TokenResponse = await self._query("tokenize", replace(request, client=client), TokenResponse)
        return response

    async def manage(self, order: dict[str, Any]) -> dict[str, Any]:
        """Without a time limit, because loading a model may take long, and only once: BusyError where the engine is
        away or ends meanwhile. With replicas: all of them change, or none does."""
        if len(self._links) == 1:
            outcome: dict[str, Any] = await self._links[0].call("manage", order, dict[str, Any], None)
            return outcome
        if order.get("action") in _READS:
            outcomes = await self._of_all("manage", order, dict[str, Any])
            return merging.merged_status([(self._links.index(link) + 1, outcome) for link, outcome in outcomes])
        if self.order is None:
            raise BusyError("the server is starting", retry_after=2)
        return await self.order(order)

    async def metrics(self) -> bytes:
        """Empty while the engine is away or hangs: the worker's own counters are still reported."""

        async def ask(link: EngineLink) -> bytes:
            try:
                text: bytes = await link.call("metrics", None, bytes, _METRICS_S)
            except (BusyError, LateError):
                return b""
            return text

        texts = await asyncio.gather(*(ask(link) for link in self._links))
        return texts[0] if len(texts) == 1 else merging.merged_metrics(texts, [link.ready for link in self._links])

    def _parts(self, items: Sequence[ScoreItem]) -> list[list[int]]:
        """The items' indexes by the replica that they go to: those of one prompt go together."""
        homes: dict[bytes, EngineLink | None] = {}
        parts: dict[EngineLink | None, list[int]] = {}
        loads = {link: link.load for link in self._links}
        key, before = b"", None
        for n, item in enumerate(items):
            if before is None or item.rendered is not None or item.prompt is not before.prompt:
                key, before = prompt_key(item), item
            if key not in homes:
                homes[key] = self._pick(key, loads)
            if (home := homes[key]) is not None:
                loads[home] += item.characters
            parts.setdefault(home, []).append(n)
        return list(parts.values())

    def _pick(self, key: bytes, loads: dict[EngineLink, int], refused: Sequence[EngineLink] = ()) -> EngineLink | None:
        """The replica for a prompt; None while none accepts calls. `refused`: those that refused it."""
        links = [link for link in self._links if link.accepting and link not in refused]
        links = [link for link in links if link.ready] or links
        if len(links) < 2:
            return links[0] if links else None
        most = BEHIND_TIMES * min(loads[link] for link in links) + BEHIND_CHARACTERS
        by_preference = [links[n] for n in preference(key, [link.name for link in links])]
        return next(link for link in by_preference if loads[link] <= most)

    async def _one_generation(self, requests: Sequence[ScoreRequest], deadline: float) -> list[ScoreResponse]:
        """The responses of all parts of a request. Those of replicas that had not yet made a change of models which
        others had made are computed again, so that the change is between requests, not within one."""
        responses = await _all(self._score_part(part, deadline) for part in requests)
        while len({response.generation for response in responses}) > 1:
            await asyncio.sleep(_BETWEEN_VERSIONS_S)
            newest = max(response.generation for response in responses)
            stale = [n for n, response in enumerate(responses) if response.generation < newest]
            again = await _all(self._score_part(requests[n], deadline) for n in stale)
            for n, response in zip(stale, again, strict=True):
                responses[n] = response
        return responses

    async def _score_part(self, request: ScoreRequest, deadline: float) -> ScoreResponse:
        async def call(link: EngineLink, seconds: float) -> ScoreResponse:
            argument = wire.shared_request(replace(request, timeout_s=seconds))
            return wire.score_response(await link.call("score", argument, wire.TypedResponse, seconds + _GRACE_S))

        several = len(self._links) > 1 and bool(request.items)
        size = sum(item.characters for item in request.items) if several else 0
        key = prompt_key(request.items[0]) if several else b""
        response = await self._through_restarts(call, deadline, key, size)
        if len(response.results) != len(request.items):
            raise BackendError(f"{len(response.results)} results for {len(request.items)} items")
        return response

    @asynccontextmanager
    async def _limited(self, client: Client, items: int) -> AsyncIterator[Client]:
        """The client as replicas get it: its limits are kept by one of them for all."""
        if len(self._links) == 1 or client.requests_per_minute is client.items_per_minute is None:
            yield client
            return
        key = client.name.encode()
        await self._query("reserve", (client, items, False), None, key)
        try:
            yield replace(client, requests_per_minute=None, items_per_minute=None)
        except AssayError as error:
            if not isinstance(error, BackendError):  # it was not processed
                with suppress(BusyError, LateError):
                    await self._query("reserve", (client, items, True), None, key)
            raise

    async def _of_all(self, method: str, argument: Any, result_type: Any) -> list[tuple[EngineLink, Any]]:
        """The results of those replicas that have one, of one at least; else raises the first one's error."""
        await self._until_accepted(time.monotonic() + _QUERY_S)
        links = [link for link in self._links if link.accepting]
        calls = [link.call(method, argument, result_type, _QUERY_S) for link in links]
        results = list(zip(links, await asyncio.gather(*calls, return_exceptions=True), strict=True))
        whole = [(link, result) for link, result in results if not isinstance(result, BaseException)]
        if not whole:
            raise results[0][1]
        return whole

    async def _query(self, method: str, argument: Any, result_type: Any, key: bytes = b"") -> Any:
        """A call that needs no model."""

        def call(link: EngineLink, seconds: float) -> Awaitable[Any]:
            return link.call(method, argument, result_type, seconds)

        return await self._through_restarts(call, time.monotonic() + _QUERY_S, key)

    async def _through_restarts(
        self, call: Callable[[EngineLink, float], Awaitable[T]], deadline: float, key: bytes, size: int = 0
    ) -> T:
        """The result of `call`, which gets an engine and the seconds that are left, and is made again at another one
        where one is lost meanwhile or too busy. Raises what it raises, BusyError where no engine is there in time."""
        losses = 0
        refused: dict[EngineLink, BusyError] = {}
        while True:
            await self._until_accepted(deadline)
            link = self._pick(key, {each: each.load for each in self._links}, tuple(refused))
            if link is None:
                if not refused:
                    continue  # it has just gone
                raise min(refused.values(), key=lambda error: error.retry_after or 0.0)
            try:
                with link.carrying(size):
                    return await call(link, max(0.0, deadline - time.monotonic()))
            except EngineLostError:
                losses += 1
                if self.draining or losses == MOST_LOSSES:
                    raise
            except (RateLimitError, ConflictError):
                raise
            except BusyError as error:
                if len(self._links) == 1:
                    raise
                refused[link] = error

    async def _until_accepted(self, deadline: float) -> None:
        """Returns when an engine accepts calls. Raises BusyError at the deadline, and while draining."""
        if self._accepting:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(deadline - time.monotonic()):
                while not (self._accepting or self.draining):
                    await self._may_go_on.wait()
                    await asyncio.sleep(0)  # the end of a connection that closes is noticed in the loop
        if not self._accepting:
            raise min((link.away() for link in self._links), key=lambda error: error.retry_after or 0.0)

    @property
    def _accepting(self) -> bool:
        return any(link.accepting for link in self._links)

    def _changed(self) -> None:
        if self._accepting or self.draining:
            self._may_go_on.set()
        else:
            self._may_go_on.clear()

    def _check_draining(self) -> None:
        if self.draining:
            raise BusyError("the server is draining", retry_after=2)


async def _all(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The results; after one error the other calls are cancelled."""
    tasks = [asyncio.create_task(call) for call in calls]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
