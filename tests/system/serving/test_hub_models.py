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

import pytest
from published_models import H, rand, tiny_state, write

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub:
    """A model hub of one model, `name`; without a `folder` it hangs up. `asked`: how often, for files."""

    def __init__(self) -> None:
        self.name, self.asked = "owner/rm", 0
        self.folder: Path | None = None

    @contextmanager
    def running(self) -> Iterator[str]:
        """Yield its address."""
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                hub.asked += "/resolve/" in self.path
                if self.path.startswith(f"/api/models/{hub.name}") and hub.folder is not None:
                    files = [(path.name, path.stat().st_size) for path in hub.folder.iterdir()]
                    reply: object = {"id": hub.name, "sha": COMMIT, "siblings": [{"rfilename": n} for n, _ in files]}
                    if "/tree/" in self.path:
                        reply = [{"type": "file", "path": n, "size": size, "oid": "0" * 40} for n, size in files]
                    self.answer(json.dumps(reply).encode())
                    return
                if hub.folder is None:
                    self.close_connection = True
                    return
                owner, _, file = self.path.partition("/resolve/")
                path = hub.folder / file.partition("/")[2]
                if owner != f"/{hub.name}" or not path.is_file():
                    self.send_response(404)
                    self.send_header("X-Error-Code", "EntryNotFound" if f"/{hub.name}" in owner else "RepoNotFound")
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                self.answer(path.read_bytes())

            def answer(self, body: bytes) -> None:
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

        self._server = server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            self.stop()
            thread.join()

    def stop(self) -> None:
        """From here on nobody answers at its address."""
        self._server.shutdown()
        self._server.server_close()


#: Reads one JSON array a line, [arguments, where to write what the command prints], and answers with its exit code.
#: Each command is a process of its own, forked from this one, which has imported what takes long and done nothing else.
COMMANDS = """
import json, os, sys
import transformers.modeling_utils, transformers.models.llama.modeling_llama
from transformers import AutoModelForSequenceClassification, AutoTokenizer
import transformers.convert_slow_tokenizer, transformers.models.auto.tokenization_auto
import assay.workspace, assay_serving.commands.score, assay_serving.model_loader, assay_serving.score_files
import assay_serving.engines.transformers
from assay.cli.main import main
for line in sys.stdin:
    arguments, out = json.loads(line)
    child = os.fork()
    if child == 0:
        for number, kind in ((1, "out"), (2, "err")):
            os.dup2(os.open(f"{out}.{kind}", os.O_WRONLY | os.O_CREAT), number)
        main(arguments)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Commands:
    """`assay score` with the hub at `endpoint` and a cache that is empty at first. Entered, it runs."""

    def __init__(self, endpoint: str, folder: Path) -> None:
        self._folder, self._asked = folder, 0
        own = {"HF_ENDPOINT": endpoint, "HF_HOME": str(folder / "hf"), "HF_HUB_OFFLINE": "0", "NO_PROXY": "127.0.0.1"}
        self._process = subprocess.Popen(
            [sys.executable, "-c", COMMANDS],
            env={**os.environ, **own},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Commands:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def score(self, model: str) -> tuple[int, str, str]:
        """(exit code, standard output, standard error)"""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._asked += 1
        out = self._folder / f"command-{self._asked}"
        question = ["--prompt", "Name a metal.", "--response", "gold"]
        arguments = ["score", "--model", model, *question, "--device", "cpu", "--json"]
        self._process.stdin.write(json.dumps([arguments, str(out)]) + "\n")
        self._process.stdin.flush()
        code = int(self._process.stdout.readline())
        return code, out.with_suffix(".out").read_text(), out.with_suffix(".err").read_text()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Hub, str, Commands]]:
    hub = Hub()
    with hub.running() as endpoint, Commands(endpoint, tmp_path_factory.mktemp("hub")) as commands:
        yield hub, endpoint, commands


@pytest.mark.slow
def test_a_published_form_is_fetched_by_its_hub_id(place: tuple[Hub, str, Commands], tmp_path: Path) -> None:
    hub, _, commands = place
    hub.name = "owner/published"
    weights = tiny_state() | {"value_head.weight": rand(1, H)}
    hub.folder = folder = write(tmp_path / "hub", weights, architecture="RewardModel")
    code, fetched, err = commands.score(hub.name)
    assert code == 0, err
    code, local, err = commands.score(str(folder))
    assert code == 0, err
    assert json.loads(fetched)["scores"][0]["reward"] == json.loads(local)["scores"][0]["reward"]
    assert json.loads(fetched)["scores"][0]["version"] == COMMIT


@pytest.mark.slow
def test_a_hub_that_hangs_up_is_asked_twice_and_a_model_is_fetched_once(
    place: tuple[Hub, str, Commands], tiny_reward_model: Path
) -> None:
    hub, endpoint, commands = place
    hub.name, hub.folder, hub.asked = "owner/rm", None, 0
    code, _, err = commands.score("owner/rm")
    assert code == 3
    [line] = err.strip().splitlines()
    assert line.startswith(f"assay: cannot get owner/rm from the model hub: {endpoint} cannot be reached")
    assert hub.asked == 2  # and not for every file

    hub.folder = tiny_reward_model
    code, found, err = commands.score("owner/rm")
    assert code == 0, err
    code, _, err = commands.score("owner/mr")
    assert code == 3
    assert "cannot get owner/mr from the model hub: owner/mr is not" in err
    hub.stop()  # for the tests of this file, too
    code, again, err = commands.score("owner/rm")  # the hub is gone, the model is there
    assert code == 0, err
    assert "Retrying" not in err
    assert json.loads(again)["scores"] == json.loads(found)["scores"]
