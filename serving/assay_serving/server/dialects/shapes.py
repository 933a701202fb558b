"""Errors in the form of each format, with the status that its clients handle correctly.

vLLM and OpenAI: `{"error": {...}}`; SGLang's OpenAI routes: the same fields without the envelope; other
routes reply with problem details. Errors of the middleware (keys, oversized bodies) are problem details everywhere.
"""

from abc import abstractmethod
from collections.abc import Callable, Coroutine
from http import HTTPStatus
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from assay.errors import AssayError
from assay.http.problems import CLIENT_GONE, MEDIA_TYPE, ProblemError, problem_of, problem_of_invalid, responses
from assay_serving.chat.replies import openai_error
from assay_serving.server.http.json_route import JsonRoute

#: Wrong input is 400 to these clients. verl's router gives up on any 4xx, so rate limits are 503.
_STATUS = {422: 400, 429: 503}
_MIDDLEWARE_STATUSES = (401, 403, 408, 413, 415, 429, 503, 504)
_TYPES = {400: "BadRequestError", 404: "NotFoundError", 503: "ServiceUnavailableError"}


class ErrorInfo(BaseModel):
    message: str
    type: str
    param: str | None
    code: int | str


class EnvelopedError(BaseModel):
    """vLLM's (code: the status) and OpenAI's (code: a word)."""

    error: ErrorInfo


class FlatError(ErrorInfo):
    """SGLang's."""

    object: str


class ShapedRoute(JsonRoute):
    """A route whose errors have the form of `shape`."""

    @staticmethod
    @abstractmethod
    def shape(status: int, problem: ProblemError) -> dict[str, Any]:
        """The error's body."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        shape = type(self).shape

        async def shaped(request: Request) -> Response:
            try:
                return await handle(request)
            except ProblemError as error:
                problem = error
            except AssayError as error:
                problem = problem_of(error)
            except RequestValidationError as error:
                problem = problem_of_invalid(_without_forms(error))
            status = _STATUS.get(problem.status, problem.status)
            return JSONResponse(shape(status, problem), status, problem.headers)

        return shaped


def _without_forms(error: RequestValidationError) -> RequestValidationError:
    """Field paths without the names of the body's forms."""
    errors = [{**each, "loc": tuple(part for part in each["loc"] if " " not in str(part))} for each in error.errors()]
    return RequestValidationError(errors)


def _info(status: int, problem: ProblemError) -> dict[str, Any]:
    fields = problem.more.get("errors") or []  # of an invalid body; vLLM uses the bare phrase
    kind = None if fields else _TYPES.get(status)
    phrase = HTTPStatus(status).phrase if status != CLIENT_GONE else "Client Closed Request"
    param = fields[0]["field"] or None if fields else None
    return {"message": problem.detail, "type": kind or phrase, "param": param, "code": status}


class VllmRoute(ShapedRoute):
    @staticmethod
    def shape(status: int, problem: ProblemError) -> dict[str, Any]:
        return {"error": _info(status, problem)}


class SglangRoute(ShapedRoute):
    @staticmethod
    def shape(status: int, problem: ProblemError) -> dict[str, Any]:
        return {"object": "error", **_info(status, problem)}


class OpenAIRoute(ShapedRoute):
    @staticmethod
    def shape(status: int, problem: ProblemError) -> dict[str, Any]:
        return openai_error(status, problem)


def shaped_errors(model: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    """OpenAPI of the errors of a shaped route: problem details of the middleware, and the dialect's form."""
    described = responses(*_MIDDLEWARE_STATUSES)
    for status in (403, 413, 415, 429, 503, 504):
        described[status]["model"] = model
    # Invalid JSON is refused before a dialect is known.
    problem = described[413]["content"][MEDIA_TYPE]["schema"]
    described["4XX"] = {
        "model": model,
        "description": "wrong input (400), no such model (404)",
        "content": {MEDIA_TYPE: {"schema": problem}},
    }
    return described
