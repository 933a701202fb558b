"""Images at addresses of the web: what an import that was told to fetch them takes, and what it refuses by name."""

from __future__ import annotations

import io
import json
import struct
import threading
import zlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from PIL import Image

from assay.store import media
from assay.workspace import Workspace
from assay_pipelines.importers import images
from assay_pipelines.importers.run import ImportReport, open_import, run_import
from assay_pipelines.importers.source import ImportConfig

HOST = "127.0.0.1"


def png(width: int = 4, height: int = 3) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (width, height), "red").save(stream, format="PNG")
    return stream.getvalue()


def bomb() -> bytes:
    """A small PNG whose header says 60,000 x 60,000 pixels."""
    parts = [(b"IHDR", struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)), (b"IDAT", zlib.compress(b"\0" * 9))]
    chunks = [
        struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
        for name, content in parts
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


class Pictures(BaseHTTPRequestHandler):
    """Serves pictures, and what is none."""

    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        assert isinstance(self.server, ThreadingHTTPServer)
        port = self.server.server_port
        there = {
            "/red.png": png(),
            "/text.png": b"<html>no image</html>",
            "/bomb.png": bomb(),
            "/large.png": png() + b"\0" * 20_000,
        }
        places = {
            "/moved.png": "/red.png",
            "/inside.png": "http://10.0.0.1/latest/meta-data",
            "/again.png": f"http://localhost:{port}/red.png",
            "/file.png": "file:///etc/passwd",
            "/loop.png": "/loop.png",
        }
        if self.path in places:
            self.send_response(302)
            self.send_header("Location", places[self.path])
            self.end_headers()
            return
        self.send_response(200 if self.path in there else 404)
        self.end_headers()
        self.wfile.write(there.get(self.path, b""))

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def pictures() -> Iterator[str]:
    Pictures.asked = []
    server = ThreadingHTTPServer((HOST, 0), Pictures)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://{HOST}:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def take(workspace: Workspace, path: Path, urls: list[str], hosts: tuple[str, ...] = (HOST,)) -> ImportReport:
    rows = [
        {
            "prompt": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}, "What?"]}],
            "chosen": [{"role": "assistant", "content": f"red {number}"}],
            "rejected": [{"role": "assistant", "content": "blue"}],
        }
        for number, url in enumerate(urls)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = ImportConfig(str(path), fetch_images=True, fetch_from=hosts)
    return run_import(workspace, open_import(workspace, config))


def test_images_are_fetched_and_every_other_row_says_why_not(
    workspace: Workspace, tmp_path: Path, pictures: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "MOST_BYTES", 10_000)
    names = ("red", "moved", "text", "bomb", "large", "inside", "file", "loop", "gone")
    report = take(workspace, tmp_path / "rows.jsonl", [f"{pictures}/{name}.png" for name in names])
    assert (report.pairs, report.images, report.unfetched_images) == (2, 1, 0)
    failed = "images: an image that could not be fetched: "
    assert report.rejected == {
        f"images: not an image ({', '.join(media.ENDINGS)})": 1,
        "images: an image of more than 50 megapixels": 1,
        f"{failed}more than 0 MB": 1,
        f"{failed}an address that is not public": 1,
        f"{failed}not an http address": 1,
        f"{failed}it redirects too often": 1,
        f"{failed}status 404": 1,
    }
    with workspace.store.unit() as db:
        assert db.execute("SELECT media_type, width, height FROM media").fetchall() == [("image/png", 4, 3)]
        rows = db.execute('SELECT "row", field FROM rejects ORDER BY 1').fetchall()
    assert rows == [(number, "images") for number in range(3, 10)]


def test_an_address_that_is_none_costs_its_row_alone(workspace: Workspace, tmp_path: Path, pictures: str) -> None:
    broken = ["http://[::1/a.png", f"http://{HOST}:99999/a.png", f"{pictures}/\x01.png"]
    report = take(workspace, tmp_path / "rows.jsonl", [*broken, *[f"{pictures}/red.png"] * 3])
    assert report.pairs == 3
    assert report.rejected == {"images: an image that could not be fetched: not an http address": 3}


def test_a_host_that_is_not_public_is_not_even_asked(workspace: Workspace, tmp_path: Path, pictures: str) -> None:
    url = f"{pictures}/red.png"
    path = tmp_path / "rows.jsonl"
    with pytest.raises(Exception, match="an address that is not public"):
        take(workspace, path, [url], ())
    assert Pictures.asked == []
    with pytest.raises(Exception, match="an address that is not public"):  # a redirect to another name of the machine
        take(workspace, path, [f"{pictures}/again.png"])
    assert Pictures.asked == ["/again.png"]
    assert take(workspace, path, [f"{pictures}/again.png"], (HOST, "localhost")).pairs == 1
