"""NeMo-Gym's resource server: `POST /verify` of one rollout, `POST /compare` of several responses to one prompt.

Its agents open a session before a rollout (`/seed_session`) and close it (`/close_session`): a reward depends on
nothing but its rollout, so there is nothing to keep. Leaves out: `/aggregate_metrics` (`nemo_gym_metrics`).

The rewards of `/compare` are those of the single responses. `comparison_results` has each neighbouring pair in the form
of NeMo-Gym's judge, with these rewards instead of its scores from 1 to 5, and a ranking of 2 (the first is better), 5
(the second) or 3.5 (even).
"""

from __future__ import annotations

import statistics
from typing import Any, Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from assay.domain import Message
from assay.errors import BadInputError
from assay.http.body_lists import ListOf
from assay_serving.scorer import ScoreItem
from assay_serving.server.dialects.nemo_gym_metrics import AggregateMetricsBody, AggregateMetricsReply, aggregated
from assay_serving.server.dialects.openrlhf import MODEL_PARAMETER, label_of, model_parameter
from assay_serving.server.dialects.scoring import score_all
from assay_serving.server.dialects.texts import ChatTurn, OpenBody, TextPart
from assay_serving.server.http.json_route import JsonRoute, described, examples, json_reply
from assay_serving.server.http.service import SCORING_STATUSES, ScoringService

_RESPONSE: dict[str, Any] = {"output": [{"type": "message", "content": [{"type": "output_text", "text": "Gold."}]}]}
_PROMPT: list[Any] = [{"role": "user", "content": "Name a metal."}]
_BETTER, _EVEN, _WORSE = 2.0, 3.5, 5.0


class OutputItem(OpenBody):
    """Part of a response: a message with texts, or reasoning, which is not scored."""

    type: Literal["message", "reasoning"]
    content: ListOf[TextPart] | str | None = None

    @property
    def text(self) -> str:
        if self.type == "reasoning" or self.content is None:
            return ""
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


class ResponseObject(OpenBody):
    """OpenAI's Responses object; a response with tool calls is refused."""

    output: ListOf[OutputItem]

    @property
    def text(self) -> str:
        return "".join(item.text for item in self.output)


class CreateParams(OpenBody):
    """The request that the response answers."""

    input: str | ListOf[ChatTurn]
    instructions: str | None = None

    def prompt(self) -> tuple[Message, ...]:
        """Raises BadInputError for an empty input."""
        turns = [Message("user", self.input)] if isinstance(self.input, str) else [t.message() for t in self.input]
        if not turns:
            raise BadInputError("needs at least one message", field="responses_create_params.input")
        return (*((Message("system", self.instructions),) if self.instructions else ()), *turns)


class VerifyBody(OpenBody):
    """A rollout; other fields are returned unchanged."""

    model_config = examples({"responses_create_params": {"input": _PROMPT}, "response": _RESPONSE})

    responses_create_params: CreateParams
    response: ResponseObject
    principle: str | None = Field(None, description="For models that judge by one.")
    label: Any = Field(None, description="Ground truth for verifiers, text or JSON; models ignore it.")

    def item(self) -> ScoreItem:
        prompt = self.responses_create_params.prompt()
        return ScoreItem(prompt, self.response.text, self.principle, label=label_of(self.label))


class VerifyReply(BaseModel):
    """The request with its reward. `reward_components`: the parts of a composed reward."""

    model_config = ConfigDict(extra="allow")

    responses_create_params: dict[str, Any]
    response: dict[str, Any]
    reward: float
    reward_components: dict[str, float] | None = None
    reward_model: str
    reward_version: str
    reward_truncated: bool


class CompareResponsesBody(OpenBody):
    """Responses to one conversation."""

    model_config = examples({"conversation_history": _PROMPT, "response_objs": [_RESPONSE, _RESPONSE]})

    conversation_history: ListOf[ChatTurn] = Field(min_length=1)
    response_objs: ListOf[ResponseObject]
    principle: str | None = Field(None, description="For models that judge by one.")

    def items(self) -> list[ScoreItem]:
        prompt = tuple(turn.message() for turn in self.conversation_history)
        return [ScoreItem(prompt, response.text, self.principle) for response in self.response_objs]


class PairResult(BaseModel):
    response_i: int
    response_j: int
    judge_idx: int
    score_1: float
    score_2: float
    ranking: float


class CompareResponsesReply(BaseModel):
    rewards: list[float]
    comparison_results: list[PairResult]
    metrics: dict[str, float]


class SessionBody(OpenBody):
    """Of an agent: its run, of which nothing is read. Of an environment server: the name that it gives the session."""

    model_config = examples({"responses_create_params": {"input": _PROMPT}}, {"resources_session_id": "s-1"})

    resources_session_id: str | None = Field(None, min_length=1)


class SeededSession(BaseModel):
    """Empty for an agent; for an environment server its session, which has no tools and no sandbox."""

    resources_session_id: str | None = None
    resources_tools: None = None
    sandbox_access: None = None


def nemo_gym_routes(service: ScoringService) -> APIRouter:
    router = APIRouter(route_class=JsonRoute)

    @router.post(
        "/verify",
        operation_id="nemo_gym_verify",
        responses=described(VerifyReply, *SCORING_STATUSES),
        openapi_extra={"parameters": [MODEL_PARAMETER]},
    )
    async def verify(body: VerifyBody, request: Request) -> Response:
        """NeMo-Gym's `/verify`: the rollout again, with its reward. `?model=NAME` names one of several."""
        scores = await score_all(service, request, [body.item()], model=model_parameter(request))
        [score] = scores.scores
        parts = {part.name: part.value for part in score.parts if part.value is not None}
        return scores.reply(
            await request.json()
            | {"reward": score.reward}
            | ({"reward_components": parts} if parts else {})
            | {"reward_model": scores.model, "reward_version": scores.version, "reward_truncated": score.truncated}
        )

    @router.post(
        "/compare",
        operation_id="nemo_gym_compare",
        responses=described(CompareResponsesReply, *SCORING_STATUSES),
        openapi_extra={"parameters": [MODEL_PARAMETER]},
    )
    async def compare(body: CompareResponsesBody, request: Request) -> Response:
        """NeMo-Gym's `/compare`: a reward for each response. `?model=NAME` names one of several."""
        scores = await score_all(service, request, body.items(), model=model_parameter(request))
        return scores.reply(comparison(scores.rewards))

    @router.post("/seed_session", responses=described(SeededSession, *SCORING_STATUSES))
    async def seed_session(body: SessionBody, request: Request) -> Response:
        """NeMo-Gym's `/seed_session`: nothing is kept for a session."""
        session = body.resources_session_id
        if session is None:
            return json_reply({})
        return json_reply({"resources_session_id": session, "resources_tools": None, "sandbox_access": None})

    @router.post("/close_session", responses=described(SeededSession, *SCORING_STATUSES))
    async def close_session(body: SessionBody, request: Request) -> Response:
        """NeMo-Gym's `/close_session`."""
        session = body.resources_session_id
        return json_reply({} if session is None else {"resources_session_id": session})

    @router.get("/reverify_mode", responses=described(str, 401, 403, 429, 503))
    async def reverify_mode() -> Response:
        """NeMo-Gym's `/reverify_mode`: a rollout can be verified again at any time."""
        return Response('"stateless"', media_type="application/json")

    @router.post("/aggregate_metrics", responses=described(AggregateMetricsReply, *SCORING_STATUSES))
    async def aggregate_metrics(body: AggregateMetricsBody, request: Request) -> Response:
        """NeMo-Gym's `/aggregate_metrics`: mean, max, min, median and deviation of the numbers of verified rollouts."""
        return json_reply(aggregated(body.verify_responses))

    return router


def comparison(rewards: list[float]) -> dict[str, Any]:
    """The reply of `/compare`, with each response beside its next one, round."""
    neighbours = [(i, (i + 1) % len(rewards)) for i in range(len(rewards))] if len(rewards) > 1 else []
    pairs = [
        {
            "response_i": i,
            "response_j": j,
            "judge_idx": 0,
            "score_1": rewards[i],
            "score_2": rewards[j],
            "ranking": _EVEN if rewards[i] == rewards[j] else _BETTER if rewards[i] > rewards[j] else _WORSE,
        }
        for i, j in neighbours
    ]
    metrics = {}
    if rewards:
        metrics = {
            "mean_individual_score": statistics.fmean(rewards),
            "std_individual_score": statistics.pstdev(rewards),
            "tiebreak_usage_rate": 0.0,
        }
    return {"rewards": rewards, "comparison_results": pairs, "metrics": metrics}
