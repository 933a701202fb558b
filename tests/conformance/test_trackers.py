"""What Weights & Biases and MLflow have of a run, by their own packages and offline, is what metrics.jsonl has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from assay_command import Run
from peer_programs import said_by

from assay.runs.json_log import read_metrics
from assay.runs.trackers import tracked_runs
from assay.workspace import Workspace


@pytest.mark.slow
def test_wandb_and_mlflow_get_every_number(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = tmp_path / "pairs.jsonl"
    rows = [{"prompt": f"Question {n}?", "chosen": "Yes, it is.", "rejected": "No."} for n in range(4)]
    pairs.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    seen = said_by("trackers", "trackers_client.py", workspace.root, pairs, WANDB_MODE="offline")
    metrics = read_metrics(workspace.runs / seen["run"])
    losses = [[row["step"], row["loss"]] for row in metrics if row["kind"] == "train"]
    accuracies = [[row["step"], row["accuracy"]] for row in metrics if row["kind"] == "eval"]
    assert len(losses) == 2
    wandb, mlflow = seen["wandb"], seen["mlflow"]
    assert (wandb["id"], wandb["project"]) == (seen["run"], "assay")
    for name, expected in (("train/loss", losses), ("eval/accuracy", accuracies)):
        assert [[row["_step"], row[name]] for row in wandb["history"] if name in row] == expected
    tracked = {run.tracker: run for run in tracked_runs(workspace.runs / seen["run"])}
    assert (tracked["wandb"].ref, tracked["wandb"].url) == (seen["run"], None)
    assert (tracked["mlflow"].store, tracked["mlflow"].url) == (f"sqlite:///{tmp_path}/mlflow.db", None)
    assert (mlflow["name"], mlflow["status"], mlflow["lr"]) == (seen["run"], "FINISHED", "0.001")
    assert mlflow["losses"] == losses
    assert "eval/nll" in mlflow["metrics"]
    status, message = seen["failed"]
    assert status == "FAILED"
    assert message.startswith("MLflow: ")
    assert "\n" not in message


TRACKER = """
import json
from assay.runs.trackers import Tracker

class Lines(Tracker):
    def __init__(self, folder, settings, keep_to_step):
        self.path = folder / "lines.jsonl"
        self.path.write_text(json.dumps([settings["name"], keep_to_step]) + "\\n")

    def log(self, metrics, step):
        with self.path.open("a") as stream:
            stream.write(json.dumps([step, metrics["train/reward_mean"]]) + "\\n")

    def close(self):
        with self.path.open("a") as stream:
            stream.write("closed\\n")
"""


def test_a_tracker_of_ones_own_gets_the_steps_of_a_policy(workspace: Workspace, tmp_path: Path, assay: Run) -> None:
    (tmp_path / "mine.py").write_text(TRACKER, encoding="utf-8")
    plan = ("--recipe", "grpo", "--policy", "tiny", "--prompts", "constrained:4", "--reward", "verifier")
    small = ("--steps", "2", "--group-size", "2", "--prompts-per-step", "2", "--max-new-tokens", "4")
    where = ("--device", "cpu", "--name", "pol", "--workspace", workspace.root)
    code, _, err = assay("rl", *plan, *small, *where, "--track", f"{tmp_path / 'mine.py'}:Lines")
    assert code == 0, err
    (folder,) = workspace.runs.glob("run-*")
    first, *steps, last = (folder / "lines.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(first) == ["pol", 0]
    assert [json.loads(line) for line in steps] == [[row["step"], row["reward_mean"]] for row in read_metrics(folder)]
    assert last == "closed"


def test_a_tracker_that_is_missing_ends_the_command_before_it_trains(workspace: Workspace, assay: Run) -> None:
    at = ("--policy", "tiny", "--reward", "verifier", "--workspace", workspace.root)
    code, _, err = assay("rl", *at, "--track", "tensorbord")
    assert (code, err.count("\n")) == (2, 1)
    assert "no tracker is named 'tensorbord'; did you mean tensorboard?" in err
    assert not list(workspace.runs.glob("run-*"))
