"""Lists in bodies of requests: how many members there may be, and that a wrong one ends the reading."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

import httpx
import pytest
from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError

from assay.http.body_lists import ListOf
from assay_serving.chat.bodies import ChatCompletionRequest
from assay_serving.engines.transformers import TransformersScorer
from assay_serving.model_config import ModelConfig
from assay_serving.process import RunningServer, running_server
from assay_serving.server.core.settings import ServerSettings
from assay_serving.server.http.request_bodies import ItemBody

MAX_ITEMS = 50


@pytest.fixture(scope="module")
def server(tiny_reward_model: Path) -> Iterator[RunningServer]:
    scorer = TransformersScorer.load(ModelConfig(str(tiny_reward_model), device="cpu", served_as="rm"))
    with running_server({"rm": scorer}, settings=ServerSettings(max_items=MAX_ITEMS)) as running:
        yield running


def lists_in(schema: Any) -> Iterator[dict[str, Any]]:
    """Every list whose members can be wrong."""
    if isinstance(schema, dict):
        if schema.get("type") == "list" and schema.get("items_schema", {"type": "any"})["type"] != "any":
            yield schema
        for name, value in schema.items():
            if name not in ("metadata", "default"):
                yield from lists_in(value)
    elif isinstance(schema, list | tuple):
        for value in schema:
            yield from lists_in(value)


def test_every_list_of_a_body_ends_at_its_first_wrong_member(server: RunningServer) -> None:
    kinds = {
        kind
        for route in server.app.routes
        if isinstance(route, APIRoute) and not route.path.startswith("/v1/admin/")
        if (kind := get_type_hints(route.endpoint).get("body")) is not None
    } | {ChatCompletionRequest}
    assert len(kinds) > 10
    found = [(kind, each) for kind in kinds for each in lists_in(kind.__pydantic_core_schema__)]
    assert len(found) > 30
    assert [kind for kind, each in found if not each.get("fail_fast")] == []


def test_one_wrong_member_is_told_and_the_others_are_not_read() -> None:
    adapter = TypeAdapter[list[ItemBody]](ListOf[ItemBody])
    good = {"prompt": "a", "response": "b"}
    with pytest.raises(ValidationError) as wrong:
        adapter.validate_python([good, {"prompt": "a"}, {"prompt": 1}, good])
    assert {error["loc"][0] for error in wrong.value.errors()} == {1}
    assert len(adapter.validate_python([good, good])) == 2


@pytest.mark.parametrize(
    ("path", "field", "member"),
    [
        ("/v1/score", "items", {}),
        ("/v1/score", "items", {"prompt": "a", "response": "b"}),
        ("/v1/score", "groups", {"prompt": "a", "responses": []}),
        ("/v1/compare", "pairs", None),
    ],
)
def test_more_items_than_may_be_are_counted_not_read(server: RunningServer, path: str, field: str, member: Any) -> None:
    reply = httpx.post(server.url + path, json={field: [member] * (MAX_ITEMS + 1)})
    problem = reply.json()
    assert (reply.status_code, problem["code"]) == (413, "too_many_items")
    assert problem["detail"] == f"{MAX_ITEMS + 1} items; one request may hold {MAX_ITEMS}"
    assert problem["request_id"]


def test_of_many_wrong_values_the_first_are_named(server: RunningServer) -> None:
    wrong = {"messages": [{"role": "user", "content": 1}] * 1000}
    reply = httpx.post(server.url + "/v1/score", json={"items": [wrong] * MAX_ITEMS}, timeout=240)
    assert reply.status_code == 422
    assert [error["field"] for error in reply.json()["errors"]] == ["items.0.messages.0.content"]
    reply = httpx.post(server.url + "/v1/score", json={"prompt": "a", "responses": [1] * 200_000}, timeout=240)
    assert reply.json()["detail"].startswith("responses.0: ")
    for path, body in (
        ("/v1/embeddings", {"input": [[1, "a"], ["b"]]}),
        ("/get_reward", {"query": ["a", 1, 2]}),
    ):
        reply = httpx.post(server.url + path, json=body)
        assert 400 <= reply.status_code < 500
        assert len(reply.text) < 2000
