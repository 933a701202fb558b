"""The wire format `best-of`: several answers in, the number of the best one out."""

from __future__ import annotations

from fastapi import APIRouter, Request
from pydantic import BaseModel

from assay.domain import Message
from assay_serving.scorer import ScoreItem
from assay_serving.server.dialects.scoring import score_all
from assay_serving.server.dialects.texts import OpenBody
from assay_serving.server.http.service import ScoringService


class BestOfBody(OpenBody):
    question: str
    answers: list[str]


class BestOfReply(BaseModel):
    best: int
    rewards: list[float]


def best_of_routes(service: ScoringService) -> APIRouter:
    router = APIRouter()

    @router.post("/best-of")
    async def best_of(body: BestOfBody, request: Request) -> BestOfReply:
        """The number of the best answer, from 0, and the rewards of all."""
        items = [ScoreItem((Message("user", body.question),), answer) for answer in body.answers]
        scores = await score_all(service, request, items)
        return BestOfReply(best=scores.rewards.index(max(scores.rewards)), rewards=scores.rewards)

    return router
