"""Uploads over HTTP: a cut link, a restarted server, who may, memory, what is refused in one line."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from web_pages import running_web, signed_in

from assay.workspace import Workspace
from assay_web.accounts.access_file import FILE, AccessFile
from assay_web.accounts.accounts import Role, add_account
from assay_web.accounts.audit_log import read_audit
from assay_web.accounts.passwords import Passwords
from assay_web.settings import PasswordCost, UploadLimits
from assay_web.uploads.upload_folder import PIECE

CHEAP = PasswordCost(passes=1, memory_kib=256, lanes=1)
PASSWORD = "correct horse battery"
LIMITS = UploadLimits(most_bytes=1 << 30, spare_bytes=0)


@pytest.fixture
def workspace(empty_workspace: Path, tmp_path: Path) -> Workspace:
    return Workspace.open(shutil.copytree(empty_workspace, tmp_path / "workspace"))


def begun(client: httpx.Client, content: bytes, name: str = "pairs.jsonl") -> dict[str, object]:
    reply = client.post("/api/uploads", json={"name": name, "size": len(content), "modified": 7})
    assert reply.status_code == 200, reply.text
    return dict(reply.json())


def put(client: httpx.Client, upload: object, offset: int, content: bytes) -> httpx.Response:
    return client.put(f"/api/uploads/{upload}/pieces", params={"offset": offset}, content=content)


def test_an_upload_goes_on_after_a_cut_link_and_a_restarted_server(workspace: Workspace) -> None:
    content = os.urandom(PIECE + 1000)
    with running_web(workspace, uploads=LIMITS) as url, signed_in(url) as client:
        upload = begun(client, content)
        assert put(client, upload["id"], 0, content[:PIECE]).json()["offset"] == PIECE
        where = urlsplit(url)
        headers = "\r\n".join(
            [
                f"PUT /api/uploads/{upload['id']}/pieces?offset={PIECE} HTTP/1.1",
                f"Host: {where.netloc}",
                "Content-Length: 1000",
                f"X-CSRF-Token: {client.headers['X-CSRF-Token']}",
                f"Cookie: {'; '.join(f'{name}={value}' for name, value in client.cookies.items())}",
            ]
        )
        with socket.create_connection((where.hostname, where.port), timeout=60) as cut:
            cut.sendall(f"{headers}\r\n\r\n".encode() + b"half")
        while put(client, upload["id"], PIECE, content[PIECE : PIECE + 10]).status_code == 409:
            pass  # the server has not noticed yet
        assert client.get(f"/api/uploads/{upload['id']}").json()["offset"] == PIECE
    with running_web(workspace, uploads=LIMITS) as url, signed_in(url) as client:
        assert begun(client, content)["offset"] == PIECE
        wrong = put(client, upload["id"], 0, content[:PIECE])
        assert (wrong.status_code, wrong.json()["detail"]) == (409, f"the upload goes on at byte {PIECE}")
        done = put(client, upload["id"], PIECE, content[PIECE:]).json()
        assert (done["file"], done["offset"]) == ("pairs.jsonl", len(content))
        assert (workspace.root / "uploads" / "pairs.jsonl").read_bytes() == content
        pieces = [content[:PIECE], content[PIECE:]]
        digest = hashlib.sha256(b"".join(hashlib.sha256(piece).digest() for piece in pieces)).hexdigest()
        asked = {"name": "again.jsonl", "size": len(content), "digest": digest}
        assert client.post("/api/uploads", json=asked).json()["file"] == "pairs.jsonl"
        listed = client.get("/api/uploads").json()
        assert [file["name"] for file in listed["files"]] == ["pairs.jsonl"]
        assert listed["unfinished"] == []
        assert client.delete("/api/uploads/files/pairs.jsonl").status_code == 204
        assert client.get("/api/uploads").json()["files"] == []
    log = AccessFile(workspace.root / FILE)
    assert [line.action for line in read_audit(log, subject="pairs.jsonl")].count("put_piece") == 1
    log.close()


def test_refusals_are_one_line_and_keep_nothing(workspace: Workspace) -> None:
    with running_web(workspace, uploads=LIMITS) as url, signed_in(url) as client:
        for size, line in ((0, "the file is empty"), (20 * 10**9, "the file has 20 GB; the limit is 1.07 GB")):
            refused = client.post("/api/uploads", json={"name": "x", "size": size})
            assert (refused.status_code, refused.json()["detail"]) == (422, line)
        upload = begun(client, b"x" * 10)
        assert "longer" in put(client, upload["id"], 0, b"x" * 11).json()["detail"]
        assert "did not arrive" in put(client, upload["id"], 0, b"x" * 9).json()["detail"]
        assert put(client, "0" * 16, 0, b"x").status_code == 404
        assert client.delete(f"/api/uploads/{upload['id']}").status_code == 204
        assert client.delete("/api/uploads/files/..%2Fassay.toml").status_code in (404, 405)
    assert [path.name for path in (workspace.root / "uploads").iterdir()] == [".parts"]


def test_a_large_file_does_not_pass_through_memory(workspace: Workspace) -> None:
    size, piece = 300 << 20, bytes(PIECE)
    with running_web(workspace, uploads=LIMITS) as url, signed_in(url) as client:
        upload = client.post("/api/uploads", json={"name": "zeros.bin", "size": size}).json()
        assert put(client, upload["id"], 0, piece).status_code == 200
        before = _resident()
        for offset in range(PIECE, size, PIECE):
            assert put(client, upload["id"], offset, piece).status_code == 200
        assert _resident() - before < 48 << 20
        assert client.get(f"/api/uploads/{upload['id']}").json()["file"] == "zeros.bin"
        assert (workspace.root / "uploads" / "zeros.bin").stat().st_size == size


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def people(workspace: Workspace) -> Iterator[str]:
    access = AccessFile(workspace.root / FILE)
    people: list[tuple[str, Role]] = [
        ("vera", "viewer"),
        ("anna", "annotator"),
        ("cora", "curator"),
        ("carl", "curator"),
    ]
    for name, role in people:
        add_account(access, Passwords(CHEAP), name, role, PASSWORD, by="test")
    access.close()
    with running_web(workspace, open_access=False, password_cost=CHEAP, uploads=LIMITS) as url:
        yield url


def test_who_may(people: str) -> None:
    asked = {"name": "mine.jsonl", "size": 5, "modified": 7}
    for name in ("vera", "anna"):
        with signed_in(people, name, PASSWORD) as client:
            assert client.get("/api/uploads").status_code == 403
            assert client.post("/api/uploads", json=asked).status_code == 403
    with signed_in(people, "cora", PASSWORD) as cora, signed_in(people, "carl", PASSWORD) as carl:
        first, second = (client.post("/api/uploads", json=asked).json()["id"] for client in (cora, carl))
        assert first != second
        refused = put(carl, first, 0, b"other")
        assert (refused.status_code, refused.json()["detail"]) == (403, "this upload is cora's")
        assert put(carl, second, 0, b"other").json()["file"] == "mine.jsonl"
        assert put(cora, first, 0, b"first").json()["file"] == "mine-2.jsonl"
    stranger = httpx.put(f"{people}/api/uploads/{first}/pieces?offset=0", content=b"first")
    assert stranger.status_code == 401
