"""The server's OpenAPI description: FastAPI's own, completed.

Covers: the body of problems, keys, request ids, an example of every request and reply. Leaves out: descriptions of
routes, bodies and replies, which stand beside them.
"""

from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import BaseModel

from assay_serving.server.http.replies import ProblemBody

_KEYS = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "Authorization: Bearer KEY"},
    "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
}
_REQUEST_ID = {
    "description": "The caller's X-Request-Id, or one made for the request; in the log line and in every problem.",
    "schema": {"type": "string"},
}


def describe(app: FastAPI) -> None:
    """Make `app.openapi()` and /openapi.json give the completed description."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _completed(app)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _completed(app: FastAPI) -> dict[str, Any]:
    description: dict[str, Any] = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes
    )
    components = description.setdefault("components", {})
    schemas: dict[str, Any] = components.setdefault("schemas", {})
    schemas["ProblemBody"] = ProblemBody.model_json_schema()
    for name, examples in _examples_of(BaseModel).items():
        if name in schemas:  # FastAPI has left out what is null in them
            schemas[name]["examples"] = examples
    for route in app.routes:
        if isinstance(route, APIRoute) and route.include_in_schema and "content" in route.responses.get(200, {}):
            for method in route.methods or ():
                reply = description["paths"][route.path_format][method.lower()]["responses"]["200"]
                reply["content"] = route.responses[200]["content"]
    components["securitySchemes"] = _KEYS
    # The empty choice: a server without keys is open.
    description["security"] = [{name: []} for name in _KEYS] + [{}]
    for operation in _operations(description):
        for reply in operation["responses"].values():
            reply.setdefault("headers", {})["X-Request-Id"] = _REQUEST_ID
        for media in _media(operation):
            reference = media.get("schema", {}).get("$ref", "").rpartition("/")[2]
            examples = schemas.get(reference, {}).get("examples")
            if examples and not {"example", "examples"} & media.keys():
                media["examples"] = {str(number): {"value": each} for number, each in enumerate(examples, start=1)}
    return description


def _examples_of(base: type[BaseModel]) -> dict[str, list[Any]]:
    """Of the server's own bodies, by name."""
    examples: dict[str, list[Any]] = {}
    for each in base.__subclasses__():
        examples |= _examples_of(each)
        extra = each.model_config.get("json_schema_extra")
        if each.__module__.startswith("assay_serving.server.") and isinstance(extra, dict) and "examples" in extra:
            listed: Any = extra["examples"]
            examples[each.__name__] = list(listed)
    return examples


def _operations(description: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for path in description["paths"].values():
        yield from path.values()


def _media(operation: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every body of a request or reply."""
    for holder in (operation.get("requestBody", {}), *operation["responses"].values()):
        yield from holder.get("content", {}).values()
