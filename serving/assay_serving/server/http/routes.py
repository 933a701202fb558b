"""The native routes: scores, comparisons, ranks, principles, models, health, readiness, metrics.

Leaves out: keys, limits and logs (`auth.middleware`), the models (the backend), administration (`admin_routes`).
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, TypeVar

from fastapi import APIRouter, Request, Response

from assay.http.problems import ProblemError, responses
from assay.score import Score
from assay_serving.preference import PairRule, prefer, rank
from assay_serving.scorer import TAKES_NO_PRINCIPLE, ModelInfo
from assay_serving.server.core.scoring_backend import ScoreResponse
from assay_serving.server.http.json_route import JsonRoute, described, json_reply
from assay_serving.server.http.replies import FIELDS, REPLIES
from assay_serving.server.http.request_bodies import CompareBody, RankBody, ScoreBody
from assay_serving.server.http.service import SCORING_STATUSES, ScoringService
from assay_serving.server.models.missing_models import missing_model_error

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])

_described = partial(described, about=FIELDS)
READY_S = 0.6  #: for the engine to name its models, until it is not ready


def native_routes(service: ScoringService) -> APIRouter:
    """Routes over one service."""
    router = APIRouter(route_class=JsonRoute)

    def scoring(operation: str, reply: Any) -> Callable[[Endpoint], Endpoint]:
        described = _described(reply, *SCORING_STATUSES)
        return router.post(f"/v1/{operation}", operation_id=operation, tags=["scores"], responses=described)

    @scoring("score", REPLIES["score"])
    async def score(body: ScoreBody, request: Request) -> Response:
        """Score responses. An item that cannot be scored has an `error` in its place; the others have their scores."""
        items = body.score_items()
        response = await service.score(request, items, model=body.model, priority=body.rank, timeout_s=body.timeout)
        results = [result.to_dict() for result in response.results]
        if body.principles is None:
            return _reply(response, request, {"results": results})
        each = len(results) // len(body.principles)
        by_principle = [
            {"principle": principle, "results": results[number * each : (number + 1) * each]}
            for number, principle in enumerate(body.principles)
        ]
        return _reply(response, request, {"results": [], "by_principle": by_principle})

    @scoring("compare", REPLIES["compare"])
    async def compare(body: CompareBody, request: Request) -> Response:
        """Which of two responses is preferred, by how much and how surely, for each of the pairs."""
        items = [item for pair in body.pairs for item in pair.items()]
        response = await service.score(request, items, model=body.model, priority=body.rank, timeout_s=body.timeout)
        rule = _pair_rule(response, await service.models(request))
        pairs = zip(response.results[::2], response.results[1::2], strict=True)
        return _reply(response, request, {"results": [prefer(a, b, rule).to_dict() for a, b in pairs]})

    @scoring("rank", REPLIES["rank"])
    async def rank_responses(body: RankBody, request: Request) -> Response:
        """The responses in order, best first; those without a score last, with their reason and without a rank."""
        response = await service.score(
            request, body.items(), model=body.model, priority=body.rank, timeout_s=body.timeout
        )
        return _reply(response, request, rank(response.results, body.tie_margin).to_dict())

    @router.get(
        "/v1/principles",
        operation_id="principles",
        tags=["models"],
        responses=_described(REPLIES["principles"], 401, 403, 404, 422, 429, 503),
    )
    async def principles(request: Request, model: str | None = None) -> Response:
        """Served models and principles: which use them, their question, principles of their training."""
        infos = await service.models(request) if model is None else [await _model_info(service, request, model)]
        return json_reply({"object": "list", "data": [_principles(info) for info in infos]})

    @router.get(
        "/v1/models",
        operation_id="list_models",
        tags=["models"],
        responses=_described(REPLIES["models"], 401, 403, 429, 503),
    )
    async def models(request: Request) -> Response:
        """The served models, with what is needed to interpret and reproduce their scores."""
        data = [_model(info) for info in await service.models(request)]
        return json_reply({"object": "list", "data": data, **_not_ready(await service.missing_models(request))})

    @router.get(
        "/v1/models/{name:path}",
        operation_id="get_model",
        tags=["models"],
        responses=_described(REPLIES["model"], 401, 403, 404, 422, 429, 503),
    )
    async def model(name: str, request: Request) -> Response:
        """One served model."""
        return json_reply(_model(await _model_info(service, request, name)))

    @router.get("/healthz", operation_id="health", tags=["server"], responses=_described(REPLIES["health"], 401))
    async def healthz() -> Response:
        """Liveness of the process, independent of the models (see /readyz)."""
        return json_reply({"status": "ok"})

    @router.get("/readyz", operation_id="ready", tags=["server"], responses=_described(REPLIES["ready"], 401, 503))
    async def readyz(request: Request) -> Response:
        """200 when requests would be scored now, 503 before and while draining. Models that could not be loaded again
        after a crash are in `not_ready`; the others are served. Replies within a second, also where the engine
        hangs."""
        if not service.ready:
            code = "draining" if service.draining else "not_ready"
            raise ProblemError(503, service.state, code=code, headers={"Retry-After": "1"})
        try:
            async with asyncio.timeout(READY_S):
                names = [info.name for info in await service.models(request)]
                missing = await service.missing_models(request)
        except TimeoutError:
            detail = "the engine does not answer"
            raise ProblemError(503, detail, code="not_ready", headers={"Retry-After": "1"}) from None
        return json_reply({"status": "ready", "models": names, **_not_ready(missing)})

    @router.get(
        "/metrics",
        operation_id="metrics",
        tags=["server"],
        response_class=Response,
        responses={
            200: {
                "description": "Prometheus text format.",
                "content": {
                    "text/plain": {"schema": {"type": "string"}, "example": 'assay_items_total{model="rm"} 2.0'}
                },
            },
            **responses(401, 403, 503),
        },
    )
    async def metrics(request: Request) -> Response:
        """Prometheus text format."""
        text = await service.metrics_text(request)
        return Response(text, media_type="text/plain; version=1.0.0; charset=utf-8")

    return router


def _reply(response: ScoreResponse, request: Request, payload: dict[str, Any]) -> Response:
    """The reply of a scoring route: `payload` with what all of them have."""
    scores = [result for result in response.results if isinstance(result, Score)]
    usage = {
        "items": len(response.results),
        "failed": len(response.results) - len(scores),
        "tokens": sum(score.tokens for score in scores),
        "cached": response.cached,
    }
    head = {"model": response.model, "version": response.version}
    return json_reply({**head, **payload, "usage": usage, "request_id": request.scope["state"]["request_id"]})


def _pair_rule(response: ScoreResponse, infos: list[ModelInfo]) -> PairRule:
    """Of the model that answered; none where another version has taken its name since."""
    info = next((info for info in infos if (info.name, info.version) == (response.model, response.version)), None)
    return PairRule.of(info) if info is not None else PairRule()


async def _model_info(service: ScoringService, request: Request, name: str) -> ModelInfo:
    for info in await service.models(request, name):
        return info
    if (reason := (await service.missing_models(request)).get(name)) is not None:
        raise missing_model_error(name, reason)
    served = [info.name for info in await service.models(request)]
    raise ProblemError(404, f"no such model; served: {', '.join(served) or 'none'}")


def _not_ready(missing: dict[str, str]) -> dict[str, Any]:
    """The field of a reply that lists missing models; empty without any."""
    return {"not_ready": [{"id": name, "reason": reason} for name, reason in missing.items()]} if missing else {}


def _model(info: ModelInfo) -> dict[str, Any]:
    return {"id": info.name, "object": "model", **info.to_dict()}


def _principles(info: ModelInfo) -> dict[str, Any]:
    """What one model does with principles."""
    use: Literal["required", "optional", "refused"] = "refused"
    reason: str | None = f"a {info.kind} model judges by what it was trained on, and takes no principle"
    if info.kind in ("principle", "generative"):
        use = "required" if info.kind == "principle" else "optional"
        reason = None if info.trained_principles else "its training principles are not recorded"
    elif info.kind not in TAKES_NO_PRINCIPLE:
        use, reason = "optional", "its parts decide how they use a principle"
    return {
        "model": info.name,
        "version": info.version,
        "kind": info.kind,
        "use": use,
        "question": info.question,
        "examples": list(info.trained_principles),
        "reason": reason,
    }
