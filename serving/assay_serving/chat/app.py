"""The chat application: `/v1/chat/completions`, `/v1/models`, `/health`, with OpenAI's bodies and errors.

Covers: keys, a bounded queue (429 with Retry-After), refusing to start new work while draining. Leaves out: streaming,
the model (`generation`).
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from assay import __version__
from assay.domain import Message
from assay.errors import AssayError, BadInputError
from assay_serving.chat.bodies import ChatRequest
from assay_serving.chat.completion import TooLongError
from assay_serving.chat.generation import ChatModel
from assay_serving.chat.replies import chat_reply

MAX_WAITING = 64
REQUEST_S = 300.0


class ChatService:
    """What the routes share; `drain` is what the process calls when it is told to stop."""

    def __init__(self, model: ChatModel, api_keys: Sequence[str], max_waiting: int) -> None:
        self.model, self.api_keys, self.max_waiting = model, tuple(api_keys), max_waiting
        self.waiting = 0
        self.draining = False

    @property
    def ready(self) -> bool:
        return not self.draining

    def drain(self) -> None:
        self.draining = True


def create_chat_app(model: ChatModel, *, api_keys: Sequence[str] = (), max_waiting: int = MAX_WAITING) -> FastAPI:
    """`api_keys`: any of them opens every route but /health; none = open to all who reach the port."""
    service = ChatService(model, api_keys, max_waiting)
    app = FastAPI(title="Assay chat server", version=__version__)
    app.state.service = service

    @app.middleware("http")
    async def check_key(request: Request, forward: Callable[[Request], Awaitable[Response]]) -> Response:
        if service.api_keys and request.url.path != "/health":
            scheme, _, given = request.headers.get("authorization", "").partition(" ")
            # Every key is compared, each in constant time.
            known = sum(hmac.compare_digest(given.strip().encode(), key.encode()) for key in service.api_keys)
            if scheme.lower() != "bearer" or not known:
                return _error(401, "an API key is needed: Authorization: Bearer KEY", "invalid_api_key")
        return await forward(request)

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        entry = {"id": model.name, "object": "model", "owned_by": "assay", "version": model.version}
        return {"object": "list", "data": [entry | {"max_model_len": model.context}]}

    @app.post("/v1/chat/completions", response_model=None)
    async def chat(body: ChatRequest) -> Response | dict[str, Any]:
        if body.model != model.name:
            return _error(404, f"no model {body.model!r} here; there is {model.name!r}", "model_not_found")
        if (field := body.unsupported) is not None:
            return _error(400, f"{field} is not supported by this server", "unsupported_parameter", field)
        if service.draining:
            return _error(503, "the server is stopping", "draining", headers={"Retry-After": "5"})
        if service.waiting >= service.max_waiting:
            return _error(429, f"{service.waiting} requests are waiting", "queue_full", headers={"Retry-After": "1"})
        service.waiting += 1
        try:
            made = await asyncio.to_thread(
                model.complete,
                [Message(m.role, m.content) for m in body.messages],
                max_tokens=body.limit,
                temperature=body.temperature,
                top_p=body.top_p,
                seed=body.seed,
                stop=body.stops,
                max_seconds=REQUEST_S,
            )
        except TooLongError as error:
            return _error(400, str(error), "context_length_exceeded", "messages")
        except BadInputError as error:
            return _error(400, str(error), "bad_input", error.field)
        except AssayError as error:
            return _error(500, str(error), error.code)
        finally:
            service.waiting -= 1
        return chat_reply(
            secrets.token_hex(12),
            model=model.name,
            version=model.version,
            text=made.text,
            finish=made.finish,
            tokens_in=made.tokens_in,
            tokens_out=made.tokens_out,
        )

    async def on_invalid(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"][1:])
        return _error(400, f"{field}: {first['msg']}" if field else str(first["msg"]), "bad_input", field or None)

    async def on_http_error(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return _error(error.status_code, str(error.detail), "error")

    app.add_exception_handler(RequestValidationError, on_invalid)
    app.add_exception_handler(HTTPException, on_http_error)
    return app


def _error(
    status: int, message: str, code: str, param: str | None = None, *, headers: dict[str, str] | None = None
) -> Response:
    kind = "invalid_request_error" if status < 500 else "server_error"
    body = {"error": {"message": message, "type": kind, "param": param, "code": code}}
    return JSONResponse(body, status, headers)
