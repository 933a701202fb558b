"""What strangers, and callers with a key who mean harm, can do to a reward server over real HTTP: nothing."""

from __future__ import annotations

import base64
import gzip
import http.client
import json
import logging
import re
import socket
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from assay.errors import BadInputError
from assay.http.docs_pages import PATHS
from assay_serving.engines.transformers import TransformersScorer
from assay_serving.model_config import ModelConfig
from assay_serving.process import RunningServer, running_server
from assay_serving.server.auth.key_store import create_key, revoke_key
from assay_serving.server.auth.middleware import HEALTH, scope_needed
from assay_serving.server.core.logs import JsonFormatter, TextFormatter
from assay_serving.server.core.settings import ServerSettings

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE")
BODY = {"prompt": "Name a metal.", "responses": ["Gold."]}
JSON = {"Content-Type": "application/json"}
PATIENCE_S = 240.0


@dataclass(frozen=True)
class Guarded:
    """A server with one key of each scope."""

    server: RunningServer
    file: Path
    keys: dict[str, str]

    def headers(self, scope: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.keys[scope]}"}


@pytest.fixture(scope="module")
def scorer(tiny_reward_model: Path) -> TransformersScorer:
    return TransformersScorer.load(ModelConfig(str(tiny_reward_model), device="cpu", served_as="rm"))


@pytest.fixture(scope="module")
def guarded(scorer: TransformersScorer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("keys")
    file = folder / "keys.json"
    keys = {scope: create_key(file, f"for-{scope}", [scope])[0] for scope in ("read", "score", "admin")}
    settings = ServerSettings(
        keys_file=str(file), header_timeout_s=2.0, max_body_bytes=8 << 20, model_folders=(str(folder / "models"),)
    )
    with running_server({"rm": scorer}, settings=settings) as running:
        yield Guarded(running, file, keys)


@pytest.fixture
def client(guarded: Guarded) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=guarded.server.url, timeout=PATIENCE_S) as made:
        yield made


def all_paths(server: RunningServer) -> list[str]:
    found: set[str] = set(server.app.openapi()["paths"])
    for route in server.app.routes:
        found.add(str(getattr(route, "path", "/")))
    return sorted(re.sub(r"{[^}]*}", "rm", path) for path in found)


def raw(server: RunningServer, *pieces: bytes, wait: float = PATIENCE_S, pause: float = 0.0) -> bytes:
    """Everything that the server says to these bytes until it closes the connection or `wait` is over."""
    parts = urlsplit(server.url)
    said = b""
    with socket.create_connection((str(parts.hostname), int(parts.port or 0)), timeout=wait) as connection:
        try:
            for piece in pieces:
                connection.sendall(piece)
                time.sleep(pause)
            while chunk := connection.recv(65536):
                said += chunk
        except (TimeoutError, ConnectionError):
            pass
    return said


def status_of(said: bytes) -> int:
    return int(said.split(b" ", 2)[1])


def test_nothing_answers_without_a_key(guarded: Guarded, client: httpx.Client) -> None:
    paths = all_paths(guarded.server)
    assert {"/docs", "/openapi.json", "/metrics", "/healthz", "/readyz", "/v1/score", "/get_reward"} <= set(paths)
    assert any(path.startswith("/v1/admin/") for path in paths)
    odd = [
        "/",
        "/nothing",
        "/v1/score/../metrics",
        "//metrics",
        "/%6detrics",
        "/metrics/",
        "/v1/score?api_key=x",
        "/docs/x",
    ]
    for path in [*paths, *odd]:
        for method in METHODS:
            assert client.request(method, path).status_code == 401, (method, path)
        assert client.post(path, headers={"Authorization": "Bearer nope"}, json=BODY).status_code == 401


def test_no_websocket_and_no_upgrade(guarded: Guarded) -> None:
    asked = (
        b"GET /v1/score HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n"
    )
    assert status_of(raw(guarded.server, asked, wait=60)) in (401, 403)
    keyed = asked.replace(b"Host: x\r\n", b"Host: x\r\nX-API-Key: " + guarded.keys["score"].encode() + b"\r\n")
    assert b" 101 " not in raw(guarded.server, keyed, wait=60)


def test_a_key_in_the_address_is_no_key(guarded: Guarded, client: httpx.Client) -> None:
    key = guarded.keys["score"]
    for query in (f"api_key={key}", f"key={key}", f"token={key}"):
        assert client.get(f"/v1/models?{query}").status_code == 401


def test_clients_that_only_know_an_address_send_the_key_as_basic(guarded: Guarded) -> None:
    parts = urlsplit(guarded.server.url)
    address = f"http://any:{guarded.keys['score']}@{parts.netloc}/v1/score"
    assert httpx.post(address, json=BODY, timeout=PATIENCE_S).status_code == 200
    basic = base64.b64encode(f"{guarded.keys['score']}:".encode()).decode()
    plain = f"{guarded.server.url}/v1/models"
    assert httpx.get(plain, headers={"Authorization": f"Basic {basic}"}).status_code == 200
    assert httpx.get(plain, headers={"Api-Key": guarded.keys["score"]}).status_code == 200


def test_scopes(guarded: Guarded, client: httpx.Client) -> None:
    def status(scope: str, method: str, path: str, **more: Any) -> int:
        return client.request(method, path, headers=guarded.headers(scope), **more).status_code

    for scope in guarded.keys:
        for path in ("/metrics", "/docs", "/redoc", "/healthz", "/readyz", "/v1/models", "/v1/models/rm", *PATHS):
            assert status(scope, "GET", path) == 200, (scope, path)
    assert [status(scope, "POST", "/v1/score", json=BODY) for scope in ("read", "score", "admin")] == [403, 200, 403]
    for path in all_paths(guarded.server):
        if path.startswith("/v1/admin"):
            for method in METHODS:
                for odd in (path, path + "/", path + "?x=1", path.replace("admin", "%61dmin")):
                    assert status("score", method, odd) == 403, (method, odd)
                    assert status("read", method, odd) == 403, (method, odd)
    assert status("admin", "GET", "/v1/admin/models") == 200
    said = client.post("/v1/score", headers=guarded.headers("read"), json=BODY)
    assert said.json()["code"] == "forbidden"
    assert "insufficient_scope" in said.headers["www-authenticate"]


def test_paths_that_nobody_has_thought_of_need_the_scope_to_score() -> None:
    assert scope_needed("GET", "/new/route") == "score"
    assert scope_needed("POST", "/metrics") == "score"
    assert scope_needed("DELETE", "/v1/admin") == "admin"
    assert scope_needed("GET", "/v1/administrator") == "score"


def test_a_revoked_key_opens_nothing_soon(guarded: Guarded, client: httpx.Client) -> None:
    key, _ = create_key(guarded.file, "brief", ["score"])
    headers = {"X-API-Key": key}

    def until(status: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while client.get("/healthz", headers=headers).status_code != status:
            assert time.monotonic() < deadline
            time.sleep(0.05)

    until(200)
    revoke_key(guarded.file, "brief")
    until(401)


def test_probes_may_be_let_in_and_nobody_else(scorer: TransformersScorer) -> None:
    settings = ServerSettings(api_keys=("a-key",), open_health=True)
    with running_server({"rm": scorer}, settings=settings) as running, httpx.Client(base_url=running.url) as client:
        assert client.get("/healthz").status_code == client.get("/readyz").status_code == 200
        for path in sorted(set(all_paths(running)) - HEALTH):
            assert client.get(path).status_code == 401, path
        assert client.post("/healthz").status_code == 401


def test_limits_of_a_key_are_429_with_when_to_come_back(scorer: TransformersScorer, tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    key, _ = create_key(file, "small", ["score"], requests_per_minute=2, items_per_minute=5)
    settings = ServerSettings(keys_file=str(file))
    with (
        running_server({"rm": scorer}, settings=settings) as running,
        httpx.Client(base_url=running.url, headers={"X-API-Key": key}, timeout=PATIENCE_S) as client,
    ):
        assert client.post("/v1/score", json={**BODY, "responses": ["a"] * 6}).status_code == 422
        assert client.post("/v1/score", json={**BODY, "responses": ["a"] * 4}).status_code == 200
        for _ in range(3):  # a refusal costs nothing
            late = client.post("/v1/score", json={**BODY, "responses": ["a"] * 2})
            assert (late.status_code, late.json()["code"]) == (429, "rate_limited")
            assert 1 <= int(late.headers["retry-after"]) <= 60
        assert client.post("/v1/score", json=BODY).status_code == 200
        assert client.post("/v1/score", json=BODY).status_code == 429
        text = client.get("/metrics").text
    assert 'assay_client_items_total{client="small"} 5.0' in text
    assert 'assay_client_refused_total{client="small"} 4.0' in text


@pytest.mark.parametrize(
    "body",
    [
        b'{"prompt": "a", "responses": ["b"], "timeout_s": NaN}',
        b'{"prompt": "a", "responses": ["b"], "timeout_s": Infinity}',
        b'{"prompt": "a", "responses": ["b"], "timeout_s": -Infinity}',
        b'{"prompt": "a", "responses": ["b"], "timeout_s": 1e400}',
        b'{"prompt": "a", "responses": ["b"], "timeout_s": ' + b"9" * 300 + b"}",
        b'{"prompt": "a", "responses": ["b"], "timeout_s": ' + b"9" * 5000 + b"}",
        b'{"prompt": "a", "responses": ["b"], "input": [9223372036854775808]}',
        b'{"prompt": "a", "responses": ["b"], "input": [-9223372036854775809]}',
        b'{"prompt": "a", "prompt": "c", "responses": ["b"]}',
        b'{"prompt": "a", "responses": ["\\ud800"]}',
        b'{"prompt": "a", "responses": ["\\udc00\\ud800"]}',
        b'{"prompt": "a\xed\xa0\x80", "responses": ["b"]}',
        '{"prompt": "a", "responses": ["b"]}'.encode("utf-16-le"),
        '{"prompt": "a", "responses": ["b"]}'.encode("utf-16"),
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"prompt": "a", "responses": ' + b"[" * 70 + b"]" * 70 + b"}",
        b'{"prompt": "a", "responses": [' + b"1," * 250_000 + b"1]}",
        b'{"items": [' + b"{}," * 70_000 + b"{}]}",
        b'{"items": [' + b"{}," * 5_000 + b"{}]}",
        b'{"prompt": "a", "responses": [' + b"1," * 1_000_000 + b"1]}",
        b'{"items": [' + b"{}," * 1_000_000 + b"{}]}",
        b'{"items": [' + b'"",' * 1_000_000 + b'""]}',
        b'{"prompt": "' + b"a" * 3_000_000 + b'", "responses": ["b"]}',
    ],
    ids=lambda body: repr(body[-40:]),
)
def test_bodies_made_to_harm_are_refused_everywhere(guarded: Guarded, client: httpx.Client, body: bytes) -> None:
    for path in ("/v1/score", "/get_reward", "/classify", "/v1/chat/completions"):
        reply = client.post(path, content=body, headers=guarded.headers("score") | JSON)
        assert 400 <= reply.status_code < 500, (path, reply.text)
        assert reply.status_code != 401
    assert client.post("/v1/score", json=BODY, headers=guarded.headers("score")).status_code == 200


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd", "gzip, identity", "GZIP"])
def test_compressed_bodies_are_not_unpacked(guarded: Guarded, client: httpx.Client, coding: str) -> None:
    packed = zlib.compress if coding == "deflate" else gzip.compress
    content = packed(json.dumps({"prompt": "a" * 50_000_000, "responses": []}).encode())
    headers = guarded.headers("score") | JSON | {"Content-Encoding": coding}
    assert client.post("/v1/score", content=content, headers=headers).status_code == 415


def test_too_much_at_once_is_told_to_come_back(scorer: TransformersScorer) -> None:
    settings = ServerSettings(max_requests=2)
    with running_server({"rm": scorer}, settings=settings) as running:
        parts = urlsplit(running.url)
        head = b"POST /v1/score HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n{"
        held = [socket.create_connection((str(parts.hostname), int(parts.port or 0))) for _ in range(2)]
        try:
            for connection in held:
                connection.sendall(head)
            deadline = time.monotonic() + PATIENCE_S
            while (reply := httpx.post(running.url + "/v1/score", json=BODY)).status_code != 503:
                assert time.monotonic() < deadline
            assert reply.headers["retry-after"] == "1"
            assert httpx.get(running.url + "/healthz").status_code == 200
        finally:
            for connection in held:
                connection.close()
        while httpx.post(running.url + "/v1/score", json=BODY).status_code != 200:
            assert time.monotonic() < deadline


@pytest.mark.parametrize(
    "headers",
    [
        b"Content-Length: 5\r\nContent-Length: 6\r\n",
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        b"Transfer-Encoding: xchunked\r\n",
        b"Content-Length: -5\r\n",
        b"Content-Length: 0x5\r\n",
        b"Content-Length : 5\r\n",
        b"X: a\r\n b: folded\r\n\x00: 1\r\n",
    ],
)
def test_messages_of_doubtful_length_are_refused(guarded: Guarded, headers: bytes) -> None:
    key = b"X-API-Key: " + guarded.keys["score"].encode() + b"\r\n"
    hidden = b"0\r\n\r\nGET /v1/models HTTP/1.1\r\nHost: x\r\n" + key + b"\r\n"
    said = raw(guarded.server, b"POST /v1/score HTTP/1.1\r\nHost: x\r\n" + key + headers + b"\r\n" + hidden, wait=60)
    assert status_of(said) == 400
    assert said.count(b"HTTP/1.1 ") == 1  # what was hidden in it is not answered


def test_headers_that_do_not_come_are_given_up(guarded: Guarded) -> None:
    assert raw(guarded.server) == b""
    assert raw(guarded.server, b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: ") == b""
    keyed = b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-API-Key: " + guarded.keys["read"].encode() + b"\r\n\r\n"
    for late in (b"GET /he", b"\r\n" * 10):  # of a kept connection
        said = raw(guarded.server, keyed, late, pause=0.3)
        assert said.count(b"HTTP/1.1 200") == 1


def test_headers_are_bounded(guarded: Guarded) -> None:
    start = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"
    assert status_of(raw(guarded.server, start, b"X: y\r\n" * 101 + b"\r\n")) == 431
    key = guarded.keys["score"].encode()
    chunked = b"POST /v1/score HTTP/1.1\r\nHost: x\r\nX-API-Key: " + key + b"\r\nTransfer-Encoding: chunked\r\n\r\n"
    for endless in (start + b"X: ", b"GET /", chunked + b"0\r\nX: "):
        said = raw(guarded.server, endless, *[b"y" * 50_000] * 200)
        # A connection that is closed while somebody still talks may lose the answer.
        assert said == b"" or status_of(said) == 431


def test_web_pages_of_others_get_nothing(guarded: Guarded, client: httpx.Client) -> None:
    keyed = guarded.headers("score")
    for origin in (
        "http://evil.example",
        "null",
        "http://127.0.0.1",
        "https://" + urlsplit(guarded.server.url).netloc + "0",
    ):
        reply = client.post("/v1/score", json=BODY, headers=keyed | {"Origin": origin})
        assert reply.status_code == 403, origin
        asked = {"Origin": origin, "Access-Control-Request-Method": "POST"}
        reply = client.options("/v1/score", headers=keyed | asked)
        assert reply.status_code == 403
        assert not [name for name in reply.headers if name.startswith("access-control")]
    own = client.post("/v1/score", json=BODY, headers=keyed | {"Origin": guarded.server.url})
    assert own.status_code == 200
    assert own.headers["x-content-type-options"] == "nosniff"
    assert own.headers["cache-control"] == "no-store"


def test_a_name_that_was_made_to_mean_this_machine_is_refused(scorer: TransformersScorer) -> None:
    settings = ServerSettings(allowed_hosts=("rewards.example",))
    with running_server({"rm": scorer}, settings=settings) as running, httpx.Client(base_url=running.url) as client:
        for host in ("evil.example", "evil.example:80", "localhost.evil.example", "", "rewards.example.evil.example"):
            assert client.get("/healthz", headers={"Host": host}).status_code == 421, host
        for host in (
            "localhost",
            "localhost:8000",
            "127.0.0.1:1",
            "[::1]:8000",
            "rewards.example",
            "Rewards.Example:443",
        ):
            assert client.get("/healthz", headers={"Host": host}).status_code == 200, host


@pytest.mark.parametrize(
    "reference",
    [
        "../../etc",
        "/etc/passwd",
        "/etc",
        "/no/such/folder",
        "~root/model",
        "models/../../..",
        "a\x00b",
        "a\nb",
        "\u202egnp.mr",
        "http://169.254.169.254/latest",
        "file:///etc",
        "hub:owner/name",
        "",
        "x" * 5000,
    ],
)
def test_administrators_load_what_is_allowed_and_learn_of_nothing_else(
    guarded: Guarded, client: httpx.Client, reference: str
) -> None:
    reply = client.post(
        "/v1/admin/models", headers=guarded.headers("admin"), json={"name": "new", "plan": {"reference": reference}}
    )
    assert reply.status_code == 422, reply.text
    detail = str(reply.json()["detail"])
    assert "may not be loaded here" in detail or "not the name of a model" in detail
    client.post("/v1/admin/models", headers=guarded.headers("admin"), json={"plan": {"reference": "owner/name"}})
    listed = client.get("/v1/models", headers=guarded.headers("read")).json()["data"]
    assert [model["id"] for model in listed] == ["rm"]


@pytest.mark.parametrize(
    "model", ["../../etc/passwd", "/etc/passwd", "rm/../rm", "rm\x00", "RM", "http://x/rm", "%72m"]
)
def test_models_are_asked_for_by_their_names_only(guarded: Guarded, client: httpx.Client, model: str) -> None:
    reply = client.post("/v1/score", headers=guarded.headers("score"), json={**BODY, "model": model})
    assert (reply.status_code, reply.json()["code"]) == (404, "not_found")
    assert model not in reply.text


def served(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == "assay.serving"]


def test_log_lines_cannot_be_forged_and_hold_no_text(
    guarded: Guarded, client: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    secret = "xyzzy-secret"
    forged = "\r\n2026-01-01 forged \x1b[31mred\u2028line"
    keyed = guarded.headers("score")
    with caplog.at_level(logging.DEBUG, logger="assay.serving"):
        client.post("/v1/score", json={"prompt": secret + forged, "responses": [secret]}, headers=keyed)
        client.post("/v1/score", json={**BODY, "model": secret + forged}, headers=keyed)
        client.get(f"/{secret}%0A%1b[31mforged?{secret}={secret}", headers=keyed)
        client.get("/v1/models", headers={"Authorization": f"Bearer {secret}", "X-Request-Id": f"{secret}; forged"})
        client.post("/v1/score", content=b"{" + secret.encode(), headers=keyed | JSON)
        deadline = time.monotonic() + PATIENCE_S  # a line is written when its reply is already out
        while len(records := served(caplog)) < 5 and time.monotonic() < deadline:
            time.sleep(0.01)
    assert len(records) == 5
    for formatter in (TextFormatter(), JsonFormatter()):
        lines = [formatter.format(record) for record in records]
        for line in lines:
            assert not re.search(r"[\x00-\x1f\x7f-\x9f\u2028]", line)
            assert secret not in line
            assert "forged" not in line
            assert not any(key in line for key in guarded.keys.values())
    first = json.loads(JsonFormatter().format(records[0]))
    assert {
        "client": "for-score",
        "route": "/v1/score",
        "status": 200,
        "model": "rm",
        "items": 1,
    }.items() <= first.items()
    assert first["request_id"]
    assert first["ms"] > 0


def test_formatters_escape_what_any_library_says_and_leave_out_what_errors_say() -> None:
    secret = "the caller's text"
    try:
        try:
            raise ValueError(secret)
        except ValueError as error:
            raise RuntimeError(secret) from error
    except RuntimeError as error:
        info = (type(error), error, error.__traceback__)
    record = logging.LogRecord("lib", logging.ERROR, __file__, 1, "a\nb\x1b[0m\u202e%s", ("\r",), info)
    for formatter in (TextFormatter(), JsonFormatter()):
        line = formatter.format(record)
        assert "\n" not in line
        assert "\x1b" not in line
        assert secret not in line
        assert "RuntimeError at" in line
        assert "ValueError at" in line


def test_the_servers_own_library_tells_no_text(guarded: Guarded, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        raw(guarded.server, b"GET /xyzzy-secret HTTP/1.1\r\nxyzzy-secret\r\n\r\n", wait=60)
        parts = urlsplit(guarded.server.url)
        connection = http.client.HTTPConnection(str(parts.hostname), int(parts.port or 0))
        connection.request("POST", "/v1/score", headers={"Content-Length": "10"})
        connection.close()
    assert "xyzzy-secret" not in "\n".join(TextFormatter().format(record) for record in caplog.records)


def test_settings_that_make_no_sense_are_refused() -> None:
    for wrong in ({"max_requests": 0}, {"header_timeout_s": 0}, {"max_buffered_bytes": 1}, {"max_item_characters": -1}):
        with pytest.raises(BadInputError):
            ServerSettings(**wrong)  # type: ignore[arg-type]


def test_a_server_open_to_the_network_without_keys_is_administered_by_nobody(scorer: TransformersScorer) -> None:
    with (
        running_server({"rm": scorer}, settings=ServerSettings(open_admin=False)) as running,
        httpx.Client(base_url=running.url, timeout=PATIENCE_S) as client,
    ):
        refused = client.delete("/v1/admin/models/rm")
        assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
        assert client.get("/v1/admin/models").status_code == 403
        assert client.post("/v1/score", json={"prompt": "p", "responses": ["r"]}).status_code == 200


def test_orders_are_logged_with_who_gave_them(
    guarded: Guarded, client: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="assay.serving"):
        client.request("DELETE", "/v1/admin/models/no-such-model", headers={"X-API-Key": guarded.keys["admin"]})
    (line,) = [line for line in map(TextFormatter().format, served(caplog)) if "event=order" in line]
    assert " action=unload model=no-such-model client=for-admin " in line
    assert line.endswith(" outcome=failed")
