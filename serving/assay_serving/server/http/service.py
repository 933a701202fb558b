"""What all routes of one server share: the backend, the settings, the HTTP metrics, and one way to score.

Covers: limits on items, request deadlines, cancellation when the client disconnects, readiness and draining. Leaves
out: keys and bodies (`auth.middleware`), errors that the backend raises.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from fastapi import Request

from assay.http.problems import CLIENT_GONE, ProblemError, too_many_items
from assay_serving.scorer import ModelInfo, ScoreItem
from assay_serving.server.core.scoring_backend import (
    Client,
    Priority,
    ScoreRequest,
    ScoreResponse,
    ScoringBackend,
    TokenRequest,
    TokenResponse,
)
from assay_serving.server.core.settings import ServerSettings
from assay_serving.server.metrics.http_metrics import HttpMetrics

T = TypeVar("T")

WATCH_S = 0.2  #: of work, before anybody looks whether its client is still there
#: Statuses that a scoring route can answer besides 200.
SCORING_STATUSES = (401, 403, 404, 408, 413, 415, 422, 429, 503, 504)


class ScoringService:
    """Started and stopped by the application's lifespan. `settings` may be replaced at any time."""

    def __init__(self, backend: ScoringBackend, settings: ServerSettings) -> None:
        self.backend = backend
        self.settings = settings
        self.metrics = HttpMetrics()
        self.draining = False
        #: Reloads the configuration: `Reloader.reload` of this process or of its supervisor.
        self.reload: Callable[[str, str | None], Awaitable[dict[str, Any]]] | None = None

    async def start(self) -> None:
        await self.backend.start()

    async def stop(self) -> None:
        self.drain()
        await self.backend.stop()

    def drain(self) -> None:
        """Accept no new work; queued requests are still answered."""
        self.draining = True
        self.backend.drain()

    @property
    def ready(self) -> bool:
        return not self.draining and self.backend.ready

    @property
    def state(self) -> str:
        """Ready, or why not, in a few words. A backend in another process has a `state` that says more."""
        if self.ready:
            return "ready"
        return "draining" if self.draining else str(getattr(self.backend, "state", "not ready"))

    async def score(
        self,
        request: Request,
        items: Sequence[ScoreItem],
        *,
        model: str | None = None,
        priority: Priority = Priority.INTERACTIVE,
        timeout_s: float | None = None,
        any_name: bool = False,
    ) -> ScoreResponse:
        """The items' results. `timeout_s`: the client's own limit, within the server's. `any_name`: see `ScoreRequest`.

        Raises ProblemError for too many items or a client that disconnected, and what the backend raises.
        """
        settings = self.settings
        if len(items) > settings.max_items:
            raise too_many_items(len(items), settings.max_items)
        longest = settings.max_item_characters
        for index, item in enumerate(items):
            if item.characters > longest:
                raise ProblemError(
                    413, f"item {index} has {item.characters} characters; one may have {longest}", code="item_too_large"
                )
        limit = settings.request_timeout_s
        timeout = limit if timeout_s is None else min(timeout_s, limit)
        state = request.scope["state"]  # of the middleware
        score_request = ScoreRequest(
            tuple(items), model, priority, timeout, state["client"], state["request_id"], any_name
        )
        response = await until_disconnect(request, self.backend.score(score_request))
        state.update(model=response.model, items=len(response.results), cached=response.cached)  # for the log
        return response

    async def models(self, request: Request, name: str | None = None) -> list[ModelInfo]:
        """The served models that the client may use; with `name` only that one.

        Raises ForbiddenError for the name of another.
        """
        client: Client = request.scope["state"]["client"]
        if name is not None:
            client.check(name)
        infos = await self.backend.models()
        return [info for info in infos if client.may_use(info.name) and name in (None, info.name)]

    async def missing_models(self, request: Request) -> dict[str, str]:
        """See `ScoringBackend`; those that the client may use."""
        client: Client = request.scope["state"]["client"]
        reasons = await self.backend.missing_models()
        return {name: reason for name, reason in reasons.items() if client.may_use(name)}

    async def metrics_text(self, request: Request) -> bytes:
        """Prometheus text. Raises ForbiddenError for a client that is limited to models: it names all of them."""
        client: Client = request.scope["state"]["client"]
        if client.models is not None:
            raise client.refusal("the metrics of all models")
        return self.metrics.text() + await self.backend.metrics()

    async def tokenize(self, request: Request, tokens: TokenRequest) -> TokenResponse:
        """By the tokenizer of the model that the request names, within the limits of one item.

        Raises ProblemError for a request that is too long, and what the backend raises.
        """
        longest = self.settings.max_item_characters
        size = sum(map(len, tokens.texts or ())) + sum(len(turn.text) for turn in tokens.messages or ())
        size += sum(map(len, tokens.ids or ()))
        if size > longest:
            raise ProblemError(413, f"{size} characters or tokens; a request may have {longest}", code="item_too_large")
        client = request.scope["state"]["client"]
        return await self.backend.tokenize(replace(tokens, client=client))


async def until_disconnect(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The work's result; it is cancelled when the client disconnects, and then a ProblemError is raised."""
    try:
        async with asyncio.timeout(None) as limit:
            watch = DisconnectWatch(request, limit)
            try:
                return await work
            finally:
                watch.end()
    except TimeoutError:
        if limit.expired():
            raise ProblemError(CLIENT_GONE, "the client is gone") from None
        raise


class DisconnectWatch:
    """Ends `limit` when the client disconnects; begins after `WATCH_S`, before which most work is done."""

    def __init__(self, request: Request, limit: asyncio.Timeout) -> None:
        self._request, self._limit = request, limit
        self._task: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(WATCH_S, self._begin)

    def end(self) -> None:
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def _begin(self) -> None:
        self._task = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        while (await self._request.receive())["type"] != "http.disconnect":
            pass
        self._limit.reschedule(0.0)
