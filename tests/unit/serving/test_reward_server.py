"""The server over real HTTP with the real engine: replies, errors, keys, limits, logs."""

from __future__ import annotations

import http.client
import logging
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from fastapi import Request, Response
from fastapi.testclient import TestClient
from starlette.middleware.base import RequestResponseEndpoint

from assay.domain import Message
from assay.errors import BadInputError, BusyError
from assay.http.listening import claim_port
from assay.score import Score, ScoreFailure, score_from_dict
from assay_serving.engines.transformers import TransformersScorer
from assay_serving.model_config import ModelConfig
from assay_serving.process import RunningServer, running_server
from assay_serving.scorer import ScoreItem
from assay_serving.server.app import create_app
from assay_serving.server.core.settings import ServerSettings

PROMPT = (Message("user", "Name a metal."),)
KEY, OTHER_KEY = "first-key", "second-key"
SECRET = "xyzzy-secret-text"


@pytest.fixture(scope="module")
def scorer(tiny_reward_model: Path) -> TransformersScorer:
    return TransformersScorer.load(ModelConfig(str(tiny_reward_model), device="cpu", served_as="rm"))


@pytest.fixture(scope="module")
def server(scorer: TransformersScorer) -> Iterator[RunningServer]:
    settings = ServerSettings(max_items=50, max_body_bytes=200_000)
    with running_server({"rm": scorer}, settings=settings) as running:
        yield running


@pytest.fixture
def http_client(server: RunningServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=240) as client:
        yield client


def assert_problem(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert (body["status"], body["code"]) == (status, code)
    assert body["type"]
    assert body["title"]
    assert body["detail"]
    assert body["request_id"] == response.headers["x-request-id"]
    return body


def test_items_and_groups_give_the_engines_scores(http_client: httpx.Client, scorer: TransformersScorer) -> None:
    responses = ["Gold.", "", "Glass is no metal. " * 5]
    offline = scorer.score([ScoreItem(PROMPT, response) for response in responses])
    grouped = http_client.post("/v1/score", json={"prompt": "Name a metal.", "responses": responses})
    messages = [m.to_dict() for m in PROMPT]
    items = http_client.post(
        "/v1/score", json={"model": "rm", "items": [{"prompt": messages, "response": r} for r in responses]}
    )
    for reply in (grouped, items):
        assert reply.status_code == 200, reply.text
        body = reply.json()
        assert (body["model"], body["version"]) == ("rm", scorer.info.version)
        found = [score_from_dict(entry) for entry in body["results"]]
        for one, other in zip(found, offline, strict=True):
            assert isinstance(one, Score)
            assert isinstance(other, Score)
            assert one.reward == pytest.approx(other.reward, abs=1e-5)
            assert (one.tokens, one.model, one.template_hash) == (other.tokens, "rm", other.template_hash)
        tokens = sum(score.tokens for score in offline if isinstance(score, Score))
        usage = body["usage"]
        assert (usage["items"], usage["failed"], usage["tokens"]) == (3, 0, tokens)
        assert 0 <= usage["cached"] <= 3


def test_a_failed_item_is_an_entry_in_its_place(http_client: httpx.Client) -> None:
    body = http_client.post("/v1/score", json={"prompt": "Hi.", "responses": ["a", "x" * 3000, "b"]}).json()
    kinds = [score_from_dict(entry) for entry in body["results"]]
    assert isinstance(kinds[1], ScoreFailure)
    assert (kinds[1].code, kinds[1].model) == ("too_long", "rm")
    assert set(body["results"][1]) == {"error"}
    assert isinstance(kinds[0], Score)
    assert isinstance(kinds[2], Score)
    assert body["usage"]["failed"] == 1


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/v1/score", {"items": []}, "items"),
        ("/v1/score", {"groups": []}, "groups"),
        ("/v1/score", {"groups": [{"prompt": "Hi.", "responses": []}]}, "groups.0.responses"),
        ("/v1/score", {"prompt": "Hi.", "responses": []}, "responses"),
        ("/v1/compare", {"pairs": []}, "pairs"),
        ("/v1/rank", {"prompt": "Hi.", "responses": []}, "responses"),
    ],
)
def test_a_request_that_scores_nothing_is_refused(
    http_client: httpx.Client, path: str, body: dict[str, Any], field: str
) -> None:
    problem = assert_problem(http_client.post(path, json=body), 422, "bad_input")
    assert problem["detail"] == f"{field}: is empty"


@pytest.mark.parametrize(
    ("body", "hint"),
    [
        ({"promt": "a", "responses": ["b"]}, "promt: there is no such field; did you mean prompt"),
        ({"prompt": "a", "response": "b"}, "response: there is no such field; did you mean responses?"),
        (
            {"items": [{"prompt": "a", "responses": ["b"]}]},
            "items.0.responses: there is no such field; did you mean response?",
        ),
        (
            {"items": [{"prompt": "a", "response": "b", "model": "rm"}]},
            "items.0.model: there is no such field here; the body itself may have one",
        ),
        (
            {"items": [{"prompt": "a", "respnse": "b"}]},
            "items.0.respnse: there is no such field; did you mean response",
        ),
    ],
)
def test_a_misspelt_field_is_told_the_nearest(http_client: httpx.Client, body: dict[str, Any], hint: str) -> None:
    problem = assert_problem(http_client.post("/v1/score", json=body), 422, "bad_input")
    assert any(f"{error['field']}: {error['message']}".startswith(hint) for error in problem["errors"])


@pytest.mark.parametrize(
    ("content", "kind", "said"),
    [
        (b"{broken", "application/json", "the body is not JSON: key must be a string at line 1 column 2"),
        (b"[1]", "application/json", "not a JSON object"),
        (b'{"prompt": "a", "responses": ["b"]}', "application/x-www-form-urlencoded", "Content-Type: application/json"),
        (b"", "application/json", "the body is empty"),
        (b"{}", "application/json", "give items, or groups, or prompt and responses"),
    ],
)
def test_a_wrong_body_is_told_in_plain_words(http_client: httpx.Client, content: bytes, kind: str, said: str) -> None:
    reply = http_client.post("/v1/score", content=content, headers={"Content-Type": kind})
    assert reply.status_code == (422 if kind == "application/json" else 415)
    detail = reply.json()["detail"]
    assert said in detail
    assert "Value error" not in detail


def test_models_health_and_readiness(http_client: httpx.Client, scorer: TransformersScorer) -> None:
    [model] = http_client.get("/v1/models").json()["data"]
    assert model == {"id": "rm", "object": "model", **scorer.info.to_dict()}
    assert http_client.get("/healthz").json() == {"status": "ok"}
    assert http_client.get("/readyz").json() == {"status": "ready", "models": ["rm"]}


def test_metrics_count_what_happened(scorer: TransformersScorer) -> None:
    with running_server({"rm": scorer}) as running, httpx.Client(base_url=running.url, timeout=240) as client:
        client.post("/v1/score", json={"prompt": "Hi.", "responses": ["a", "x" * 3000]})
        client.get("/no/such/path")
        text = client.get("/metrics").text
    for line in (
        'assay_requests_total{route="/v1/score",status="200"} 1.0',
        'assay_requests_total{route="unmatched",status="404"} 1.0',
        'assay_items_total{model="rm"} 2.0',
        'assay_item_failures_total{code="too_long",model="rm"} 1.0',
        'assay_queue_items{model="rm"} 0.0',
        'assay_reward_count{model="rm"} 1.0',
        'assay_engine_call_items_count{model="rm"} 1.0',
    ):
        assert line in text
    assert 'assay_tokens_total{model="rm"} 0.0' not in text


@pytest.mark.parametrize(
    ("body", "where"),
    [
        (b"", ""),
        (b"{", ""),
        (b"[]", ""),
        (b"null", ""),
        (b'"text"', ""),
        (b"\xff\xfe", ""),
        (b"[" * 50_000, ""),
        (b"{}", ""),
        (b'{"items": 3}', "items"),
        (b'{"items": [{"prompt": "a"}]}', "items.0"),
        (b'{"items": [{"prompt": [], "response": "a"}]}', "items.0"),
        (b'{"items": [{"prompt": [{"role": "boss", "content": "a"}], "response": "b"}]}', "items.0.prompt.0.role"),
        (b'{"items": [{"prompt": "a", "response": 1}]}', "items.0.response"),
        (b'{"items": [{"prompt": "a", "response": "b", "repsonse": "c"}]}', "items.0.repsonse"),
        (b'{"prompt": "a"}', ""),
        (b'{"prompt": [], "responses": ["a"]}', ""),
        (b'{"prompt": "a", "responses": ["b"], "items": []}', ""),
        (b'{"prompt": "a", "responses": "b"}', "responses"),
    ],
)
def test_malformed_bodies_are_refused_naming_the_field(http_client: httpx.Client, body: bytes, where: str) -> None:
    reply = http_client.post("/v1/score", content=body, headers={"Content-Type": "application/json"})
    problem = assert_problem(reply, reply.status_code, "bad_input" if reply.status_code == 422 else "bad_request")
    assert 400 <= reply.status_code < 500
    assert problem["detail"].startswith(where)


def test_the_callers_text_is_not_repeated_in_errors(http_client: httpx.Client) -> None:
    item = {"prompt": SECRET, "response": [SECRET], "principle": SECRET}
    reply = http_client.post("/v1/score", json={"items": [item], "model": SECRET})
    assert_problem(reply, 422, "bad_input")
    assert SECRET not in reply.text
    assert SECRET not in http_client.post("/v1/score", json={"items": [], "model": SECRET}).text


def test_unknown_paths_methods_and_models(http_client: httpx.Client) -> None:
    nothing = assert_problem(http_client.get("/0/1/2"), 404, "not_found")
    assert nothing["detail"] == "there is no such path; GET /openapi.json lists them"
    near = assert_problem(http_client.post("/v1/scores", json={}), 404, "not_found")
    assert near["detail"].startswith("there is no such path; did you mean /v1/score")
    wrong = http_client.get("/v1/score")
    assert assert_problem(wrong, 405, "method_not_allowed")["detail"] == "this path takes POST"
    assert wrong.headers["allow"] == "POST"
    for name in ("other", "../rm", "/etc/passwd", ""):
        body = {"model": name, "prompt": "a", "responses": ["b"]}
        assert "rm" in assert_problem(http_client.post("/v1/score", json=body), 404, "not_found")["detail"]


def test_several_models_must_be_named(scorer: TransformersScorer) -> None:
    body = {"prompt": "a", "responses": ["b"]}
    with running_server({"one": scorer, "two": scorer}) as running:
        url = running.url + "/v1/score"
        assert "one, two" in assert_problem(httpx.post(url, json=body), 422, "bad_input")["detail"]
        reply = httpx.post(url, json={"model": "two", **body}).json()
        assert (reply["model"], reply["results"][0]["model"]) == ("two", "two")


def test_too_many_items(http_client: httpx.Client) -> None:
    assert http_client.post("/v1/score", json={"prompt": "a", "responses": ["b"] * 50}).status_code == 200
    reply = http_client.post("/v1/score", json={"prompt": "a", "responses": ["b"] * 51})
    assert_problem(reply, 413, "too_many_items")


def test_oversized_bodies_are_refused_with_and_without_a_content_length(http_client: httpx.Client) -> None:
    large = b'{"prompt": "' + b"a" * 300_000 + b'", "responses": []}'
    json_type = {"Content-Type": "application/json"}
    assert_problem(http_client.post("/v1/score", content=large, headers=json_type), 413, "body_too_large")

    def chunks() -> Iterator[bytes]:
        for start in range(0, len(large), 50_000):
            yield large[start : start + 50_000]

    # A server that answers early may close before the last chunk is sent; http.client then still reads the answer.
    reply = http_client.post("/v1/score", content=chunks(), headers=json_type)
    assert_problem(reply, 413, "body_too_large")


def test_a_body_that_does_not_come_is_given_up(scorer: TransformersScorer) -> None:
    with running_server({"rm": scorer}, settings=ServerSettings(body_timeout_s=0.5)) as server:
        parts = urlsplit(server.url)
        with socket.create_connection((str(parts.hostname), int(parts.port or 0)), timeout=240) as connection:
            connection.sendall(b"POST /v1/score HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
            reply = http.client.HTTPResponse(connection)
            reply.begin()
            assert reply.status == 408


def test_what_the_gate_refuses_is_counted_and_logged_under_its_route(
    scorer: TransformersScorer, caplog: pytest.LogCaptureFixture
) -> None:
    settings = ServerSettings(api_keys=(KEY,), max_body_bytes=1000)
    keyed = {"X-API-Key": KEY}
    with (
        caplog.at_level(logging.INFO, logger="assay.serving"),
        running_server({"rm": scorer}, settings=settings) as running,
        httpx.Client(base_url=running.url) as client,
    ):
        statuses = [
            client.post("/v1/score", json={}).status_code,
            client.post("/v1/score", content=b" " * 1001, headers=keyed).status_code,
            client.post("/v1/score", json={}, headers=keyed | {"Origin": "http://elsewhere"}).status_code,
            client.put("/v1/score", json={}, headers=keyed).status_code,
            client.get("/v1/models/rm").status_code,
            client.post("/get_reward", json={}).status_code,
            client.post("/v1/chat/completions", json={}).status_code,
            client.get("/docs").status_code,
            client.get("/xyzzy").status_code,
        ]
        text = client.get("/metrics", headers=keyed).text
    assert statuses == [401, 413, 403, 405] + [401] * 5
    routes = ["/v1/score"] * 4 + ["/v1/models/{name:path}", "/get_reward", "/v1/chat/completions", "/docs", "unmatched"]
    for route, status in zip(routes, statuses, strict=True):
        assert f'assay_requests_total{{route="{route}",status="{status}"}} 1.0' in text
        assert any(f" {route} {status}" in record.getMessage() for record in caplog.records)
    assert "xyzzy" not in text + caplog.text


@pytest.mark.slow
def test_every_route_needs_the_key(scorer: TransformersScorer) -> None:
    settings = ServerSettings(api_keys=(KEY, OTHER_KEY))
    with running_server({"rm": scorer}, settings=settings) as running, httpx.Client(base_url=running.url) as client:
        paths = {getattr(route, "path", "") for route in running.app.routes} | set(running.app.openapi()["paths"])
        assert {"/docs", "/redoc", "/openapi.json", "/metrics", "/healthz", "/readyz", "/v1/score"} <= paths
        for path in [*sorted(paths), "/no-such-route", "/v1/score/../metrics", "//metrics"]:
            for method in ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS"):
                for headers in (
                    {},
                    {"Authorization": "Bearer wrong"},
                    {"Authorization": f"Basic {KEY}"},
                    {"Authorization": "Bearer"},
                    {"X-API-Key": KEY[:-1]},
                ):
                    reply = client.request(method, path, headers=headers)
                    assert reply.status_code == 401, (method, path, headers)
                    assert reply.headers["www-authenticate"] == "Bearer"
        for headers in (
            {"Authorization": f"Bearer {KEY}"},
            {"authorization": f"bearer {OTHER_KEY}"},
            {"X-API-Key": KEY},
        ):
            assert client.get("/readyz", headers=headers).status_code == 200
            assert client.get("/docs", headers=headers).status_code == 200


def test_request_ids_are_kept_when_harmless_and_made_otherwise(http_client: httpx.Client) -> None:
    assert http_client.get("/healthz", headers={"X-Request-Id": "step-12.a"}).headers["x-request-id"] == "step-12.a"
    for harmful in ("a b", "x" * 65, "a;b"):
        made = http_client.get("/healthz", headers={"X-Request-Id": harmful}).headers["x-request-id"]
        assert made != harmful
        assert made


def served(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "assay.serving"]


def test_logs_hold_no_text_of_the_caller(http_client: httpx.Client, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="assay.serving"):
        http_client.post("/v1/score", json={"prompt": SECRET, "responses": [SECRET]})
        http_client.get(f"/{SECRET}%0Ainjected")
        http_client.post("/v1/score", json={SECRET: 1}, headers={"X-Request-Id": SECRET + "!"})
        deadline = time.monotonic() + 240  # a line is written when its reply is already out
        while len(own := served(caplog)) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
    assert len(own) == 3
    assert not any(SECRET in line or "injected" in line for line in own)


def test_openapi_describes_replies_and_problems(http_client: httpx.Client) -> None:
    schema = http_client.get("/openapi.json").json()
    score = schema["paths"]["/v1/score"]["post"]
    assert {"200", "401", "404", "413", "422", "503", "504"} <= set(score["responses"])
    assert schema["components"]["schemas"]["ScoreBody"]["examples"]


def test_a_layer_that_is_added_sees_every_request(scorer: TransformersScorer) -> None:
    app, seen = create_app({"rm": scorer}), []

    @app.middleware("http")
    async def layer(request: Request, call_next: RequestResponseEndpoint) -> Response:
        seen.append(request.url.path)
        return await call_next(request)

    with TestClient(app) as client:
        assert client.post("/v1/score", json={"prompt": "Name a metal.", "responses": ["Tin."]}).status_code == 200
        assert client.get("/health").status_code == 200
    assert seen == ["/v1/score", "/health"]


def test_settings_and_apps_that_make_no_sense_are_refused() -> None:
    with pytest.raises(BadInputError, match="max_queue_items"):
        ServerSettings(max_items=10, max_queue_items=5)
    with pytest.raises(BadInputError, match="empty"):
        ServerSettings(api_keys=("",))
    with pytest.raises(BadInputError, match="at least one model"):
        create_app({})


def test_a_port_in_use_is_busy(server: RunningServer, scorer: TransformersScorer) -> None:
    port = int(urlsplit(server.url).port or 0)
    with pytest.raises(BusyError, match=f"port {port}"):
        claim_port("127.0.0.1", port)
    with pytest.raises(BadInputError):
        claim_port("192.0.2.1", 0)
