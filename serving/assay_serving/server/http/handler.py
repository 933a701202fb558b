"""From a route to the host and back: what every route and dialect that scores has in common.

Covers: how many items a request may hold, who asks, the caller hanging up. Leaves out: keys and bodies (`gate`), what
the host refuses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from fastapi import Request

from assay.http.problems import CLIENT_GONE, ProblemError, request_id_of, too_many_items
from assay_serving.scorer import ScoreItem
from assay_serving.server.core.scoring_backend import Client, Priority, ScoreAnswer, ScoreRequest
from assay_serving.server.http.state import Service

T = TypeVar("T")


async def answer(
    service: Service,
    request: Request,
    items: Sequence[ScoreItem],
    *,
    model: str | None = None,
    priority: Priority = Priority.INTERACTIVE,
    timeout_s: float | None = None,
) -> ScoreAnswer:
    """The items' results. `timeout_s`: the caller's own limit, within the server's.

    Raises ProblemError for too many items or a caller that hung up, and what the host raises.
    """
    if len(items) > service.settings.max_items:
        raise too_many_items(len(items), service.settings.max_items)
    longest = service.settings.max_item_characters
    for place, item in enumerate(items):
        if item.characters > longest:
            raise ProblemError(
                413, f"item {place} has {item.characters} characters; one may have {longest}", code="item_too_large"
            )
    limit = service.settings.request_timeout_s
    timeout = limit if timeout_s is None else min(timeout_s, limit)
    asked = ScoreRequest(tuple(items), model, priority, timeout, client_of(request), request_id_of(request))
    found = await unless_hung_up(request, service.host.score(asked))
    request.scope["state"].update(model=found.model, items=len(found.results), cached=found.cached)  # for the log
    return found


def client_of(request: Request) -> Client:
    """Who asks, as the gate found out."""
    found = request.scope.get("state", {}).get("client")
    return found if isinstance(found, Client) else Client()


async def unless_hung_up(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The work's result; it is cancelled when the caller hangs up, and then a ProblemError is raised."""
    task = asyncio.ensure_future(work)
    hang_up = asyncio.ensure_future(_hung_up(request))
    try:
        await asyncio.wait({task, hang_up}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ProblemError(CLIENT_GONE, "the client is gone")
    finally:
        hang_up.cancel()
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def _hung_up(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
