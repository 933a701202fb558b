"""What the web server makes of requests that no page sends: too large, too slow, out of range, made to exhaust it."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import pyarrow as pa
import pytest
from web_pages import running_web, signed_in

from assay.http.request_body import BodyLimits
from assay.store.intake import pair_schema, store_pairs
from assay.workspace import Workspace
from assay_pipelines.annotation.items import QueueItem
from assay_pipelines.annotation.queues import create_queue

LIMITS = BodyLimits(most_bytes=100_000, most_bytes_at_once=150_000, seconds=3.0)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    workspace = Workspace.create(tmp_path_factory.mktemp("gate") / "workspace")
    asked = {"messages": [{"role": "user", "content": "q"}], "first": "yes", "second": "no"}
    row = {"row": 1, **asked, "source": "s", "record_id": "1"}
    with workspace.store.unit() as db:
        store_pairs(db, pa.Table.from_pylist([row], schema=pair_schema()), None)
        ((comparison,),) = db.execute("SELECT comparison_id FROM comparisons").fetchall()
    create_queue(workspace, "first", [QueueItem(comparison)], overlap=1, gold_checks=0.0, run_id=None)
    with running_web(workspace, body_limits=LIMITS) as found:
        yield found


def test_a_body_is_bounded_before_anybody_is_known(url: str) -> None:
    name = "a" * LIMITS.most_bytes

    def pieces() -> Iterator[bytes]:  # no Content-Length says how much it will be
        yield b'{"name": "'
        yield name.encode()
        yield b'"}'

    told = {"Content-Type": "application/json"}
    for body in (json.dumps({"name": name}).encode(), pieces()):
        refused = httpx.post(f"{url}/api/session", content=body, headers=told)
        assert refused.status_code == 413, refused.text
        assert refused.json()["code"] == "body_too_large"


def test_a_body_that_never_comes_does_not_keep_its_connection(url: str) -> None:
    where = urlsplit(url)
    with socket.create_connection((where.hostname, where.port), timeout=240) as slow:
        slow.sendall(f"POST /api/session HTTP/1.1\r\nHost: {where.netloc}\r\nContent-Length: 50\r\n\r\n{{".encode())
        assert b" 408 " in slow.recv(100)


def test_bodies_that_exhaust_or_mislead_a_reader_are_refused(url: str) -> None:
    nested = b'{"name":' + b"[" * 9_000 + b"]" * 9_000 + b"}"
    for body in (nested, b'{"name": "a", "name": "b"}', b'{"name": "\\ud800"}'):
        refused = httpx.post(f"{url}/api/session", content=body, headers={"Content-Type": "application/json"})
        assert refused.status_code == 422, refused.text


def test_an_unforeseen_error_is_a_problem_and_the_log_quotes_nobody(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    said = "the caller's own words"

    def fails(*_: object, **__: object) -> None:
        raise RuntimeError(said)

    monkeypatch.setattr("assay_web.access.routes.begin_session", fails)
    with caplog.at_level(logging.ERROR):
        failed = httpx.post(f"{url}/api/session", json={"name": "ada"})
    assert failed.status_code == 500
    assert failed.json()["code"] == "internal"
    logged = "\n".join(record.getMessage() for record in caplog.records)
    assert "RuntimeError" in logged
    assert failed.json()["request_id"] in logged
    assert said not in logged + "".join(str(record.exc_info) for record in caplog.records)


def test_replies_of_the_api_are_kept_by_nobody(url: str) -> None:
    with signed_in(url) as client:
        reply = client.get("/api/session")
    assert reply.headers["Cache-Control"] == "no-store"
    assert reply.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (f"/{'a' * 300}", (200, 503)),  # the page's own address, or the page is not built
        (f"/api/audit?before={10**30}", (422,)),
        (f"/api/runs?offset={10**30}", (422,)),
        ("/api/lineage/%00", (404,)),
        ("/api/lineage/~nobody-of-this-name", (404,)),
    ],
)
def test_what_no_page_asks_is_no_fault_of_the_server(url: str, path: str, status: tuple[int, ...]) -> None:
    with signed_in(url) as client:
        assert client.get(path).status_code in status


def test_numbers_and_origins_out_of_range(url: str) -> None:
    with signed_in(url) as client:
        for ticket in (f"{'9' * 50}-1-vote", f"1-{'9' * 50}-vote", f"{'9' * 5_000}-1-vote", "\u0663-1-vote"):
            refused = client.post("/api/annotate/queues/first/renewal", json={"ticket": ticket})
            assert refused.status_code == 422, refused.text
        for field in ({"overlap": 10**18}, {"limit": 10**18}, {"seed": 10**18}):
            assert client.post("/api/queues", json={"name": "many", **field}).status_code == 422
        for origin in ("http://[::1", "null", "http://[", url.replace("127.0.0.1", "127.0.0.1.example")):
            assert client.post("/api/session", json={"name": "eve"}, headers={"Origin": origin}).status_code == 403
        assert client.post("/api/session", json={"name": "ada"}, headers={"Origin": url}).status_code == 200
