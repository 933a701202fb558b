"""LLaMA-Factory's `POST /v1/score/evaluation`. Its `messages` are rendered texts, not messages."""

from fastapi import APIRouter, Request, Response
from pydantic import Field

from assay.http.body_lists import ListOf
from assay.http.problems import request_id_of
from assay_serving.scorer import Rendered
from assay_serving.server.dialects.scoring import score_all
from assay_serving.server.dialects.texts import EXAMPLE, OpenBody, rendered_items
from assay_serving.server.http.json_route import JsonRoute, described, examples
from assay_serving.server.http.service import SCORING_STATUSES, ScoringService


class EvaluationBody(OpenBody):
    model_config = examples({"model": "helpful", "messages": [EXAMPLE]})

    model: str
    messages: ListOf[str] = Field(min_length=1)
    max_length: int | None = Field(None, ge=1, description="Tokens; longer texts lose their end.")


_REPLY = {"id": "scoreval-b1946ac92492d234", "object": "score.evaluation", "model": "helpful", "scores": [1.25]}


def llama_factory_routes(service: ScoringService) -> APIRouter:
    router = APIRouter(route_class=JsonRoute)

    @router.post("/v1/score/evaluation", responses=described(_REPLY, *SCORING_STATUSES))
    async def evaluate(body: EvaluationBody, request: Request) -> Response:
        """LLaMA-Factory's reward route: the raw reward of each rendered text."""
        items = rendered_items(body.messages, Rendered(keep=body.max_length, keep_end=False))
        scores = await score_all(service, request, items, model=body.model)
        own = {"id": f"scoreval-{request_id_of(request)}", "model": scores.model, "scores": scores.rewards}
        return scores.reply(_REPLY | own)

    return router
