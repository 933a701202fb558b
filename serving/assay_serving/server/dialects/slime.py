"""slime's and miles' remote reward model: `--rm-type remote_rm --rm-url http://HOST:PORT/slime`.

One sample per request; the reply is the reward, a JSON number. `/slime?detail=true` replies with an object for
`--reward-key reward`. A rendered prompt (`--apply-chat-template`) is recognized by its markers; any other text is one
user turn. Its client retries errors ten times.
"""

from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import Field

from assay.domain import Message, Prompt
from assay.errors import BadInputError
from assay.http.body_lists import ListOf
from assay.http.problems import ProblemError
from assay.models.chat.formats import FAMILIES
from assay_serving.chat.message_bodies import messages_of
from assay_serving.scorer import Rendered, ScoreItem
from assay_serving.server.dialects.openrlhf import MODEL_PARAMETER, label_of, model_parameter
from assay_serving.server.dialects.scoring import score_all
from assay_serving.server.dialects.texts import ChatTurn, OpenBody
from assay_serving.server.http.json_route import JsonRoute, described, examples
from assay_serving.server.http.service import SCORING_STATUSES, ScoringService

#: End-of-turn tokens that samplers leave in a response; as message content they would be text.
_ENDS = ("<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<|end|>", "<|endoftext|>", "<｜end▁of▁sentence｜>", "</s>")
_QUERY = [
    MODEL_PARAMETER,
    {"name": "detail", "in": "query", "required": False, "schema": {"type": "boolean", "default": False}},
]


class SlimeBody(OpenBody):
    """`prompt`: rendered, plain text, or messages."""

    model_config = examples({"prompt": "Name a metal.", "response": "Gold.", "label": None})

    prompt: str | ListOf[ChatTurn]
    response: str
    label: Any = Field(None, description="Ground truth for verifiers, text or JSON; models ignore it.")

    def item(self) -> ScoreItem:
        label = label_of(self.label)
        if isinstance(self.prompt, str) and any(family.wrote(self.prompt) for family in FAMILIES):
            return ScoreItem((), "", rendered=Rendered(self.prompt + self.response, complete=True), label=label)
        if isinstance(self.prompt, str):
            turns: Prompt = (Message("user", self.prompt),)
        elif not self.prompt:
            raise BadInputError("needs at least one message", field="prompt")
        else:
            turns = messages_of(self.prompt)
        return ScoreItem(turns, _ended(self.response), label=label)


_DETAIL = {
    "reward": 1.25,
    "probability": None,
    "uncertainty": None,
    "tokens": 31,
    "truncated": False,
    "model": "helpful",
    "version": "4c1f0a9be2d47a55",
}


def slime_routes(service: ScoringService) -> APIRouter:
    router = APIRouter(route_class=JsonRoute)

    @router.post(
        "/slime", responses=described((1.25, _DETAIL), *SCORING_STATUSES), openapi_extra={"parameters": _QUERY}
    )
    async def slime(body: SlimeBody, request: Request) -> Response:
        """slime's remote reward model: the reward of one sample as a number, or with `?detail=true` as an object."""
        detail = request.query_params.get("detail", "false")
        if detail not in ("true", "false"):
            raise ProblemError(422, "detail: true or false", more={"errors": [{"field": "detail"}]})
        scores = await score_all(service, request, [body.item()], model=model_parameter(request))
        [score] = scores.scores
        if detail == "false":
            return scores.reply(score.reward)
        return scores.reply({name: getattr(score, name) for name in _DETAIL} | {"model": scores.model})

    return router


def _ended(response: str) -> str:
    return next((response.removesuffix(end) for end in _ENDS if response.endswith(end)), response)
