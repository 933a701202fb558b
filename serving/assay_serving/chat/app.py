"""The chat application: `/v1/chat/completions`, `/v1/models`, `/health`, with OpenAI's bodies and errors.

Covers: a bounded queue (429 with Retry-After), refusing to start new work while draining. Leaves out: streaming, the
model (`generation`), keys and limits of bodies, which are the reward server's own gate.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from assay import __version__
from assay.domain import Message
from assay.errors import AssayError, BadInputError
from assay.http.docs_pages import mount_pages
from assay.http.problems import ProblemError
from assay_serving.chat.bodies import ChatCompletionRequest
from assay_serving.chat.completion import TooLongError
from assay_serving.chat.generation import ChatModel
from assay_serving.chat.replies import chat_reply
from assay_serving.server.auth.middleware import RequestMiddleware
from assay_serving.server.core.settings import ServerSettings
from assay_serving.server.metrics.http_metrics import HttpMetrics

MAX_WAITING = 64
REQUEST_S = 300.0


class ChatService:
    """What the routes share; `drain` is what the process calls when it is told to stop."""

    def __init__(self, model: ChatModel, settings: ServerSettings, max_waiting: int) -> None:
        self.model, self.settings, self.max_waiting = model, settings, max_waiting
        self.metrics = HttpMetrics()
        self.waiting = 0
        self.draining = False

    @property
    def ready(self) -> bool:
        return not self.draining

    def drain(self) -> None:
        self.draining = True


def create_chat_app(
    model: ChatModel,
    *,
    api_keys: Sequence[str] = (),
    keys_file: str | None = None,
    open_health: bool = False,
    allowed_hosts: tuple[str, ...] | None = None,
    max_waiting: int = MAX_WAITING,
) -> FastAPI:
    """Who may ask: see `ServerSettings`."""
    settings = ServerSettings(
        api_keys=tuple(api_keys), keys_file=keys_file, open_health=open_health, allowed_hosts=allowed_hosts
    )
    service = ChatService(model, settings, max_waiting)
    app = FastAPI(title="Assay chat server", version=__version__, docs_url=None, redoc_url=None)
    app.state.service = service
    mount_pages(app)

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        entry = {"id": model.name, "object": "model", "owned_by": "assay", "version": model.version}
        return {"object": "list", "data": [entry | {"max_model_len": model.context}]}

    @app.post("/v1/chat/completions", response_model=None)
    async def chat(body: ChatCompletionRequest) -> Response | dict[str, Any]:
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
            completion = await asyncio.to_thread(
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
            text=completion.text,
            finish=completion.finish,
            tokens_in=completion.tokens_in,
            tokens_out=completion.tokens_out,
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
    app.add_middleware(RequestMiddleware, service=service, refuse=_refusal)
    return app


def _refusal(problem: ProblemError, request_id: str) -> Response:
    """An error of the gate as OpenAI's clients read it."""
    code = "invalid_api_key" if problem.status == 401 else problem.code
    return _error(problem.status, problem.detail, code, headers=problem.headers)


def _error(
    status: int, message: str, code: str, param: str | None = None, *, headers: dict[str, str] | None = None
) -> Response:
    kind = "invalid_request_error" if status < 500 else "server_error"
    body = {"error": {"message": message, "type": kind, "param": param, "code": code}}
    return JSONResponse(body, status, headers)
