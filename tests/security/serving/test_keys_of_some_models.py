"""A key that is limited to some models, on every route and wire format: no score, token or name of another model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from assay.errors import BadInputError
from assay.http.docs_pages import PATHS
from assay_serving.engines.transformers import TransformersScorer
from assay_serving.model_config import ModelConfig
from assay_serving.model_loader import open_scorer
from assay_serving.process import RunningServer, running_server
from assay_serving.server.auth.api_keys import KeyRing
from assay_serving.server.auth.key_store import create_key, read_keys
from assay_serving.server.core.settings import ServerSettings

OWN, OTHER = "rm-of-ours", "rm-of-theirs"
TEXT = "<|im_start|>user\nName a metal.<|im_end|>\n<|im_start|>assistant\nGold.<|im_end|>\n"
TURNS = [{"role": "user", "content": "Name a metal."}, {"role": "assistant", "content": "Gold."}]
RESPONSE = {"output": [{"type": "message", "content": [{"type": "output_text", "text": "Gold."}]}]}

#: Bodies of all routes that name a model in the body, then of those that name it in the query string.
IN_BODY: list[tuple[str, dict[str, Any]]] = [
    ("/v1/score", {"prompt": "Name a metal.", "responses": ["Gold."]}),
    ("/v1/score", {"queries": "Name a metal.", "documents": ["Gold."]}),
    ("/v1/compare", {"pairs": [{"prompt": "Name a metal.", "a": "Gold.", "b": "Glass."}]}),
    ("/v1/rank", {"prompt": "Name a metal.", "responses": ["Gold.", "Glass."]}),
    ("/classify", {"input": TEXT}),
    ("/classify", {"messages": TURNS}),
    ("/classify", {"text": [TEXT]}),
    ("/pooling", {"input": TEXT, "task": "classify"}),
    ("/pooling", {"messages": TURNS}),
    ("/score", {"text_1": "Name a metal.", "text_2": "Gold."}),
    ("/rerank", {"query": "Name a metal.", "documents": ["Gold.", "Glass."]}),
    ("/v1/rerank", {"query": "Name a metal.", "documents": ["Gold.", "Glass."]}),
    ("/v2/rerank", {"query": "Name a metal.", "documents": ["Gold.", "Glass."]}),
    ("/v1/embeddings", {"input": TEXT}),
    ("/v1/score/evaluation", {"messages": [TEXT]}),
    ("/tokenize", {"prompt": "Name a metal."}),
    ("/detokenize", {"tokens": [1, 2, 3]}),
    ("/v1/chat/completions", {"messages": TURNS[:1], "max_tokens": 1}),
]
IN_QUERY: list[tuple[str, dict[str, Any]]] = [
    ("/get_reward", {"query": [TEXT]}),
    ("/slime", {"prompt": "Name a metal.", "response": "Gold."}),
    ("/verify", {"responses_create_params": {"input": TURNS[:1]}, "response": RESPONSE}),
    ("/compare", {"conversation_history": TURNS[:1], "response_objs": [RESPONSE, RESPONSE]}),
]
PLAN = {"reference": "anything"}
ORDERS: list[tuple[str, str, Any]] = [
    ("POST", f"/{OTHER}/swap", {"plan": PLAN}),
    ("GET", f"/{OTHER}/swap", None),
    ("POST", f"/{OTHER}/promote", None),
    ("POST", f"/{OTHER}/abort", None),
    ("POST", f"/{OTHER}/reference", None),
    ("GET", f"/{OTHER}", None),
    ("DELETE", f"/{OTHER}", None),
    ("POST", "", {"name": OWN, "plan": PLAN}),
    ("POST", "", {"plan": PLAN}),
    ("POST", f"/{OWN}/swap", {"plan": PLAN}),  # to their model, under our name
]
#: POST routes that use no model.
WITHOUT_MODEL = {"/ping", "/seed_session", "/close_session", "/aggregate_metrics"}


@dataclass(frozen=True)
class Limited:
    """A server, and clients with a key for everything and one for some models."""

    server: RunningServer
    everything: httpx.Client
    limited: httpx.Client


def serving(scorers: dict[str, Any], folder: Path, models: list[str], **settings: Any) -> Iterator[Limited]:
    file = folder / "keys.json"
    keys = [
        create_key(file, "all", ["score", "admin"])[0],
        create_key(file, "ours", ["score", "admin"], models=models)[0],
    ]
    with running_server(scorers, settings=ServerSettings(keys_file=str(file), **settings)) as server:
        clients = [httpx.Client(base_url=server.url, headers={"X-API-Key": key}, timeout=240) for key in keys]
        with clients[0], clients[1]:
            yield Limited(server, *clients)


@pytest.fixture(scope="module")
def scorer(tiny_reward_model: Path) -> TransformersScorer:
    return TransformersScorer.load(ModelConfig(str(tiny_reward_model), device="cpu", served_as=OWN))


@pytest.fixture(scope="module")
def other(tiny_reward_model: Path) -> TransformersScorer:
    return TransformersScorer.load(ModelConfig(str(tiny_reward_model), device="cpu", served_as=OTHER))


@pytest.fixture(scope="module")
def two(
    scorer: TransformersScorer, other: TransformersScorer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Limited]:
    yield from serving({OWN: scorer, OTHER: other}, tmp_path_factory.mktemp("two"), [OWN])


@pytest.fixture(scope="module")
def theirs_only(other: TransformersScorer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Limited]:
    """One model is served, for which dialects accept any name."""
    yield from serving({OTHER: other}, tmp_path_factory.mktemp("theirs"), [OWN])


def requests_for(model: str | None) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Path, query and body of a request of every wire format for that model."""
    for path, body in IN_BODY:
        yield path, {}, body if model is None else {**body, "model": model}
    for path, body in IN_QUERY:
        yield path, {} if model is None else {"model": model}, body


def scored(server: Limited, model: str) -> float:
    """Items that the model has scored, by the server's counters."""
    lines = server.everything.get("/metrics").text.splitlines()
    names = (f'assay_items_total{{model="{model}"}} ', f'assay_cache_hits_total{{model="{model}"')
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(names))


def test_every_route_is_walked(two: Limited) -> None:
    paths = {path for path, methods in two.server.app.openapi()["paths"].items() if "post" in methods}
    ours = {path for path, _ in (*IN_BODY, *IN_QUERY)}
    assert {path for path in paths if not path.startswith("/v1/admin/")} == ours | WITHOUT_MODEL


def test_no_wire_format_uses_another_model(two: Limited) -> None:
    before = scored(two, OTHER)
    for path, query, body in requests_for(OTHER):
        reply = two.limited.post(path, params=query, json=body)
        assert reply.status_code == 403, (path, reply.text)
        assert f"the key ours may not use the model '{OTHER}'; it is limited to {OWN}" in reply.text
    assert scored(two, OTHER) == before
    answered: set[str] = set()
    for path, query, body in requests_for(OTHER):
        if two.everything.post(path, params=query, json=body).is_success:
            answered.add(path)
    assert answered == {path for path, _ in (*IN_BODY, *IN_QUERY)} - {"/v1/chat/completions"}
    assert scored(two, OTHER) > before


def test_its_own_model_is_served_by_name_and_without_one(two: Limited) -> None:
    for name in (OWN, None):
        for path, query, body in requests_for(name):
            if path == "/v1/chat/completions" or (path == "/v1/score/evaluation" and name is None):
                continue  # no scalar model chats; that format needs a name
            reply = two.limited.post(path, params=query, json=body)
            assert reply.status_code == 200, (path, reply.text)
            assert OTHER not in reply.text
            assert reply.headers.get("X-Assay-Model", OWN) == OWN


@pytest.mark.parametrize("name", ["gpt-4", f"{OWN} ", OTHER.upper(), "x" * 4000])
def test_unknown_and_other_names_are_refused_alike(two: Limited, name: str) -> None:
    for path, query, body in requests_for(name):
        reply = two.limited.post(path, params=query, json=body)
        assert reply.status_code == 403, (path, reply.text)
        assert OTHER not in reply.text
        assert len(reply.text) < 600


@pytest.mark.parametrize("name", [OWN, OTHER, "default", "gpt-4", None])
def test_any_name_where_one_is_served_is_no_way_round(theirs_only: Limited, name: str | None) -> None:
    before = scored(theirs_only, OTHER)
    for path, query, body in requests_for(name):
        reply = theirs_only.limited.post(path, params=query, json=body)
        assert reply.status_code in (400, 403, 404, 422), (path, reply.text)
        assert name == OTHER or OTHER not in reply.text, path
    assert scored(theirs_only, OTHER) == before
    assert theirs_only.everything.post("/classify", json={"input": TEXT, "model": "gpt-4"}).status_code == 200


def test_lists_show_only_its_models(two: Limited) -> None:
    paths = [path for path, methods in two.server.app.openapi()["paths"].items() if "get" in methods]
    seen = 0
    for path in {*paths, *PATHS}:
        if "{name}" in path:
            continue
        reply = two.limited.get(path)
        assert OTHER not in reply.text, path
        seen += OWN in reply.text
    assert seen >= 6  # models, principles, readyz, model_info twice, admin
    assert [each["id"] for each in two.limited.get("/v1/models").json()["data"]] == [OWN]
    assert two.limited.get("/get_model_info").json()["served_model_name"] == OWN
    assert two.limited.get("/metrics").status_code == 403
    for path in (f"/v1/models/{OTHER}", f"/v1/principles?model={OTHER}", f"/model_info?model={OTHER}"):
        assert two.limited.get(path).status_code == 403
        assert two.everything.get(path).status_code == 200


def test_orders_for_other_models_are_refused(two: Limited) -> None:
    for method, path, body in ORDERS:
        reply = two.limited.request(method, "/v1/admin/models" + path, json=body)
        assert reply.status_code == 403, (method, path, reply.text)
        assert path.startswith(f"/{OTHER}") or OTHER not in reply.text
    assert two.limited.post("/v1/admin/reload").status_code == 403
    assert two.limited.post(f"/v1/admin/models/{OWN}/reference").status_code == 200
    assert OTHER in two.everything.get("/v1/admin/models").text


def test_an_open_health_probe_sees_no_names(scorer: TransformersScorer, tmp_path: Path) -> None:
    for server in serving({OWN: scorer}, tmp_path, [OTHER], open_health=True):
        assert httpx.get(server.server.url + "/readyz").json() == {"status": "ready", "models": []}
        assert server.limited.get("/readyz").json()["models"] == []
        assert server.everything.get("/readyz").json()["models"] == [OWN]


def test_of_a_composed_reward_the_name_that_is_called_counts(
    scorer: TransformersScorer, tiny_reward_model: Path, tmp_path: Path
) -> None:
    description = {
        "kind": "composed",
        "parts": [{"name": "helpful", "model": str(tiny_reward_model)}],
        "combine": {"kind": "weighted_sum", "weights": {"helpful": 2.0}},
    }
    file = tmp_path / "safe.yaml"
    file.write_text(yaml.safe_dump(description))
    composed = open_scorer(ModelConfig(str(file), device="cpu", served_as="safe"))
    for server in serving({"safe": composed, OWN: scorer}, tmp_path, ["safe"]):
        body = {"prompt": "Name a metal.", "responses": ["Gold."]}
        [score] = server.limited.post("/v1/score", json={**body, "model": "safe"}).json()["results"]
        assert isinstance(score["reward"], float)
        assert server.limited.post("/v1/score", json={**body, "model": OWN}).status_code == 403


def test_a_key_file_of_before_loads_unchanged(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    key, _ = create_key(file, "all", ["score"])
    assert "models" not in json.loads(file.read_text())["keys"][0]  # as versions without the limit write and read it
    limited, entry = create_key(file, "ours", ["score"], models=[OWN, OWN])
    assert entry.models == (OWN,)
    assert read_keys(file).entries[1] == entry
    ring = KeyRing(file=file)
    accesses = ring.find(key), ring.find(limited)
    assert [access.client.models for access in accesses if access is not None] == [None, (OWN,)]


@pytest.mark.parametrize("models", [[], [""], "rm", ["a\nb"], [7], 7])
def test_a_limit_that_is_none_is_refused(tmp_path: Path, models: Any) -> None:
    file = tmp_path / "keys.json"
    create_key(file, "ours", ["score"], models=[OWN])
    payload = json.loads(file.read_text())
    payload["keys"][0]["models"] = models
    file.write_text(json.dumps(payload))
    with pytest.raises(BadInputError, match="row 1"):
        read_keys(file)
