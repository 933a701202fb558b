"""Errors as problem details (RFC 9457): type, title, status, code, detail, request id. Never the caller's own text.

Covers: the exception routes raise, its bytes, the statuses of `AssayError`, FastAPI's own errors. Leaves out:
failures of single items, which are entries of a reply with status 200 (`assay.score.ScoreFailure`).
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, get_type_hints

from fastapi import FastAPI, Request, Response, routing
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.routing import compile_path

from assay.errors import (
    AssayError,
    BadInputError,
    BusyError,
    ConflictError,
    ForbiddenError,
    LateError,
    NotFoundError,
    RateLimitError,
    nearest_names,
    plain_reason,
)

MEDIA_TYPE = "application/problem+json"
CLIENT_GONE = 499  #: nobody reads it; nginx's number, for metrics and logs
_CODES = {
    400: "bad_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    408: "body_timeout",
    409: "conflict",
    413: "body_too_large",
    415: "unsupported_media_type",
    422: "bad_input",
    429: "rate_limited",
    499: "client_gone",
    500: "backend",
    503: "busy",
    504: "timeout",
}
#: What OpenAPI says of each status that a route lists.
_MEANINGS = {
    401: "no key, or one that is not known here",
    403: "the key may not do this",
    404: "no such model",
    408: "the body did not arrive in time",
    409: "another operation on this model is in progress",
    413: "body too large, or too many items",
    415: "the body is not sent as JSON",
    422: "wrong input; `errors` names the fields",
    429: "the key's rate limit is used up; see Retry-After",
    500: "the model cannot be loaded: why is in `detail`",
    503: "queue full, not ready or draining; see Retry-After",
    504: "not done in time",
}
_MAX_FIELDS = 10
#: How pydantic calls a branch of a union in the place of an error.
_BRANCH = re.compile(r"str|int|float|bool|constrained-(str|int|float)|(list|literal|function-after)\[.*\]", re.DOTALL)


class ProblemError(Exception):
    """An error reply. `more`: further members of the body, e.g. the wrong fields."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        self.status = status
        self.detail = detail
        self.code = code or _CODES.get(status, "error")
        self.headers = dict(headers or {})
        self.more = dict(more or {})
        super().__init__(detail)

    def body(self, request_id: str | None) -> bytes:
        title = HTTPStatus(self.status).phrase if self.status != CLIENT_GONE else "Client Closed Request"
        members = {
            "type": f"urn:assay:problem:{self.code}",
            "title": title,
            "status": self.status,
            "code": self.code,
            "detail": self.detail,
            "request_id": request_id,
            **self.more,
        }
        return json.dumps(members).encode()

    def response(self, request_id: str | None) -> Response:
        return Response(self.body(request_id), self.status, self.headers, MEDIA_TYPE)


def responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """What OpenAPI says of these statuses of a route. The body is described once, by `openapi.describe`."""
    described: dict[int | str, dict[str, Any]] = {}
    for status in statuses:
        example = json.loads(ProblemError(status, _MEANINGS[status].partition(";")[0]).body("b1946ac92492d234"))
        schema = {"$ref": "#/components/schemas/ProblemBody"}
        content = {MEDIA_TYPE: {"schema": schema, "example": example}}
        described[status] = {"description": _MEANINGS[status], "content": content}
        if status in (429, 503):
            wait = {"description": "Seconds after which another try makes sense.", "schema": {"type": "integer"}}
            described[status]["headers"] = {"Retry-After": wait}
    return described


def too_many_items(items: int, most: int) -> ProblemError:
    return ProblemError(413, f"{items} items; one request may hold {most}", code="too_many_items")


def problem_of(error: AssayError) -> ProblemError:
    """The reply to an error of ours that concerns the whole request."""
    for kind, status in _STATUSES.items():
        if isinstance(error, kind):
            return ProblemError(status, str(error))
    if isinstance(error, BusyError):
        seconds = max(1, math.ceil(error.retry_after or 1))
        status = 429 if isinstance(error, RateLimitError) else 503
        return ProblemError(status, str(error), headers={"Retry-After": str(seconds)})
    return ProblemError(500, "the server failed", code=error.code)


#: Of the errors whose text is for the client; the first class that fits counts.
_STATUSES: dict[type[AssayError], int] = {
    NotFoundError: 404,
    ForbiddenError: 403,
    BadInputError: 422,
    ConflictError: 409,
    LateError: 504,
}


def problem_of_invalid(
    error: RequestValidationError, places: Mapping[str, frozenset[str]] = MappingProxyType({})
) -> ProblemError:
    """The reply to a body or parameters of the wrong shape, naming the fields. `places`: what fields there may be."""
    # Of a union's branches the one that got furthest is what the caller meant.
    furthest = sorted(error.errors(), key=lambda e: -len(e["loc"]))[:_MAX_FIELDS]
    fields = _merged([_field_error(error, places) for error in furthest])
    first = fields[0]
    where = f"{first['field']}: " if first["field"] else ""
    return ProblemError(422, f"{where}{first['message']}", more={"errors": fields})


def install_handlers(
    app: FastAPI,
    reply: Callable[[ProblemError, str | None], Response] = lambda problem, request_id: problem.response(request_id),
) -> None:
    """Make every error of a route a problem; what no handler takes is the gate's matter. `reply`: the problem as the
    application's clients read it."""

    def handler(problem: Callable[[Any, Request], ProblemError]) -> Callable[[Request, Exception], Any]:
        async def handle(request: Request, error: Exception) -> Response:
            return reply(problem(error, request), request_id_of(request))

        return handle

    app.add_exception_handler(ProblemError, handler(lambda error, _: error))
    app.add_exception_handler(AssayError, handler(lambda error, _: problem_of(error)))
    app.add_exception_handler(HTTPException, handler(_problem_of_http))
    app.add_exception_handler(
        RequestValidationError, handler(lambda error, request: problem_of_invalid(error, _field_places(request)))
    )


def _problem_of_http(error: HTTPException, request: Request) -> ProblemError:
    """Where no route answered: the methods of the path, or the paths that are near."""
    detail, status, headers = str(error.detail), error.status_code, error.headers
    if status == 405:
        path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
        matching = (methods for route, methods in _methods(request.app) if compile_path(route)[0].match(path))
        allowed = sorted(set().union(*matching))
        if allowed:
            detail, headers = (
                f"this path takes {' or '.join(allowed)}",
                {**(headers or {}), "Allow": ", ".join(allowed)},
            )
    elif status == 404 and detail == HTTPStatus.NOT_FOUND.phrase:
        near = nearest_names(request.scope["path"], {path for path, _ in _methods(request.app)})
        detail = f"there is no such path{near or '; GET /openapi.json lists them'}"
    return ProblemError(status, detail, headers=headers)


def _methods(app: FastAPI) -> list[tuple[str, set[str]]]:
    """Each documented route's path and methods; newer FastAPIs keep those of included routers apart."""
    routes: Iterable[Any] = getattr(routing, "iter_route_contexts", iter)(app.routes)
    return [(each.path, set(each.methods or ())) for each in routes if getattr(each, "include_in_schema", False)]


def _field_places(request: Request) -> Mapping[str, frozenset[str]]:
    """Of the body of the request's route: where in it (`items`, "" at the top) there may be which fields."""
    endpoint = getattr(request.scope.get("route"), "endpoint", None)
    body = get_type_hints(endpoint).get("body") if endpoint is not None else None
    return _places_of(body) if isinstance(body, type) and issubclass(body, BaseModel) else {}


@cache
def _places_of(body: type[BaseModel]) -> Mapping[str, frozenset[str]]:
    schema = body.model_json_schema()
    places: dict[str, set[str]] = {}

    def add(part: Mapping[str, Any], parent: tuple[str, ...], above: frozenset[str]) -> None:
        if (name := str(part.get("$ref", "")).rpartition("/")[2]) and name not in above:
            add(schema["$defs"][name], parent, above | {name})
        for field, value in part.get("properties", {}).items():
            places.setdefault(".".join(parent), set()).add(field)
            add(value, (*parent, field), above)
        for inner in (part.get("items"), *part.get("anyOf", ()), *part.get("oneOf", ())):
            if isinstance(inner, Mapping):
                add(inner, parent, above)

    add(schema, (), frozenset())
    return {parent: frozenset(fields) for parent, fields in places.items()}


def _unknown_field(field: str, places: Mapping[str, frozenset[str]]) -> str:
    """`items.0.respons`: the near names of its parent, or where there is a field of this name."""
    *above, name = field.split(".")
    here = ".".join(part for part in above if not part.isdigit())
    if near := nearest_names(name, places.get(here, ())):
        return f"there is no such field{near}"
    elsewhere = sorted(parent or "the body itself" for parent, fields in places.items() if name in fields)
    return (
        f"there is no such field here; {' or '.join(elsewhere)} may have one" if elsewhere else "there is no such field"
    )


def _field_error(error: Mapping[str, Any], places: Mapping[str, frozenset[str]]) -> dict[str, str]:
    """Pydantic's error as the field and what is wrong with it, in words for somebody who sends requests by hand."""
    if error["type"] == "json_invalid":
        # Where, but not what: pydantic's message quotes no text of the caller's, FastAPI's own has no such place.
        return {"field": "", "message": f"the body is not JSON{_json_place(error)}"}
    if tuple(error["loc"]) == ("body",) and error["type"] in ("dict_type", "model_type", "model_attributes_type"):
        return {"field": "", "message": "not a JSON object; send one, with Content-Type: application/json"}
    if tuple(error["loc"]) == ("body",) and error["type"] == "missing":
        return {"field": "", "message": "the body is empty"}
    if error["type"] == "extra_forbidden":
        field = _field_name(error["loc"])
        return {"field": field, "message": _unknown_field(field, places)}
    if error["type"] == "too_short" and error.get("ctx", {}).get("min_length", 1) == 1:
        return {"field": _field_name(error["loc"]), "message": "is empty"}
    return {"field": _field_name(error["loc"]), "message": plain_reason({**error, "input": None})}


def _merged(fields: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    """One entry a field: what each branch of a union wanted of it."""
    by_field: dict[str, list[str]] = {}
    for each in fields:
        messages = by_field.setdefault(each["field"], [])
        if each["message"] not in messages:
            messages.append(each["message"])
    return [{"field": field, "message": "; or: ".join(messages)} for field, messages in by_field.items()]


def _json_place(error: Mapping[str, Any]) -> str:
    """`: ... at line 1 column 7` of pydantic's message, where it is pydantic's."""
    _, _, position = str(error["msg"]).partition("Invalid JSON: ")
    return f": {position}" if position else ""


def _field_name(location: Sequence[str | int]) -> str:
    """`items.0.prompt` of pydantic's place in the body; the names of a union's branches are left out."""
    return ".".join(str(part) for part in location[1:] if not _BRANCH.fullmatch(str(part)))


def request_id_of(request: Request) -> str | None:
    request_id: str | None = request.scope.get("state", {}).get("request_id")
    return request_id
