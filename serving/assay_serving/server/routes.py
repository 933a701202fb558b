"""The native routes: scores, models, health, readiness, metrics.

Leaves out: keys, limits and logs (`gate`), the models (`host`).
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from assay.score import Score
from assay_serving.server.bodies import ModelsReply, ProblemBody, ScoreBody, ScoreReply
from assay_serving.server.problems import ProblemError, request_id_of
from assay_serving.server.scoring import answer
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
        found = await answer(service, request, body.score_items(), model=body.model)
        scores = [result for result in found.results if isinstance(result, Score)]
        return JSONResponse(
            {
                "model": found.model,
                "version": found.version,
                "results": [result.to_dict() for result in found.results],
                "usage": {
                    "items": len(found.results),
                    "failed": len(found.results) - len(scores),
                    "tokens": sum(s.tokens for s in scores),
                },
                "request_id": request_id_of(request),
            }
        )

    @router.get("/v1/models", response_model=None, responses={200: {"model": ModelsReply}})
    async def models() -> Response:
        """The served models, with what is needed to interpret and reproduce their scores."""
        data = [{"id": info.name, "object": "model", **info.to_dict()} for info in await service.host.models()]
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
        return {"status": "ready", "models": [info.name for info in await service.host.models()]}

    @router.get("/metrics", response_class=Response)
    async def metrics() -> Response:
        """Prometheus text format."""
        return Response(
            service.metrics.text() + await service.host.metrics(), media_type="text/plain; version=1.0.0; charset=utf-8"
        )

    return router
