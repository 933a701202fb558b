"""NeMo-Gym's resource server: `POST /verify` of one rollout, `POST /compare` of several responses to one prompt.

Its agents and environment servers open a session before a rollout (`/seed_session`) and close it (`/close_session`): a
reward depends on nothing but its rollout, so there is nothing to keep. With observability on they put the rollout
before each path, `/ng-rollout/ID/verify`. Leaves out: `/aggregate_metrics` (`nemo_gym_metrics`).

The rewards of `/compare` are those of the single responses. `comparison_results` has each neighbouring pair in the form
of NeMo-Gym's judge, with these rewards instead of its scores from 1 to 5, and a ranking of 2 (the first is better), 5
(the second) or 3.5 (even).
"""

import statistics
from typing import Any, Literal

from fastapi import APIRouter, Request
from fastapi import Response as HttpResponse
from fastapi.routing import APIRoute
from pydantic import ConfigDict, Field

from assay.conversation.parts import Part
from assay.data.conversation import turns_of
from assay.domain import Message, Prompt, Response, Role, prompt_of, response_of
from assay.errors import BadInputError
from assay.http.body_lists import ListOf
from assay_serving.chat.message_bodies import TOOLS, MessagePartBody, Tools, messages_of, with_tools
from assay_serving.scorer import ScoreItem
from assay_serving.server.dialects.nemo_gym_metrics import METRICS_REPLY, AggregateMetricsBody, aggregated
from assay_serving.server.dialects.openrlhf import MODEL_PARAMETER, label_of, model_parameter
from assay_serving.server.dialects.scoring import score_all
from assay_serving.server.dialects.texts import ChatTurn, OpenBody
from assay_serving.server.http.json_route import JsonRoute, described, examples, json_reply
from assay_serving.server.http.service import SCORING_STATUSES, ScoringService

_RESPONSE: dict[str, Any] = {"output": [{"type": "message", "content": [{"type": "output_text", "text": "Gold."}]}]}
_PROMPT: list[Any] = [{"role": "user", "content": "Name a metal."}]
_OF_A_ROLLOUT = "/ng-rollout/{rollout_id}"
_SESSION = ("nemo_gym_session", "stateless")  #: an environment server demands a cookie of a session, whatever it says
_BETTER, _EVEN, _WORSE = 2.0, 3.5, 5.0


class OutputItem(OpenBody):
    """An item of OpenAI's Responses: a message, a call of a tool or its output; reasoning is not scored."""

    model_config = ConfigDict(extra="allow")

    type: Literal["message", "reasoning", "function_call", "function_call_output"]
    role: Literal["assistant"] = "assistant"
    content: str | ListOf[MessagePartBody] | None = None

    def messages(self) -> Prompt:
        """Raises BadInputError for parts of an unknown type."""
        if self.type == "reasoning" or (self.type == "message" and self.content is None):
            return ()
        form = self.model_dump(exclude_none=True)
        if self.type != "message":
            del form["role"]
        return prompt_of(turns_of([form], "output"))


class ResponseObject(OpenBody):
    """OpenAI's Responses object: a text, or the turns of a rollout that called tools."""

    output: ListOf[OutputItem]

    def response(self) -> Response:
        """Its messages as turns; what the assistant says and calls in succession is one of them. Raises BadInputError
        where the last is not the assistant's."""
        turns: list[Message] = []
        for message in (message for item in self.output for message in item.messages()):
            if turns and turns[-1].role == message.role == "assistant":
                turns[-1] = Message("assistant", _joined(turns[-1], message))
            else:
                turns.append(message)
        return response_of([turn.to_dict() for turn in turns]) if turns else ""


def _joined(first: Message, second: Message) -> str | tuple[Part, ...]:
    if isinstance(first.content, str) and isinstance(second.content, str):
        return first.content + second.content
    return (*first.parts, *second.parts)


class InputItem(ChatTurn):
    """A message, or an item of OpenAI's Responses: a tool's call or output of an earlier turn; reasoning is left
    out."""

    model_config = ConfigDict(extra="allow")

    role: Role | Literal["function"] | None = None  # type: ignore[assignment]
    type: Literal["message", "reasoning", "function_call", "function_call_output"] = "message"

    def messages(self) -> Prompt:
        """As `ChatTurn.messages`; none of reasoning."""
        if self.type == "message":
            return super().messages()
        return () if self.type == "reasoning" else prompt_of(turns_of([self.model_dump(exclude_none=True)], "input"))


class CreateParams(OpenBody):
    """The request that the response answers."""

    input: str | ListOf[InputItem]
    instructions: str | None = None
    tools: Tools | None = Field(None, description=TOOLS)

    def prompt(self) -> Prompt:
        """Raises BadInputError for an empty input, and for a tool without a name."""
        turns = (Message("user", self.input),) if isinstance(self.input, str) else messages_of(self.input)
        if not turns:
            raise BadInputError("needs at least one message", field="responses_create_params.input")
        system = (Message("system", self.instructions),) if self.instructions else ()
        return with_tools((*system, *turns), self.tools)


class VerifyBody(OpenBody):
    """A rollout; other fields are returned unchanged."""

    model_config = examples({"responses_create_params": {"input": _PROMPT}, "response": _RESPONSE})

    responses_create_params: CreateParams
    response: ResponseObject
    principle: str | None = Field(None, description="For models that judge by one.")
    label: Any = Field(None, description="Ground truth for verifiers, text or JSON; models ignore it.")

    def item(self) -> ScoreItem:
        prompt = self.responses_create_params.prompt()
        return ScoreItem(prompt, self.response.response(), self.principle, label=label_of(self.label))


_VERIFY_REPLY = {
    "responses_create_params": {"input": None},
    "response": {"output": [{}]},
    "reward": 1.25,
    "reward_model": "helpful",
    "reward_version": "4c1f0a9be2d47a55",
    "reward_truncated": False,
}  #: and `reward_components`, the parts of a composed reward


class CompareResponsesBody(OpenBody):
    """Responses to one conversation."""

    model_config = examples({"conversation_history": _PROMPT, "response_objs": [_RESPONSE, _RESPONSE]})

    conversation_history: ListOf[InputItem] = Field(min_length=1)
    response_objs: ListOf[ResponseObject]
    principle: str | None = Field(None, description="For models that judge by one.")

    def items(self) -> list[ScoreItem]:
        prompt = messages_of(self.conversation_history)
        return [ScoreItem(prompt, response.response(), self.principle) for response in self.response_objs]


_PAIR = {"response_i": 0, "response_j": 1, "judge_idx": 0, "score_1": 1.25, "score_2": 0.5, "ranking": _BETTER}
_COMPARE_REPLY = {"rewards": [1.25, 0.5], "comparison_results": [_PAIR], "metrics": {}}


class SessionBody(OpenBody):
    """Of an agent: its run, of which nothing is read. Of an environment server: the name that it gives the session."""

    model_config = examples({"responses_create_params": {"input": _PROMPT}}, {"resources_session_id": "s-1"})

    resources_session_id: str | None = Field(None, min_length=1)


def nemo_gym_routes(service: ScoringService) -> APIRouter:
    router = APIRouter(route_class=JsonRoute)

    @router.post(
        "/verify",
        operation_id="nemo_gym_verify",
        responses=described(_VERIFY_REPLY, *SCORING_STATUSES),
        openapi_extra={"parameters": [MODEL_PARAMETER]},
    )
    async def verify(body: VerifyBody, request: Request) -> HttpResponse:
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
        responses=described(_COMPARE_REPLY, *SCORING_STATUSES),
        openapi_extra={"parameters": [MODEL_PARAMETER]},
    )
    async def compare(body: CompareResponsesBody, request: Request) -> HttpResponse:
        """NeMo-Gym's `/compare`: a reward for each response. `?model=NAME` names one of several."""
        scores = await score_all(service, request, body.items(), model=model_parameter(request))
        return scores.reply(comparison(scores.rewards))

    @router.post("/seed_session", responses=described({}, *SCORING_STATUSES))
    async def seed_session(body: SessionBody, request: Request) -> HttpResponse:
        """NeMo-Gym's `/seed_session`: nothing is kept for a session. Empty for an agent; for an environment server its
        session, which has no tools and no sandbox."""
        session = body.resources_session_id
        seeded = {"resources_session_id": session, "resources_tools": None, "sandbox_access": None}
        response = json_reply({} if session is None else seeded)
        response.set_cookie(*_SESSION, httponly=True)
        return response

    @router.post("/close_session", responses=described({}, *SCORING_STATUSES))
    async def close_session(body: SessionBody, request: Request) -> HttpResponse:
        """NeMo-Gym's `/close_session`."""
        session = body.resources_session_id
        return json_reply({} if session is None else {"resources_session_id": session})

    @router.get("/reverify_mode", responses=described("stateless", 401, 403, 429, 503))
    async def reverify_mode() -> HttpResponse:
        """NeMo-Gym's `/reverify_mode`: a rollout can be verified again at any time."""
        return HttpResponse('"stateless"', media_type="application/json")

    @router.post("/aggregate_metrics", responses=described(METRICS_REPLY, *SCORING_STATUSES))
    async def aggregate_metrics(body: AggregateMetricsBody, request: Request) -> HttpResponse:
        """NeMo-Gym's `/aggregate_metrics`: mean, max, min, median and deviation of the numbers of verified rollouts."""
        return json_reply(aggregated(body.verify_responses))

    for route in [each for each in router.routes if isinstance(each, APIRoute)]:
        methods = list(route.methods or ())
        router.add_api_route(_OF_A_ROLLOUT + route.path, route.endpoint, methods=methods, include_in_schema=False)
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
