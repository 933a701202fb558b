"""OpenAI's `POST /v1/chat/completions` for generative reward models: what verl's and others' judges are called by.

The same route as that of `assay serve-chat`. Streaming, tools, several choices and response formats are refused.
"""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from assay.domain import Message
from assay.http.problems import request_id_of
from assay_serving.chat.app import chat_router
from assay_serving.chat.bodies import ChatCompletionRequest
from assay_serving.chat.replies import ChatCompletionResponse, chat_reply
from assay_serving.server.core.scoring_backend import ChatRequest
from assay_serving.server.dialects.shapes import EnvelopedError, OpenAIRoute, shaped_errors
from assay_serving.server.http.json_route import json_reply
from assay_serving.server.http.service import ScoringService, until_disconnect


class ChatModels:
    """A `Completer` over the generative models of a reward server."""

    supports: frozenset[str] = frozenset()

    def __init__(self, service: ScoringService) -> None:
        self.service = service

    async def complete(self, body: ChatCompletionRequest, request: Request) -> Response:
        chat = ChatRequest(
            body.model,
            tuple(Message(message.role, message.content) for message in body.messages),
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
    described = {200: {"model": ChatCompletionResponse}, **shaped_errors(EnvelopedError)}
    return chat_router(ChatModels(service), OpenAIRoute, described)
