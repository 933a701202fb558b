"""`assay train bt --on ray:...`: two nodes train what one process does, also when one of them is killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from processes import command_line, tree
from ray_nodes import two_nodes

from assay.domain import Message
from assay.runs.json_log import read_metrics
from assay.workspace import Workspace
from assay_rm_training.training.resume_state import FILE
from assay_serving.model_config import ModelConfig
from assay_serving.model_loader import load_scorer
from assay_serving.scorer import ScoreItem

pytestmark = [pytest.mark.slow, pytest.mark.skipif(find_spec("ray") is None, reason="needs the extra ray")]
SETTINGS = ["--base", "tiny", "--max-length", "256", "--device", "cpu", "--dtype", "float32"]
SETTINGS += ["--batch-size", "4", "--save-every", "1", "--epochs", "4"]
STEPS, PATIENCE_S = 20, 900


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with two_nodes() as nodes:
        yield nodes


@dataclass(frozen=True)
class Uninterrupted:
    """What one process trains: its data, losses by step, and scores."""

    pairs: Path
    losses: list[float]
    scores: list[float]


@pytest.fixture(scope="module")
def uninterrupted(empty_workspace: Path, tmp_path_factory: pytest.TempPathFactory) -> Uninterrupted:
    folder = tmp_path_factory.mktemp("uninterrupted")
    workspace = Workspace.open(shutil.copytree(empty_workspace, folder / "workspace"))
    rows = [{"prompt": f"{n}?", "chosen": f"{n % 7} it is!", "rejected": f"{n % 5} it is?"} for n in range(20)]
    pairs = folder / "pairs.jsonl"
    pairs.write_text("".join(json.dumps(row) + "\n" for row in rows))
    finished(train(workspace, pairs, "alone"))
    return Uninterrupted(pairs, losses_of(workspace, "alone"), scores_of(workspace, "alone"))


def train(workspace: Workspace, pairs: Path, name: str, *options: str) -> subprocess.Popen[str]:
    command = ["train", "bt", "--data", str(pairs), *SETTINGS, "--name", name, "-w", str(workspace.root), *options]
    return subprocess.Popen(
        [sys.executable, "-m", "assay.cli", *command],
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def finished(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Its output. Fails where it failed."""
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    return out, err


def losses_of(workspace: Workspace, model: str) -> list[float]:
    """By step, each of which is there once."""
    spec = json.loads((workspace.models / model / "assay.json").read_text())
    rows = read_metrics(workspace.runs / spec["run_id"])
    assert [row["step"] for row in rows] == list(range(1, STEPS + 1))
    return [row["loss"] for row in rows]


def scores_of(workspace: Workspace, model: str) -> list[float]:
    scorer = load_scorer(ModelConfig(str(workspace.models / model), device="cpu", dtype="float32"))
    items = [ScoreItem((Message("user", f"{n}?"),), f"{n % 7} it is!") for n in range(20)]
    return [result.reward for result in scorer.score(items)]  # type: ignore[union-attr]  # none fails


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_two_nodes_train_what_one_process_does(
    parallel: str, cluster: Any, uninterrupted: Uninterrupted, workspace: Workspace
) -> None:
    on = ["--on", f"ray:{cluster.address}", "--nodes", "2", "--parallel", parallel]
    out, err = finished(train(workspace, uninterrupted.pairs, "two", *on, "--json"))
    payload = json.loads(out)  # rank 0 alone speaks
    assert (payload["training"]["processes"], payload["training"]["parallel"]) == (2, parallel)
    assert f"training: {STEPS} steps" in err
    assert losses_of(workspace, "two") == pytest.approx(uninterrupted.losses, abs=1e-5)
    assert scores_of(workspace, "two") == pytest.approx(uninterrupted.scores, abs=1e-5)
    assert not list(workspace.root.glob(".probe-*"))


@pytest.mark.parametrize("victim", ["node", "rank"])
def test_a_killed_node_is_made_up_for(
    victim: str, cluster: Any, uninterrupted: Uninterrupted, workspace: Workspace
) -> None:
    """kill -9 of all processes of a node, or of its rank, after a state is saved. Another node comes; the model is that
    of the uninterrupted training."""
    (node,) = cluster.worker_nodes
    on = ["--on", f"ray:{cluster.address}", "--nodes", "2", "--parallel", "fsdp"]
    training = train(workspace, uninterrupted.pairs, "held", *on)
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and training.poll() is None:
        states = list(workspace.runs.glob(f"*/{FILE}"))
        if states and len(read_metrics(states[0].parent)) >= 3:
            break
        time.sleep(0.05)
    assert training.poll() is None
    processes = list(tree(node.all_processes["raylet"][0].process.pid))
    rank = next(pid for pid in processes if b"\0-m\0assay.cli" in command_line(pid))
    if victim == "node":
        for process in processes:
            os.kill(process, signal.SIGKILL)
        cluster.remove_node(node, allow_graceful=False)
        cluster.add_node(num_cpus=1, include_dashboard=False)
    else:
        os.kill(rank, signal.SIGKILL)
    _, err = finished(training)
    assert "all ranks start again (1 of 3)" in err
    assert losses_of(workspace, "held") == pytest.approx(uninterrupted.losses, abs=1e-5)
    assert scores_of(workspace, "held") == pytest.approx(uninterrupted.scores, abs=1e-5)
    with workspace.store.unit() as db:
        runs = db.execute("SELECT status FROM runs ORDER BY started_at").fetchall()
    assert len(runs) == 2
    assert runs[0][0] in ("failed", "interrupted")
    assert runs[1][0] == "done"


def test_what_is_wrong_is_one_line_before_work_starts(
    cluster: Any, uninterrupted: Uninterrupted, workspace: Workspace
) -> None:
    on = f"ray:{cluster.address}"
    for options, complaint in (
        (["--on", on, "--nodes", "3"], "has 2 nodes with 1 CPU, not 3"),
        (["--on", on, "--nproc-per-node", "2"], "has 0 nodes with 2 CPUs, not 1"),
        (["--on", "ray:127.0.0.1:9", "--nodes", "2"], "the Ray cluster at 127.0.0.1:9 cannot be reached"),
    ):
        training = train(workspace, uninterrupted.pairs, "none", *options)
        _, err = training.communicate(timeout=PATIENCE_S)
        assert training.returncode == 5
        assert len(err.splitlines()) == 1
        assert complaint in err
    assert not list(workspace.runs.iterdir())
