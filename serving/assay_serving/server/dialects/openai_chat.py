"""OpenAI's `POST /v1/chat/completions` for generative reward models: what verl's and others' judges are called by.

The same route as that of `assay serve-chat`. Streaming, tools, several choices and response formats are refused.
"""

from fastapi import APIRouter, Request, Response

from assay.http.problems import request_id_of
from assay_serving.chat.app import chat_router
from assay_serving.chat.bodies import ChatCompletionRequest
from assay_serving.chat.completion import Completion
from assay_serving.chat.message_bodies import messages_of
from assay_serving.chat.replies import chat_reply
from assay_serving.server.core.scoring_backend import ChatRequest
from assay_serving.server.dialects.shapes import EnvelopedError, OpenAIRoute, shaped_errors
from assay_serving.server.http.json_route import described, json_reply
from assay_serving.server.http.service import ScoringService, until_disconnect

_REPLY = chat_reply("b1946ac92492d234", "judge", "4c1f0a9be2d47a55", Completion("Gold.", "stop", 31, 2))


class ChatModels:
    """A `Completer` over the generative models of a reward server."""

    supports: frozenset[str] = frozenset()

    def __init__(self, service: ScoringService) -> None:
        self.service = service

    async def complete(self, body: ChatCompletionRequest, request: Request) -> Response:
        chat = ChatRequest(
            body.model,
            messages_of(body.messages),
            body.limit,
            temperature=body.temperature,
            top_p=body.top_p,
            seed=body.seed,
            stop=tuple(body.stops),
            timeout_s=self.service.settings.request_timeout_s,
            client=request.scope["state"]["client"],
            request_id=request_id_of(request),
            any_name=True,
        )
        answer = await until_disconnect(request, self.service.backend.chat(chat))
        return json_reply(chat_reply(str(request_id_of(request)), answer.model, answer.version, answer.completion))


def openai_chat_routes(service: ScoringService) -> APIRouter:
    replies = described(_REPLY) | shaped_errors(EnvelopedError)
    return chat_router(ChatModels(service), OpenAIRoute, replies)
