"""The native routes: scores, models, health, readiness, metrics.

Leaves out: keys, limits and logs (`gate`), the engine's queue (`coalescing`).
"""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from assay.score import Score, ScoreResult
from assay_serving.scorer import ScoreItem
from assay_serving.server.bodies import ModelsReply, ProblemBody, ScoreBody, ScoreReply
from assay_serving.server.coalescing import Coalescer
from assay_serving.server.problems import CLIENT_GONE, ProblemError, request_id_of
from assay_serving.server.service import Service

_STATUSES = {401: "no or unknown key", 404: "no such model", 413: "body too large", 422: "wrong input"}
_BUSY = {503: "queue full, not ready or draining; see Retry-After", 504: "not scored in time"}
PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": ProblemBody, "description": text} for status, text in (_STATUSES | _BUSY).items()
}


def native_routes(service: Service) -> APIRouter:
    """Routes over one service."""
    router = APIRouter()

    @router.post("/v1/score", response_model=None, responses={200: {"model": ScoreReply}, **PROBLEMS})
    async def score(body: ScoreBody, request: Request) -> Response:
        """Score responses. An item that cannot be scored has an `error` in its place; the others have their scores."""
        queue = service.queue_for(body.model)
        items = body.score_items()
        if len(items) > service.settings.max_items:
            raise ProblemError(
                413, f"{len(items)} items; one request may hold {service.settings.max_items}", code="too_many_items"
            )
        results = await answer_of(queue, items, request, service.settings.request_timeout_s)
        info = queue.scorer.info
        scores = [result for result in results if isinstance(result, Score)]
        return JSONResponse(
            {
                "model": queue.name,
                "version": info.version,
                "results": [result.to_dict() for result in results],
                "usage": {
                    "items": len(results),
                    "failed": len(results) - len(scores),
                    "tokens": sum(s.tokens for s in scores),
                },
                "request_id": request_id_of(request),
            }
        )

    @router.get("/v1/models", response_model=None, responses={200: {"model": ModelsReply}})
    async def models() -> Response:
        """The served models, with what is needed to interpret and reproduce their scores."""
        data = [
            {"id": name, "object": "model", **scorer.info.to_dict(), "name": name}
            for name, scorer in service.scorers.items()
        ]
        return JSONResponse({"object": "list", "data": data})

    @router.get("/healthz")
    async def healthz() -> dict[str, str]:
        """The process answers. Says nothing of the models: that is /readyz."""
        return {"status": "ok"}

    @router.get("/readyz", responses={503: {"model": ProblemBody}})
    async def readyz() -> dict[str, Any]:
        """200 when requests would be scored now, 503 before and while draining."""
        if not service.ready:
            state = "draining" if service.draining else "not ready"
            raise ProblemError(503, state, code=state.replace(" ", "_"), headers={"Retry-After": "1"})
        return {"status": "ready", "models": list(service.scorers)}

    @router.get("/metrics", response_class=Response)
    async def metrics() -> Response:
        """Prometheus text format."""
        return Response(service.metrics.text(), media_type="text/plain; version=1.0.0; charset=utf-8")

    return router


async def answer_of(queue: Coalescer, items: list[ScoreItem], request: Request, timeout_s: float) -> list[ScoreResult]:
    """The items' results; what waits is dropped when the client hangs up or the time is over (then a ProblemError)."""
    pending = queue.put(items)
    hang_up = asyncio.create_task(_hung_up(request))
    ends: set[asyncio.Future[Any]] = {pending.done, hang_up}
    try:
        await asyncio.wait(ends, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if pending.done.done():
            return pending.done.result()
        if hang_up.done():
            raise ProblemError(CLIENT_GONE, "the client is gone")
        raise ProblemError(504, f"not scored within {timeout_s:g} s")
    finally:
        hang_up.cancel()
        queue.drop(pending)


async def _hung_up(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
