"""A reward server that is killed and comes back: no rollout is lost or masked; one that never answered ends the run."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from reserved_ports import reserved_port

from assay.cli.main import main
from assay.domain import Message
from assay.errors import BackendError
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.rollouts import outage
from assay_policy_training.rollouts.open_rewards import open_rewards
from assay_policy_training.training.checkpoint import CheckpointSchedule
from assay_policy_training.training.loop import PolicyLoop
from assay_serving.client import RewardClient

START_S = 300
ITEMS = [PromptItem((Message("user", "Name a colour."),))] * 4
RESPONSES = ["Blue.", "Red and green.", "Grey.", "Black, mostly."]
ASKED = ["rl", "--policy", "tiny", "--prompts", "constrained:4", "--recipe", "dr_grpo", "--set", "report_kl=false"]
ASKED += ["--prompts-per-step", "2", "--group-size", "2", "--max-new-tokens", "4", "--set", "checkpoint_every=0"]


class Server:
    """`assay serve` on a port of its own; `kill` returns when all its processes have ended."""

    def __init__(self, model: Path) -> None:
        self.port = reserved_port()
        self.model, self.url = model, f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "assay.cli", "serve", str(self.model), "--port", str(self.port)]
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)

    def wait(self) -> None:
        with RewardClient(self.url, api_key="") as client:
            client.wait_until_ready(START_S)

    def kill(self) -> None:
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None
            deadline = time.monotonic() + START_S  # its children, in groups of their own, end when they notice
            while time.monotonic() < deadline:
                try:
                    socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                except ConnectionRefusedError:
                    return
                except OSError:
                    continue
                time.sleep(0.02)
            raise AssertionError("the server's children go on")


@pytest.fixture
def server(rule_reward: Path) -> Iterator[Server]:
    server = Server(rule_reward)
    server.start()
    try:
        server.wait()
        yield server
    finally:
        server.kill()


@contextmanager
def once_logged(caplog: pytest.LogCaptureFixture, text: str, action: Any) -> Iterator[None]:
    """`action` from another thread, when the log has the text."""
    ended = threading.Event()

    def act() -> None:
        while not any(text in record.message for record in list(caplog.records)):
            if ended.wait(0.05):
                return
        action()

    thread = threading.Thread(target=act)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@pytest.mark.slow
def test_rollouts_are_held_until_the_server_is_back(
    server: Server, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before the batch, started again while it is held; then gone for good."""
    monkeypatch.setattr(outage, "SHOWN_EVERY_S", 1.0)
    monkeypatch.setattr(outage, "PROBE_S", 1.0)
    with ExitStack() as stack:
        (source,) = open_rewards(stack, [server.url], [""], wait=START_S, deadline=6, outage=START_S)
        before = source.score(ITEMS, RESPONSES)
        assert not any(before.failures)
        rewards = source.score(ITEMS[:2], ["Fine.", "\ud800"])  # no valid Unicode: no outage, no wait
        assert [len(failures) for failures in rewards.failures] == [0, 1]
        assert not source.numbers()  # type: ignore[attr-defined]
        server.kill()
        with once_logged(caplog, "no answer for", server.start):
            after = source.score(ITEMS, RESPONSES)
        assert not any(after.failures)
        assert {name: part.tolist() for name, part in after.parts.items()} == {
            name: part.tolist() for name, part in before.parts.items()
        }
        messages = "\n".join(record.message for record in caplog.records)
        assert re.search(r"4 rollouts are held, waiting up to 300 s", messages)
        assert re.search(r"no answer for \d+ s of at most 300", messages)
        assert re.search(r"answers again after \d+ s", messages)
        assert source.numbers()["reward_outage_seconds"] > 1  # type: ignore[attr-defined]
        (source,) = open_rewards(stack, [server.url], [""], wait=START_S, deadline=2, outage=2)
        server.kill()
        with pytest.raises(BackendError, match="has not answered for 2 s"):
            source.score(ITEMS, RESPONSES)


@pytest.mark.slow
def test_a_run_ends_with_a_checkpoint_when_its_server_stays_away(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed in the third step: the run says how to resume, and ends as the one whose server never stopped."""
    where = ["-w", str(tmp_path / "w"), "--json"]
    common = [*ASKED, "--reward", server.url, "--steps", "4", "--outage", "2", "--deadline", "6"]

    def command(*arguments: str) -> tuple[Any, str, str]:
        with pytest.raises(SystemExit) as end:
            main([*arguments])
        return (end.value.code, *capsys.readouterr())

    assert command("init", str(tmp_path / "w"))[0] == 0
    code, out, err = command(*common, "--name", "whole", *where)
    assert code == 0, err
    whole = json.loads(out)["last_step"]
    step_of = PolicyLoop._step

    def killed_in_third(self: PolicyLoop, step: int) -> dict[str, Any]:
        if step == 3:
            server.kill()
        return step_of(self, step)

    with monkeypatch.context() as patch:
        patch.setattr(PolicyLoop, "_step", killed_in_third)
        code, _, err = command(*common, "--name", "parts", *where)
    assert code == 5, err
    assert "has not answered for 2 s" in err
    resume = re.search(r"resume with: assay rl --resume (run-\S+)", err)
    assert resume, err
    server.start()
    server.wait()
    code, out, err = command("rl", "--resume", resume[1], *where)
    assert code == 0, err
    resumed = json.loads(out)
    assert resumed["resumed_at"] == 2
    measured = ("step", "loss", "grad_norm", "reward_mean", "entropy", "length_mean")
    assert {key: resumed["last_step"].get(key) for key in measured} == {key: whole.get(key) for key in measured}


def test_an_address_that_never_answered_ends_the_run_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["init", str(tmp_path / "w")])
    with pytest.raises(SystemExit) as end:
        main([*ASKED, "--reward", f"http://127.0.0.1:{reserved_port()}", "-w", str(tmp_path / "w")])
    assert end.value.code == 5
    assert not list((tmp_path / "w" / "runs").iterdir()), "before any work"
    err = capsys.readouterr().err
    assert "(waiting up to 60 s while it loads, 2.5 s where nothing answers)" in err
    assert "is not ready after 2.5 s" in err
    assert "assay serve MODEL starts one" in err


def test_a_checkpoint_is_due_before_too_much_could_be_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    schedule = CheckpointSchedule(every=0, minutes=10)
    due = []
    for step in range(1, 8):  # of 4 minutes: two fit
        now += 240
        due.append(schedule.due(step))
        if due[-1]:
            schedule.saved()
    assert due == [False, True, False, True, False, True, False]
    assert not CheckpointSchedule(every=0, minutes=0).due(20)
    assert CheckpointSchedule(every=5, minutes=0).due(20)
