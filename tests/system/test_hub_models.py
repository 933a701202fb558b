"""Models named by a hub id, as a person's command asks for them: fetched, unknown, and where nobody answers."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub:
    """A model hub of one model, `owner/rm`; without a `folder` it hangs up. `asked`: how often, for files."""

    def __init__(self, folder: Path | None) -> None:
        self.folder, self.asked = folder, 0

    @contextmanager
    def running(self) -> Iterator[str]:
        """Yield its address."""
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                hub.asked += "/resolve/" in self.path
                if hub.folder is None:
                    self.close_connection = True
                    return
                owner, _, file = self.path.partition("/resolve/")
                path = hub.folder / file.partition("/")[2]
                if owner != "/owner/rm" or not path.is_file():
                    self.send_response(404)
                    self.send_header("X-Error-Code", "EntryNotFound" if "/owner/rm" in owner else "RepoNotFound")
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                body = path.read_bytes()
                self.send_response(200)
                self.send_header("X-Repo-Commit", COMMIT)
                self.send_header("ETag", f'"{hashlib.sha256(body).hexdigest()}"')
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(body)

            def do_GET(self) -> None:
                self.do_HEAD()

            def log_message(self, format: str, *args: object) -> None:
                """Not on the test's output."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


def score(model: str, endpoint: str, cache: Path) -> subprocess.CompletedProcess[str]:
    """`assay score` with this hub and an empty cache of its own."""
    own = {"HF_ENDPOINT": endpoint, "HF_HOME": str(cache), "HF_HUB_OFFLINE": "0", "NO_PROXY": "127.0.0.1"}
    arguments = [
        "score",
        "--model",
        model,
        "--prompt",
        "Name a metal.",
        "--response",
        "gold",
        "--device",
        "cpu",
        "--json",
    ]
    command = [sys.executable, "-c", "from assay.cli.main import main; main()", *arguments]
    return subprocess.run(command, env={**os.environ, **own}, capture_output=True, text=True, timeout=120, check=False)


def test_a_model_is_fetched_and_then_found_in_the_cache(tiny_reward_model: Path, tmp_path: Path) -> None:
    hub = Hub(tiny_reward_model)
    with hub.running() as endpoint:
        found = score("owner/rm", endpoint, tmp_path)
        assert found.returncode == 0, found.stderr
        unknown = score("owner/mr", endpoint, tmp_path)
    assert unknown.returncode == 3
    assert "cannot get owner/mr from the model hub: owner/mr is not" in unknown.stderr
    again = score("owner/rm", endpoint, tmp_path)  # the hub is gone, the model is there
    assert again.returncode == 0, again.stderr
    assert "Retrying" not in again.stderr
    assert json.loads(again.stdout)["scores"] == json.loads(found.stdout)["scores"]


def test_a_hub_that_cannot_be_reached_is_asked_twice_and_not_for_every_file(tmp_path: Path) -> None:
    hub = Hub(None)
    with hub.running() as endpoint:
        refused = score("owner/rm", endpoint, tmp_path)
    assert refused.returncode == 3
    [line] = refused.stderr.strip().splitlines()
    assert line.startswith(f"assay: cannot get owner/rm from the model hub: {endpoint} cannot be reached")
    assert hub.asked == 2
