"""Bodies of the web API: each object in each of them refuses a field that it does not know, and says which."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from assay.workspace import Workspace
from assay_web.app import create_app
from assay_web.settings import WebSettings


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    folder: Path = tmp_path_factory.mktemp("bodies") / "workspace"
    with TestClient(create_app(Workspace.create(folder), WebSettings(open_access=True)), "http://127.0.0.1") as client:
        entered = client.post("/api/session", json={"name": "ada"}).raise_for_status()
        client.headers["X-CSRF-Token"] = entered.json()["csrf"]
        yield client


def test_every_object_in_a_body_refuses_a_field_that_it_does_not_know(client: TestClient) -> None:
    described: dict[str, Any] = client.get("/openapi.json").json()
    schemas, found = described["components"]["schemas"], dict[str, Any]()

    def walk(part: Any) -> None:
        if isinstance(part, list):
            for each in part:
                walk(each)
        elif isinstance(part, dict):
            name = str(part.get("$ref", "")).rpartition("/")[2]
            if name and name not in found:
                found[name] = schemas[name]
                walk(schemas[name])
            for each in part.values():
                walk(each)

    operations = [each for path in described["paths"].values() for each in path.values()]
    bodies = [each["requestBody"] for each in operations if "requestBody" in each]
    walk(bodies)
    assert len(bodies) >= 20
    assert {"NewQueue", "VoteBody", "PrincipleBody", "ModelChoice", "SignIn"} <= found.keys()
    objects = {name: schema for name, schema in found.items() if schema.get("type") == "object"}
    assert [name for name, schema in objects.items() if schema.get("additionalProperties") is not False] == []


@pytest.mark.parametrize(
    ("given", "field", "said"),
    [
        ({"lease": 0}, "lease", "there is no such field"),
        ({"unknown": 1}, "unknown", "there is no such field"),
        ({"overlap": 0}, "overlap", "must be at least 1; or: must be 'all'"),
    ],
)
def test_a_queue_is_not_made_of_a_body_that_is_not_understood(
    client: TestClient, given: dict[str, Any], field: str, said: str
) -> None:
    refused = client.post("/api/queues", json={"name": "q", **given})
    assert refused.status_code == 422
    assert refused.json()["errors"] == [{"field": field, "message": said}]
    assert refused.json()["detail"] == f"{field}: {said}"
