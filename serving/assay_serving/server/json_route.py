"""Routes that take a JSON body: described to OpenAPI by FastAPI as usual, read in one step when they are called.

FastAPI parses a body, checks it, solves dependencies and calls the route; a route here has one body and no
dependencies, so its bytes go through pydantic's own JSON parser straight into the body (docs/serving/api.md has what
that gains). Routes without a body are FastAPI's.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, get_type_hints

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError

from assay_serving.server.problems import ProblemError


class JsonRoute(APIRoute):
    """A route whose endpoint has the parameters `body` and `request`."""

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
                found = error.errors(include_url=False, include_context=False, include_input=False)
                if not content:
                    found = [{"type": "missing", "loc": (), "msg": "Field required", "input": None}]
                raise RequestValidationError([{**e, "loc": ("body", *e["loc"])} for e in found]) from None
            return await endpoint(body=body, request=request)

        return handle


def check_content_type(request: Request) -> None:
    """Raises ProblemError 415 for a body that says it is not JSON; one that says nothing is taken for JSON."""
    given = request.headers.get("content-type", "")
    media = given.partition(";")[0].strip().lower()
    if media and media != "application/json" and not (media.startswith("application/") and media.endswith("+json")):
        raise ProblemError(415, "not a JSON body; send one, with Content-Type: application/json")
