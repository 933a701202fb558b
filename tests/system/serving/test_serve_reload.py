"""`assay serve` reads its configuration again, by SIGHUP and by order, in all of its processes."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from processes import children, command_line

from assay_serving.server.auth.key_store import create_key

ASSAY = str(Path(sys.executable).parent / "assay")
PATIENCE_S = 240
CONNECTIONS = 24  # new ones, so that each of two HTTP workers gets some
KEY, NEW_KEY = "the-key-until-now", "the-key-from-now-on"


@dataclass
class Server:
    """A running `assay serve`, its files, and the lines of its log."""

    process: subprocess.Popen[str]
    url: str
    config: Path
    keys: dict[str, str]
    log: Path
    settings: dict[str, Any] = field(default_factory=dict)
    seen: int = 0

    def write(self, **changes: Any) -> None:
        self.settings |= changes
        self.config.write_text(yaml.safe_dump(self.settings))

    def hang_up(self) -> dict[str, Any]:
        """Send SIGHUP, and wait for what the log says of it."""
        self.process.send_signal(signal.SIGHUP)
        return self.logged()

    def logged(self) -> dict[str, Any]:
        """The next line of an order to reload."""

        def orders() -> list[dict[str, Any]]:
            lines = [line for line in self.log.read_text().splitlines() if line.startswith("{") and line.endswith("}")]
            return [each for each in map(json.loads, lines) if each.get("action") == "reload"]

        until(lambda: len(orders()) > self.seen)
        self.seen += 1
        return orders()[self.seen - 1]

    def post(self, path: str, body: Any = None, key: str = KEY) -> httpx.Response:
        return httpx.post(self.url + path, json=body, headers={"X-API-Key": key}, timeout=PATIENCE_S)

    def score(self, items: int = 1, model: str = "rm", key: str = KEY) -> int:
        """The status of a request over a connection of its own."""
        body = {"model": model, "prompt": "Name a metal.", "responses": [f"Gold {n}." for n in range(items)]}
        return self.post("/v1/score", body, key).status_code

    def scores(self, **request: Any) -> set[int]:
        """As `score`, of all HTTP workers."""
        return {self.score(**request) for _ in range(CONNECTIONS)}

    def models(self) -> list[str]:
        reply = httpx.get(self.url + "/v1/models", headers={"X-API-Key": KEY}, timeout=PATIENCE_S)
        return [model["id"] for model in reply.json()["data"]]


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@contextmanager
def serving(model: Path, folder: Path, workers: int) -> Iterator[Server]:
    keys = {
        name: create_key(folder / "keys.json", name, scopes, models=models)[0]
        for name, scopes, models in (
            ("boss", ["admin"], None),
            ("trainer", ["score"], None),
            ("part-boss", ["admin"], ["rm"]),
        )
    }
    config, log = folder / "serve.yaml", folder / "log"
    settings: dict[str, Any] = {
        "models": [{"reference": str(model), "served_as": "rm", "device": "cpu"}],
        "port": 0,
        "workers": workers,
        "max_items": 4,
        "keys_file": "keys.json",
        "api_keys": [KEY],
        "log_format": "json",
    }
    config.write_text(yaml.safe_dump(settings))
    environment = {name: value for name, value in os.environ.items() if name != "ASSAY_API_KEY"}
    with log.open("w") as errors:
        process = subprocess.Popen(
            [ASSAY, "serve", "--config", str(config), "--max-queue", "5000", "--json"],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environment,
        )
    try:
        assert process.stdout is not None
        readable, _, _ = select.select([process.stdout], [], [], PATIENCE_S)
        line = process.stdout.readline() if readable else ""
        assert "url" in line, log.read_text()
        yield Server(process, json.loads(line)["url"], config, keys, log, settings)
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


@pytest.fixture(scope="module")
def server(tiny_reward_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tiny_reward_model, tmp_path_factory.mktemp("reload"), workers=2) as running:
        yield running


@contextmanager
def asking(server: Server) -> Iterator[list[int]]:
    """Statuses of requests that are sent without a pause meanwhile."""
    statuses: list[int] = []
    ended = threading.Event()

    def ask() -> None:
        while not ended.is_set():
            statuses.append(server.score(items=3))

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        yield statuses
    finally:
        ended.set()
        for thread in threads:
            thread.join()


@pytest.mark.slow
def test_a_hang_up_changes_limits_and_models_in_every_process(server: Server) -> None:
    model = server.settings["models"][0]
    assert server.scores(items=6) == {413}
    with asking(server) as statuses:
        server.write(
            max_items=8, max_queue_items=7, cache_entries=7, workers=3, models=[model, {**model, "served_as": "second"}]
        )
        said = server.hang_up()
        loaded = server.models()
        server.write(models=[{**model, "max_length": 64}])
        again = server.hang_up()
        until(lambda: len(statuses) > 5)
    assert said["outcome"] == "done"
    assert said["client"] == "SIGHUP"
    assert (said["changed"], said["loaded"]) == ("max_items", "second")  # the option stands above max_queue_items
    assert said["needs_restart"] == "workers,cache_entries"
    assert loaded == ["rm", "second"]
    assert (again["swapped"], again["unloaded"]) == ("rm", "second")
    assert again["needs_restart"] == "workers,cache_entries"  # still: it is said each time
    assert server.models() == ["rm"]
    assert server.scores(items=6) == {200}
    assert set(statuses) == {200}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("models: [", "not YAML"),
        ("modles: []\n", "did you mean"),
        ("max_items: many\n", "field 'max_items'"),
        ("models: [/nowhere/at/all]\n", "/nowhere/at/all"),
        (None, "no such file"),
    ],
)
def test_a_broken_file_is_one_line_and_changes_nothing(server: Server, text: str | None, reason: str) -> None:
    server.config.unlink(missing_ok=True)
    if text is not None:
        server.config.write_text(text)
    said = server.hang_up()
    assert said["outcome"] == "refused"
    assert said["reason"].startswith("the previous configuration stays: ")
    assert reason in said["reason"]
    assert "\n" not in said["reason"]
    refused = server.post("/v1/admin/reload", key=server.keys["boss"])
    assert refused.status_code in (404, 422), refused.text
    assert reason in refused.json()["detail"]
    assert (server.logged()["client"], server.models()) == ("boss", ["rm"])
    assert server.score(items=4) == 200
    assert server.process.poll() is None


@pytest.mark.slow
def test_an_order_reloads_keys_in_every_process(server: Server) -> None:
    server.write(api_keys=[KEY, NEW_KEY])
    assert server.scores(key=NEW_KEY) == {401}
    for key, status in (("trainer", 403), ("part-boss", 403), ("boss", 200)):
        reply = server.post("/v1/admin/reload", key=server.keys[key])
        assert reply.status_code == status, reply.text
    assert "api_keys" in reply.json()["changed"]
    assert "workers" in reply.json()["needs_restart"]
    said = server.logged()
    assert (said["client"], said["outcome"]) == ("boss", "done")
    assert said["request_id"] == reply.headers["x-request-id"]
    assert NEW_KEY not in server.log.read_text() + reply.text
    assert server.scores(key=NEW_KEY) == {200}
    assert server.scores(key=KEY) == {200}


@pytest.mark.slow
def test_a_process_that_is_restarted_has_the_new_configuration(server: Server) -> None:
    server.write(max_items=2, request_timeout_s=60.0)
    assert server.hang_up()["changed"] == "max_items,request_timeout_s"
    pid = server.process.pid
    old = set(children(pid))
    for child in old:
        os.kill(child, signal.SIGHUP)  # as `systemctl kill` sends it to all: only the supervisor acts on it
        if b"http_worker" in command_line(child):
            os.kill(child, signal.SIGKILL)
    until(lambda: len(set(children(pid)) - old) == 2)
    assert server.scores(items=3) == {413}
    assert server.scores(items=2) == {200}
    with_client = subprocess.run(
        [ASSAY, "serve-admin", "reload", "--server", server.url, "--api-key", server.keys["boss"]],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert with_client.stdout == "needs restart: workers, cache_entries\n", with_client.stderr


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("setsid") is None, reason="needs setsid of util-linux")
@pytest.mark.parametrize("workers", ["1", "0"])
def test_a_server_ends_with_its_terminal(rule_reward: Path, workers: str) -> None:
    terminal, inside = os.openpty()
    process = subprocess.Popen(
        ["setsid", "--ctty", ASSAY, "serve", str(rule_reward), "--port", "0", "--workers", workers],
        stdin=inside,
        stdout=inside,
        stderr=inside,
    )
    os.close(inside)
    said = b""
    try:
        while b"Ctrl-C stops" not in said:
            assert select.select([terminal], [], [], PATIENCE_S)[0], said
            said += os.read(terminal, 65536)
        process.send_signal(signal.SIGHUP)  # its terminal is still there: a reload
        while b"action=reload" not in said:
            assert select.select([terminal], [], [], PATIENCE_S)[0], said
            said += os.read(terminal, 65536)
        os.close(terminal)
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_one_process_reloads_too(tiny_reward_model: Path, tmp_path: Path) -> None:
    with serving(tiny_reward_model, tmp_path, workers=0) as server:
        assert server.score(items=6) == 413
        server.write(max_items=8)
        assert server.hang_up()["changed"] == "max_items"
        assert server.score(items=6) == 200
        server.config.write_text("models: [")
        assert server.hang_up()["outcome"] == "refused"
        assert server.post("/v1/admin/reload", key=server.keys["boss"]).status_code == 422
        server.write(max_items=4)
        reply = server.post("/v1/admin/reload", key=server.keys["boss"])
        assert reply.json()["changed"] == ["max_items"]
        assert server.score(items=6) == 413
