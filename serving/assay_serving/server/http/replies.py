"""Replies of the native routes for OpenAPI, by `replies.yaml`: an example of each, from which its schema follows, and
what fields mean.

Routes write plain dictionaries, because validating a reply costs more than building it; a test checks every reply
against its schema.
"""

from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict

from assay_serving.server.http.json_route import examples


class _Loader(yaml.SafeLoader):
    """`!one_of`: a tuple, as `json_route.described` takes it."""


def _one_of(loader: _Loader, node: yaml.SequenceNode) -> tuple[Any, ...]:
    return tuple(loader.construct_sequence(node, deep=True))


_Loader.add_constructor("!one_of", _one_of)
REPLIES: dict[str, Any] = yaml.load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"), _Loader)
#: What a field of these replies says, wherever it stands.
FIELDS: dict[str, str] = REPLIES["fields"]


class ProblemBody(BaseModel):
    """An error as problem details (RFC 9457). `code` is for programs, `detail` for people. Newer servers may add
    fields."""

    model_config = ConfigDict(extra="allow") | examples(
        {
            "type": "urn:assay:problem:bad_input",
            "title": "Unprocessable Content",
            "status": 422,
            "code": "bad_input",
            "detail": "items.0.response: Field required",
            "request_id": "b1946ac92492d234",
            "errors": [{"field": "items.0.response", "message": "Field required"}],
        }
    )

    type: str
    title: str
    status: int
    code: str
    detail: str
    request_id: str | None
    errors: list[dict[str, Any]] | None = None
