"""The chat application: `/v1/chat/completions`, `/v1/models`, `/health`, with OpenAI's bodies and errors.

Covers: the route over any completer, its errors. Leaves out: streaming; the completers (`generation`: a local model,
`scripted`: tests; the reward server has its own), keys and limits of bodies, which are the reward server's
(`assay_serving.server.chat_app`).
"""

from collections.abc import Mapping
from typing import Any, Protocol

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute

from assay import __version__
from assay.http.docs_pages import mount_pages
from assay.http.problems import ProblemError, install_handlers
from assay_serving.chat.bodies import ChatCompletionRequest
from assay_serving.chat.completion import TooLongError
from assay_serving.chat.replies import openai_error


class Completer(Protocol):
    """Answers chat requests. `supports`: fields of the request that it takes beyond what every completer does."""

    @property
    def supports(self) -> frozenset[str]: ...

    async def complete(self, body: ChatCompletionRequest, request: Request) -> Mapping[str, Any] | Response:
        """A chat completion (`replies.chat_reply`), or the reply itself. Raises AssayError or ProblemError."""
        ...


class ModelCompleter(Completer, Protocol):
    def cards(self) -> list[dict[str, Any]]:
        """The models, as entries of `/v1/models`."""
        ...


def chat_router(
    completer: Completer,
    route_class: type[APIRoute] = APIRoute,
    responses: dict[int | str, dict[str, Any]] | None = None,
) -> APIRouter:
    """The chat route. `responses`: what OpenAPI says of its replies."""
    router = APIRouter(route_class=route_class)

    @router.post("/v1/chat/completions", response_model=None, responses=responses)
    async def chat(body: ChatCompletionRequest, request: Request) -> Response:
        """The next turn of a conversation by a generative model."""
        if (field := body.unsupported(completer.supports)) is not None:
            errors = {"errors": [{"field": field, "message": "not supported"}]}
            raise ProblemError(
                400, f"{field} is not supported by this server", code="unsupported_parameter", more=errors
            )
        try:
            reply = await completer.complete(body, request)
        except TooLongError as error:
            errors = {"errors": [{"field": "messages", "message": str(error)}]}
            raise ProblemError(400, str(error), code="context_length_exceeded", more=errors) from error
        return reply if isinstance(reply, Response) else JSONResponse(dict(reply))

    return router


def create_chat_app(completer: ModelCompleter) -> FastAPI:
    """The application of one completer, open to whoever reaches it."""
    app = FastAPI(title="Assay chat server", version=__version__, docs_url=None, redoc_url=None)
    mount_pages(app)

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": completer.cards()}

    app.include_router(chat_router(completer))
    install_handlers(app, refusal)
    return app


def refusal(problem: ProblemError, request_id: str | None = None) -> Response:
    """An error as OpenAI's clients read it, also for what is refused before a route is reached."""
    status = 400 if problem.status == 422 else problem.status
    if status == 401:
        problem = ProblemError(401, problem.detail, code="invalid_api_key", headers=problem.headers)
    return JSONResponse(openai_error(status, problem), status, problem.headers)
