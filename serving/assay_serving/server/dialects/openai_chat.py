"""OpenAI's `POST /v1/chat/completions` for generative reward models: what verl's and others' judges are asked by.

The same body and reply as `assay serve-chat`. Streaming, tools, several choices and response formats are refused.
"""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from assay.domain import Message
from assay.http.problems import ProblemError, request_id_of
from assay_serving.chat.bodies import ChatCompletionRequest
from assay_serving.chat.replies import ChatCompletionResponse, chat_reply
from assay_serving.server.core.scoring_backend import ChatRequest
from assay_serving.server.dialects.shapes import EnvelopedError, OpenAIRoute, shaped_errors
from assay_serving.server.http.json_route import json_reply
from assay_serving.server.http.service import ScoringService, client_of, until_disconnect


def openai_chat_routes(service: ScoringService) -> APIRouter:
    router = APIRouter(route_class=OpenAIRoute)

    @router.post(
        "/v1/chat/completions",
        response_model=None,
        responses={200: {"model": ChatCompletionResponse}, **shaped_errors(EnvelopedError)},
    )
    async def chat(body: ChatCompletionRequest, request: Request) -> Response:
        """The next turn of a conversation by a generative model."""
        if (field := body.unsupported) is not None:
            problem = {"errors": [{"field": field, "message": "not supported"}]}
            raise ProblemError(
                400, f"{field} is not supported by this server", code="unsupported_parameter", more=problem
            )
        chat_request = ChatRequest(
            body.model,
            tuple(Message(message.role, message.content) for message in body.messages),
            body.limit,
            temperature=body.temperature,
            top_p=body.top_p,
            seed=body.seed,
            stop=tuple(body.stops),
            timeout_s=service.settings.request_timeout_s,
            client=client_of(request),
            request_id=request_id_of(request),
        )
        response = await until_disconnect(request, service.backend.chat(chat_request))
        return json_reply(
            chat_reply(
                str(request_id_of(request)),
                model=response.model,
                version=response.version,
                text=response.text,
                finish=response.finish,
                tokens_in=response.tokens_in,
                tokens_out=response.tokens_out,
            )
        )

    return router
