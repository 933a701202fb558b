"""`assay train bt` under torchrun: one command, two processes, a model as one process makes it; killed and resumed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from assay.cli.main import main
from assay.runs.json_log import read_metrics
from assay.workspace import Workspace
from assay_rm_training.training.resume_state import FILE

WORDS = ["red", "blue", "green", "tree", "stone", "river", "cloud", "apple"]
SETTINGS = ["--base", "tiny", "--max-length", "256", "--device", "cpu", "--dtype", "float32"]
SETTINGS += ["--batch-size", "4", "--save-every", "1"]


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    """A file of 20 pairs."""
    path = tmp_path / "pairs.jsonl"
    rows = [
        {"prompt": f"{n} {WORDS[n % 8]}", "chosen": f"{WORDS[n % 7]} it is!", "rejected": f"{WORDS[n % 5]} it is?"}
        for n in range(20)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def torchrun(*arguments: str) -> list[str]:
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "assay.cli"]
    return [*start, *arguments]


def run_of(workspace: Workspace) -> tuple[str, str, str | None, dict[str, Any], dict[str, Any]]:
    """Id, status, error, configuration and metrics of the newest run."""
    with workspace.store.unit() as db:
        row = db.execute(
            "SELECT run_id, status, error, config, metrics FROM runs ORDER BY started_at DESC, run_id DESC LIMIT 1"
        ).fetchone()
    assert row is not None
    return row[0], row[1], row[2], json.loads(row[3]), json.loads(row[4] or "{}")


def trainers(parent: int) -> dict[int, int]:
    """Rank -> process id of the training processes below `parent`, by what the system says of them."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            status = (folder / "stat").read_text()
            environment = (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        ranks = [int(entry[5:]) for entry in environment if entry.startswith(b"RANK=")]
        if ranks and int(status.rpartition(")")[2].split()[1]) == parent:
            found[ranks[0]] = int(folder.name)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_killed_in_the_middle_of_a_step_and_resumed(
    parallel: str, pairs: Path, workspace: Workspace, tmp_path: Path
) -> None:
    """kill -9 of one process ends the other and torchrun; the run goes on from its state, under both or alone."""
    where = ["-w", str(workspace.root)]
    command = ["train", "bt", "--data", str(pairs), *SETTINGS, "--epochs", "12", "--parallel", parallel, *where]
    victim = subprocess.Popen(
        torchrun(*command, "--name", "killed"),
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    try:
        deadline = time.monotonic() + 600
        while time.monotonic() < deadline and victim.poll() is None:
            states = list(workspace.runs.glob(f"*/{FILE}"))
            if states and len(read_metrics(states[0].parent)) >= 3:
                break
            time.sleep(0.05)
        assert victim.poll() is None
        os.kill(trainers(victim.pid)[1], signal.SIGKILL)
        victim.communicate(timeout=300)
    finally:
        victim.kill()
    assert victim.returncode != 0
    killed, status, _, config, _ = run_of(workspace)
    assert status in ("failed", "interrupted")
    assert (config["processes"], config["division"]) == (2, parallel)
    before = read_metrics(workspace.runs / killed)
    assert 3 <= before[-1]["step"] < 60
    done = subprocess.run(
        torchrun("train", "bt", "--resume", killed, *where),
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    run, status, _, _, metrics = run_of(workspace)
    assert status == "done"
    assert metrics["training"]["processes"] == 2
    rows = read_metrics(workspace.runs / run)
    assert [row["step"] for row in rows] == list(range(1, 61))
    assert rows[:2] == before[:2]  # the steps before the state are the killed run's own
    alone = ["train", "bt", "--data", str(pairs), *SETTINGS, "--epochs", "12", "--name", "alone", *where]
    subprocess.run([sys.executable, "-m", "assay.cli", *alone], check=True, capture_output=True, timeout=900)
    expected = [row["loss"] for row in read_metrics(workspace.runs / run_of(workspace)[0])]
    assert [row["loss"] for row in rows] == pytest.approx(expected, abs=1e-3)
    assert (workspace.models / "killed" / "assay.json").is_file()


def wait_for_state(workspace: Workspace, *processes: subprocess.Popen[str]) -> None:
    """Until a run has a state and three steps."""
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline and all(process.poll() is None for process in processes):
        states = list(workspace.runs.glob(f"*/{FILE}"))
        if states and len(read_metrics(states[0].parent)) >= 3:
            break
        time.sleep(0.05)
    assert all(process.poll() is None for process in processes)


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["process", "node"])
def test_the_same_command_ends_a_training_of_two_nodes_of_which_one_was_killed(
    victim: str, pairs: Path, workspace: Workspace, tmp_path: Path
) -> None:
    """Two torchruns, as on two machines. After a killed process they start the training again themselves; after a
    killed node whoever started them ends the other one, as srun does, and starts both again. Both go on from the
    state."""
    settings = ["train", "bt", "--data", str(pairs), *SETTINGS, "--epochs", "12", "-w", str(workspace.root)]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    launch = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1"]
    launch += ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--max-restarts", "3"]
    launch += ["-m", "assay.cli", *settings, "--parallel", "fsdp", "--name", "held", "--resume", "last"]
    logs = [tmp_path / f"node-{number}.log" for number in range(2)]

    def start(number: int) -> subprocess.Popen[str]:
        with logs[number].open("a") as log:
            options = {"stderr": log, "start_new_session": True, "env": os.environ | {"OMP_NUM_THREADS": "1"}}
            return subprocess.Popen(launch, text=True, **options)  # type: ignore[call-overload, no-any-return]

    def start_nodes() -> list[subprocess.Popen[str]]:
        first, deadline = start(0), time.monotonic() + 60
        while time.monotonic() < deadline:  # it keeps the store: the other is to find it there
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            time.sleep(0.05)
        return [first, start(1)]

    nodes = start_nodes()
    try:
        wait_for_state(workspace, *nodes)
        ranks = [next(iter(trainers(node.pid).items())) for node in nodes]
        if victim == "process":
            os.kill(ranks[1][1], signal.SIGKILL)
        else:
            for process in (nodes[1].pid, ranks[1][1], nodes[0].pid, ranks[0][1]):
                os.kill(process, signal.SIGKILL)
            for node in nodes:
                node.wait()
            nodes = start_nodes()
        codes = [node.wait(timeout=400) for node in nodes]
        assert codes == [0, 0], [log.read_text() for log in logs]
    finally:
        for node in nodes:
            with suppress(ProcessLookupError):
                os.killpg(node.pid, signal.SIGKILL)
    run, status, *_ = run_of(workspace)
    assert status == "done"
    rows = read_metrics(workspace.runs / run)
    assert [row["step"] for row in rows] == list(range(1, 61))
    subprocess.run([sys.executable, "-m", "assay.cli", *settings, "--name", "alone"], check=True, timeout=300)
    expected = [row["loss"] for row in read_metrics(workspace.runs / run_of(workspace)[0])]
    assert [row["loss"] for row in rows] == pytest.approx(expected, abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "parallel"),
    [("bt", "fsdp"), *(pytest.param(*case, marks=pytest.mark.slow) for case in (("dpo", "fsdp"), ("kto", "ddp")))],
)
def test_two_processes_make_one_model(method: str, parallel: str, pairs: Path, workspace: Workspace) -> None:
    done = subprocess.run(
        torchrun(
            *["train", method, "--data", str(pairs), "--eval-data", str(pairs), *SETTINGS, "--eval-every", "2"],
            *["--keep", "best", "--parallel", parallel, "--name", "two", "--json", "-w", str(workspace.root)],
        ),
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    payload = json.loads(done.stdout)  # one process alone speaks
    assert payload["parity"] == "passed"
    assert (payload["training"]["processes"], payload["training"]["parallel"]) == (2, parallel)
    assert "metrics are biased upwards" in payload["chosen"]
    assert payload["chosen"] in (workspace.models / "two" / "README.md").read_text()
    _, status, _, config, _ = run_of(workspace)
    assert (status, config["processes"]) == ("done", 2)
    assert len(list(workspace.runs.iterdir())) == 1
    assert not list(workspace.runs.glob("*/*.pt"))


@pytest.mark.slow
@pytest.mark.parametrize("starter", [pytest.param("torchrun", marks=pytest.mark.slow), "on"])
def test_bad_input_ends_all_with_one_line(starter: str, workspace: Workspace) -> None:
    """Slow by torchrun, which `test_bad_input_that_the_first_finds_ends_all_with_one_line` starts for `assay rl`."""
    command = ["train", "bt", "--data", "nowhere.jsonl", *SETTINGS, "-w", str(workspace.root)]
    on = [sys.executable, "-m", "assay.cli", *command, "--on", "local:2"]
    done = subprocess.run(
        torchrun(*command) if starter == "torchrun" else on,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode != 0
    ours = [line for line in done.stderr.splitlines() if line.startswith("assay: ")]
    assert len(ours) == 1
    assert "'nowhere.jsonl' is neither a snapshot" in ours[0]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--nodes", "2"], "several nodes are those of a Ray cluster"),
        (["--nproc-per-node", "2"], "processes of this machine are --on local:2"),
        (["--on", "moon"], "'moon' is no place to work"),
        (["--on", "ray:127.0.0.1:1"], "a Ray cluster without a token runs anybody's code"),
    ],
)
def test_where_a_training_cannot_be_is_said_before_it_starts(
    options: list[str], complaint: str, workspace: Workspace, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    with pytest.raises(SystemExit) as end:
        main(["train", "bt", "--data", "nowhere.jsonl", *SETTINGS, "-w", str(workspace.root), *options])
    assert end.value.code == 2
    assert complaint in capsys.readouterr().err
    assert not list(workspace.root.glob(".probe-*"))
