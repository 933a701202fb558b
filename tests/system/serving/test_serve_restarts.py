"""`assay serve` after a crash: a model that cannot be loaded any more, a child that cannot be started, what is left."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from test_serve_processes import PATIENCE_S, children_of, pytestmark, started, until, url_when_ready

from assay_serving.engine_process.folder import PREFIX

__all__ = ["pytestmark"]

BODY = {"prompt": "Name a metal.", "responses": ["Gold."]}
UNREADABLE = "it must have `kind: ensemble` or `kind: composed`"


class Rewards:
    """The file of a composed reward, that can be spoilt and mended."""

    def __init__(self, file: Path, good: str) -> None:
        self.file, self._good = file, good
        self.mend()

    def spoil(self) -> None:
        self.file.write_text("kind: none")

    def mend(self) -> None:
        self.file.write_text(self._good)


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=PATIENCE_S) as made:
        yield made


def until_logged(process: subprocess.Popen[str], text: str) -> None:
    """A server that does not write it in time is killed, which ends its log."""
    assert process.stderr is not None
    timer = threading.Timer(PATIENCE_S, process.kill)
    timer.start()
    try:
        assert any(text in line for line in process.stderr), f"not in the log: {text}"
    finally:
        timer.cancel()


def crash(supervisor: int, client: httpx.Client, url: str) -> dict[str, Any]:
    """Kill the engine; what /readyz says when the next one is ready."""
    old = children_of(supervisor)["engine"]
    os.kill(old, signal.SIGKILL)
    until(lambda: children_of(supervisor).get("engine", old) != old)
    reply = client.get(url + "/readyz")

    def is_ready() -> bool:
        nonlocal reply
        reply = client.get(url + "/readyz")
        return reply.is_success

    until(is_ready)
    return dict(reply.json())


@pytest.mark.slow
def test_a_model_that_cannot_be_loaded_again_keeps_no_other_away(
    rule_reward: Path, tmp_path: Path, client: httpx.Client
) -> None:
    other = Rewards(tmp_path / "long.yaml", rule_reward.read_text().replace("max_words", "min_words"))
    arguments = (str(rule_reward), str(other.file), "--name", "rm", "--name", "other", "--port", "0")
    with started(*arguments) as process:
        url = url_when_ready(process)
        until(lambda: client.get(url + "/readyz").is_success)

        def ask(**model: str) -> httpx.Response:
            return client.post(url + "/v1/score", json=BODY | model)

        def check_both() -> None:
            # Until: an engine that does not answer at once, on a busy machine, is not ready.
            until(lambda: client.get(url + "/readyz").json() == {"status": "ready", "models": ["rm", "other"]})
            for name, reward in (("rm", 1.0), ("other", 0.0), (str(other.file), 0.0)):
                (result,) = ask(model=name).json()["results"]
                assert result["reward"] == reward

        check_both()
        other.spoil()
        ready = crash(process.pid, client, url)
        assert ready["models"] == ["rm"]
        (absent,) = ready["not_ready"]
        assert absent["id"] == "other"
        assert UNREADABLE in absent["reason"]
        assert ask(model="rm").json()["results"][0]["reward"] == 1.0
        for reply in (ask(model="other"), ask(model=str(other.file)), client.get(url + "/v1/models/other")):
            assert reply.status_code == 503
            assert int(reply.headers["Retry-After"]) >= 1
            assert reply.json()["code"] == "busy"
            assert reply.json()["detail"] == f"other is not ready: it could not be loaded again: {absent['reason']}"
        assert ask().status_code == 422  # two models are meant to be here: nobody gets the one that is left by chance
        listed = client.get(url + "/v1/models").json()
        assert [model["id"] for model in listed["data"]] == ["rm"]
        assert listed["not_ready"] == [absent]
        # An administrator gets the reason, and the model once it is mended; nothing has to be said of how it is loaded.
        again: dict[str, Any] = {"json": {"plan": {"reference": "other"}}}
        assert UNREADABLE in client.post(url + "/v1/admin/models", **again).json()["detail"]
        (told,) = client.get(url + "/v1/admin/models").json()["not_ready"]
        assert (told["name"], told["plan"]["reference"]) == ("other", str(other.file))
        other.mend()
        assert client.post(url + "/v1/admin/models", **again).is_success
        check_both()
        # A restart tries it again too: it is forgotten by nobody.
        other.spoil()
        assert len(crash(process.pid, client, url)["not_ready"]) == 1
        other.mend()
        assert crash(process.pid, client, url) == {"status": "ready", "models": ["rm", "other"]}
        check_both()
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0
    lines = [line for line in err.splitlines() if "other is not served any more" in line]
    assert len(lines) == 2
    assert all(absent["reason"] in line for line in lines)


@pytest.mark.slow
def test_at_the_start_such_a_model_is_an_error(rule_reward: Path, tiny_reward_model: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_reward_model, tmp_path / "other")
    (folder / "model.safetensors").write_bytes(b"no weights")
    with started(
        str(rule_reward), str(folder), "--port", "0", "--device", "cpu", "--name", "a", "--name", "b"
    ) as process:
        out, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 2
    assert "is not the checkpoint" in json.loads(out)["error"]["message"]


@pytest.mark.slow
def test_a_child_that_cannot_be_started_again_is_tried_until_it_can(rule_reward: Path, client: httpx.Client) -> None:
    with started(str(rule_reward), "--name", "rm", "--port", "0", "--workers", "2") as process:
        url = url_when_ready(process)
        until(lambda: client.get(url + "/readyz").is_success)
        _, most = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        opened = max(int(name) for name in os.listdir(f"/proc/{process.pid}/fd"))
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (opened, most))  # no file more, so no pipe to a child
        old = children_of(process.pid)
        os.kill(old["http_worker 0"], signal.SIGKILL)
        until(lambda: set(children_of(process.pid)) == {"engine", "http_worker 0"})
        until_logged(process, "cannot be started: Too many open files; another one in 0.4 s")  # the third try
        assert client.post(url + "/v1/score", json=BODY).is_success  # the other front goes on
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (most, most))
        until(lambda: set(children_of(process.pid)) == set(old))
        assert client.post(url + "/v1/score", json=BODY).is_success
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0


@pytest.mark.slow
def test_what_a_killed_server_leaves_the_next_one_takes_away(
    rule_reward: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    client: httpx.Client,
) -> None:
    tmp_path = tmp_path_factory.mktemp("left")  # of a name so short that a socket's path fits
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    kept = tmp_path / f"{PREFIX}of-somebody"
    kept.mkdir(mode=0o700)
    (kept / "notes").write_text("no folder of a server")

    def folders() -> set[Path]:
        return set(tmp_path.glob(f"{PREFIX}*")) - {kept}

    arguments = (str(rule_reward), "--name", "rm", "--port", "0")
    with started(*arguments) as first:
        until(folders)
        (used,) = folders()
        with started(*arguments) as killed:
            until(lambda: len(folders()) == 2)
            until(lambda: children_of(killed.pid))
            (left,) = folders() - {used}
            killed.kill()
        assert left.exists()
        with started(*arguments) as next_one:
            until(lambda: left not in folders() and len(folders()) == 2)
            url_when_ready(next_one)
            next_one.send_signal(signal.SIGTERM)
            next_one.communicate(timeout=PATIENCE_S)
        assert folders() == {used}
        url = url_when_ready(first)
        until(lambda: client.get(url + "/readyz").is_success)
        first.send_signal(signal.SIGTERM)
        first.communicate(timeout=PATIENCE_S)
    assert folders() == set()
    assert (kept / "notes").exists()
