"""The page's files over HTTP: compressed copies, what a browser may keep, what it knows already."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from assay_web.server.page import mount_page

SCRIPT = "/assets/index-1.js"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_text("<!doctype html>plain")
    script = tmp_path / "assets" / "index-1.js"
    script.write_text("plain")
    script.with_name("index-1.js.gz").write_bytes(gzip.compress(b"gzip"))
    script.with_name("index-1.js.br").write_bytes(b"what the build wrote")
    return tmp_path


@pytest.fixture
def client(folder: Path) -> TestClient:
    app = FastAPI()
    mount_page(app, folder)
    return TestClient(app)


@pytest.mark.parametrize(
    ("accepted", "coding"),
    [("gzip, deflate, br", "br"), ("gzip;q=1.0, br;q=0", "gzip"), ("identity", None), ("", None), ("brotli", None)],
)
def test_a_copy_is_sent_to_those_that_accept_it(client: TestClient, accepted: str, coding: str | None) -> None:
    with client.stream("GET", SCRIPT, headers={"Accept-Encoding": accepted}) as reply:
        body = b"".join(reply.iter_raw())
    assert reply.headers.get("content-encoding") == coding
    assert int(reply.headers["content-length"]) == len(body)
    assert body == {"br": b"what the build wrote", "gzip": gzip.compress(b"gzip"), None: b"plain"}[coding]
    assert reply.headers["content-type"].startswith("text/javascript")
    assert reply.headers["vary"] == "Accept-Encoding"
    assert "immutable" in reply.headers["cache-control"]


def test_each_copy_has_a_tag_of_its_own_and_is_not_sent_twice(client: TestClient) -> None:
    tags = {}
    for accepted in ("gzip", "identity"):
        headers = {"Accept-Encoding": accepted}
        tags[accepted] = client.get(SCRIPT, headers=headers).headers["etag"]
        known = client.get(SCRIPT, headers={**headers, "If-None-Match": f'"other", W/{tags[accepted]}'})
        assert (known.status_code, known.content) == (304, b"")
        assert known.headers["vary"] == "Accept-Encoding"
    assert tags["gzip"] != tags["identity"]


def test_a_copy_that_is_older_than_its_file_is_not_sent(client: TestClient, folder: Path) -> None:
    page = folder / "index.html"
    copy = folder / "index.html.gz"
    copy.write_bytes(gzip.compress(b"of the build before"))
    os.utime(copy, (page.stat().st_mtime - 1, page.stat().st_mtime - 1))
    assert client.get("/annotate").text == "<!doctype html>plain"
    os.utime(copy, None)
    reply = client.get("/annotate")
    assert reply.text == "of the build before"
    assert reply.headers["cache-control"] == "no-cache"
    assert "script-src 'self'" in reply.headers["content-security-policy"]


def test_a_session_has_a_page_of_its_own(client: TestClient, folder: Path) -> None:
    paths = (
        "/annotate/queue/first",
        "/annotate/queue/first/adjudicate",
        "/annotate/queue/first/report",
        "/session.html",
    )
    assert [client.get(path).text for path in paths] == ["<!doctype html>plain"] * 4
    (folder / "session.html").write_text("session")
    assert [client.get(path).text for path in paths] == ["session"] * 2 + ["<!doctype html>plain"] * 2
