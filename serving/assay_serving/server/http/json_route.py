"""Routes with a JSON body: described to OpenAPI by FastAPI, parsed in one step by pydantic's own JSON parser.

FastAPI parses a body, validates it, opens two exit stacks and resolves dependencies; a route here has one body and no
dependencies (docs/serving/api.md has what that saves). Routes without a body are FastAPI's.
"""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, get_type_hints

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import from_json, to_json
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from assay.http.problems import ProblemError, responses

MAX_ERRORS = 1000  #: beyond it errors are only counted: listing one takes microseconds and a kilobyte


class JsonRoute(APIRoute):
    """A route whose endpoint has the parameters `body` and `request`, or none that is called `body`.

    `alternatives`: routes of other wire formats with the same path. One of them replies to a body that is not this
    route's and has a field that only the other's has.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        self.alternatives: list[JsonRoute] = []
        super().__init__(path, endpoint, **options)
        self.reads_body = "body" in get_type_hints(endpoint)
        if self.reads_body:
            self.app = _answering(self.get_route_handler())

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        endpoint: Callable[..., Coroutine[Any, Any, Response]] = self.endpoint
        kind = get_type_hints(endpoint).get("body")
        if kind is None:
            return super().get_route_handler()
        read = kind.model_validate_json
        assert issubclass(kind, BaseModel)

        async def handle(request: Request) -> Response:
            content = await request.body()
            check_content_type(request)
            try:
                body = read(content)
            except ValidationError as error:
                if (other := self._alternative(content, kind)) is not None:
                    return await other.get_route_handler()(request)
                if (count := error.error_count()) > MAX_ERRORS:
                    raise ProblemError(422, f"{count} values of the body are wrong") from None
                errors = error.errors(include_url=False, include_context=False, include_input=False)
                if not content:
                    errors = [{"type": "missing", "loc": (), "msg": "Field required", "input": None}]
                raise RequestValidationError([{**e, "loc": ("body", *e["loc"])} for e in errors]) from None
            return await endpoint(body=body, request=request)

        return handle

    def _alternative(self, content: bytes, kind: type[BaseModel]) -> "JsonRoute | None":
        """The route whose wire format this body has, as its fields say."""
        if not self.alternatives:
            return None
        try:
            body = from_json(content)
        except ValueError:
            return None
        fields = set(body).difference(kind.model_fields) if isinstance(body, dict) else set()
        for route in self.alternatives:
            other: type[BaseModel] = get_type_hints(route.endpoint)["body"]
            if fields.intersection(other.model_fields):
                return route
        return None


def described(reply: Any, *statuses: int, about: Mapping[str, str] = {}) -> dict[int | str, dict[str, Any]]:
    """What OpenAPI says of a route: its reply, and problems with these statuses. `reply`: an example of it, in which a
    tuple holds one of each form that a value may have. `about`: what fields mean, by name."""
    media = {"schema": _schema_of(reply, about), "example": _first_form(reply)}
    return {200: {"content": {"application/json": media}}, **responses(*statuses)}


def _first_form(example: Any) -> Any:
    if isinstance(example, dict):
        return {name: _first_form(value) for name, value in example.items()}
    if isinstance(example, list):
        return list(map(_first_form, example))
    return _first_form(example[0]) if isinstance(example, tuple) else example


def _schema_of(example: Any, about: Mapping[str, str], *, null: bool = False) -> dict[str, Any]:
    """The JSON Schema of values like the example: an object has its fields, and may have more. `null`: None is null,
    and not any value."""
    if example is None:
        return {"type": "null"} if null else {}
    if isinstance(example, tuple):
        forms: list[dict[str, Any]] = []
        for schema in (_schema_of(form, about, null=True) for form in example):
            forms += [] if schema in forms else [schema]
        return forms[0] if len(forms) == 1 else {"anyOf": forms}
    if isinstance(example, list):
        return {"type": "array", "items": _schema_of(tuple(example), about) if example else {}}
    if isinstance(example, dict):
        properties = {name: _schema_of(value, about) for name, value in example.items()}
        for name in about.keys() & properties:
            properties[name] |= {"description": about[name]}
        return {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": {bool: "boolean", int: "integer", float: "number", str: "string"}[type(example)]}


def examples(*payloads: dict[str, Any]) -> ConfigDict:
    """The configuration of a body or reply that OpenAPI shows with these examples."""
    return ConfigDict(json_schema_extra={"examples": [*payloads]})


def json_reply(payload: dict[str, Any]) -> Response:
    """The payload as a response."""
    return Response(to_json(payload), media_type="application/json")


def mount(app: FastAPI, router: APIRouter) -> None:
    """Add the router's routes to the application itself: an included router matches routes twice per request.

    A route whose path is taken becomes an alternative of that one.
    """
    for route in router.routes:
        first = next((each for each in app.router.routes if _same_request(each, route)), None)
        if isinstance(first, JsonRoute) and isinstance(route, JsonRoute):
            first.alternatives.append(route)
        else:
            app.router.routes.append(route)


def _same_request(first: BaseRoute, second: BaseRoute) -> bool:
    """Whether both reply to the same method and path."""
    if not isinstance(first, APIRoute) or not isinstance(second, APIRoute):
        return False
    return first.path == second.path and bool((first.methods or set()) & (second.methods or set()))


def _answering(handle: Callable[[Request], Coroutine[Any, Any, Response]]) -> ASGIApp:
    """The handler as an ASGI application; its errors go to the application's error handlers."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        response = await handle(Request(scope, receive, send))
        await response(scope, receive, send)

    return app


def check_content_type(request: Request) -> None:
    """Raises ProblemError 415 for another content type than JSON; without one, JSON is assumed."""
    content_type = request.headers.get("content-type", "")
    media = content_type.partition(";")[0].strip().lower()
    if media and media != "application/json" and not (media.startswith("application/") and media.endswith("+json")):
        raise ProblemError(415, "not a JSON body; send one, with Content-Type: application/json")
