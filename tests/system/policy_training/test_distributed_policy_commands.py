"""`assay rl` under torchrun: one command, two processes, one policy; a process killed, the run resumed by another
number of processes; bad input in one line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from assay.runs.json_log import METRICS_FILE
from assay.workspace import Workspace
from assay_policy_training.training.checkpoint import checkpoints
from assay_policy_training.training.loop import ROLLOUTS_FILE

SMALL = ["--recipe", "grpo", "--reward", "verifier", "--policy", "tiny", "--prompts", "constrained:8"]
SMALL += ["--prompts-per-step", "3", "--group-size", "2", "--max-new-tokens", "8", "--lr", "1e-3", "--device", "cpu"]
SMALL += ["--set", "checkpoint_every=1"]
QUIET = os.environ | {"OMP_NUM_THREADS": "1"}


def torchrun(*arguments: str) -> list[str]:
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "assay.cli"]
    return [*start, *arguments]


def rows(path: Path) -> list[dict[str, Any]]:
    """Whole lines of a log that may be written to."""
    text = path.read_text() if path.is_file() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def run_of(workspace: Workspace) -> tuple[str, str, dict[str, Any], dict[str, Any]]:
    """Id, status, configuration and metrics of the newest run."""
    with workspace.store.unit() as db:
        row = db.execute(
            "SELECT run_id, status, config, metrics FROM runs ORDER BY started_at DESC, run_id DESC LIMIT 1"
        ).fetchone()
    assert row is not None
    return row[0], row[1], json.loads(row[2]), json.loads(row[3] or "{}")


def process_of(parent: int, rank: int) -> int:
    """The training process below `parent` with that rank, by what the system says of it."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            status, environment = (folder / "stat").read_text(), (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if f"RANK={rank}".encode() in environment and int(status.rpartition(")")[2].split()[1]) == parent:
            return int(folder.name)
    raise AssertionError(f"no process {rank} below {parent}")


@pytest.mark.slow
def test_two_processes_make_one_policy(workspace: Workspace) -> None:
    where = ["-w", str(workspace.root)]
    options = ["--steps", "2", "--parallel", "fsdp", "--evaluate", "2", "--name", "two", "--json"]
    options += ["--set", "optimisation.gradient_checkpointing=true"]
    done = subprocess.run(
        torchrun("rl", *SMALL, *options, *where), capture_output=True, text=True, timeout=900, check=False, env=QUIET
    )
    assert done.returncode == 0, done.stderr
    payload = json.loads(done.stdout)  # one process alone speaks
    assert (payload["processes"], payload["division"], payload["steps"]) == (2, "fsdp", 2)
    assert payload["reload_difference"] < 1e-4  # what is saved is what was trained
    assert payload["before"]["prompts"] == payload["after"]["prompts"] == 2
    run, status, config, _ = run_of(workspace)
    assert (status, config["processes"], config["division"]) == ("done", 2, "fsdp")
    assert len(list(workspace.runs.iterdir())) == 1
    written = rows(workspace.runs / run / ROLLOUTS_FILE)
    assert [row["uid"] for row in written if row["step"] == 1] == [f"1.{n // 2}" for n in range(6)]
    assert (workspace.models / "two" / "model.safetensors").is_file()


@pytest.mark.slow
def test_killed_and_resumed_by_one_process(workspace: Workspace) -> None:
    """kill -9 of one process ends the other and torchrun; the run goes on from its checkpoint, here alone."""
    where = ["-w", str(workspace.root)]
    command = torchrun("rl", *SMALL, "--steps", "400", "--parallel", "ddp", "--name", "killed", *where)
    victim = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=QUIET)
    try:
        deadline = time.monotonic() + 600
        while time.monotonic() < deadline and victim.poll() is None:
            folders = list(workspace.runs.iterdir())
            if folders and checkpoints(folders[0]) and len(rows(folders[0] / METRICS_FILE)) >= 3:
                break
            time.sleep(0.05)
        assert victim.poll() is None
        os.kill(process_of(victim.pid, 1), signal.SIGKILL)
        victim.communicate(timeout=300)
    finally:
        victim.kill()
    assert victim.returncode != 0
    killed, status, config, _ = run_of(workspace)
    assert status in ("failed", "interrupted")
    assert (config["processes"], config["division"]) == (2, "ddp")
    before = rows(workspace.runs / killed / METRICS_FILE)
    end = before[-1]["step"] + 2
    assert 5 <= end < 400
    resumed = [sys.executable, "-m", "assay.cli", "rl", "--resume", killed, "--steps", str(end), *where]
    done = subprocess.run(resumed, capture_output=True, text=True, timeout=900, check=False, env=QUIET)
    assert done.returncode == 0, done.stderr
    run, status, config, metrics = run_of(workspace)
    assert (status, config["processes"], config["division"]) == ("done", 1, "none")
    assert metrics["resumed_at"] >= 2
    after = rows(workspace.runs / run / METRICS_FILE)
    assert [row["step"] for row in after] == [*range(1, end + 1)]
    assert after[:2] == before[:2]  # the steps before the checkpoint are the killed run's own


@pytest.mark.slow(reason="a command that all refuse is in test_distributed_policy")
def test_bad_input_that_the_first_finds_ends_all_with_one_line(workspace: Workspace) -> None:
    """What all of them find: tests/invariants/policy_training/test_distributed_policy.py."""
    done = subprocess.run(
        torchrun("rl", *SMALL, "--prompts", "nowhere.jsonl", "-w", str(workspace.root)),
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
        env=QUIET,
    )
    assert done.returncode != 0
    ours = [line for line in done.stderr.splitlines() if line.startswith("assay: ")]
    assert len(ours) == 1
    assert "nowhere.jsonl" in ours[0]
