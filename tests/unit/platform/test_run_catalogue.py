"""Runs and models of a workspace: listed, compared, and removed where nothing depends on them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from assay.cli.main import main
from assay.errors import BadInputError, NotFoundError
from assay.runs.catalogue import compare_runs, list_models, list_runs, remove_model, remove_run
from assay.runs.lineage import lineage
from assay.runs.record import find_artifact, start_run
from assay.workspace import Workspace


def model_of(workspace: Workspace, name: str, config: dict[str, Any], inputs: dict[str, str] | None = None) -> str:
    """A run that made a model of 6 bytes and a log of 3 of rollouts; returns the run's id."""
    with start_run(workspace, "rl", config, inputs=inputs) as run:
        folder = workspace.models / name
        folder.mkdir()
        (folder / "weights").write_bytes(b"123456")
        (run.folder / "rollouts.jsonl").write_bytes(b"{}\n")
        run.add_artifact("policy", name, folder, content_hash=name, spec={"version": f"v-{name}"})
        run.add_artifact("rollouts", f"{name}-rollouts", run.folder / "rollouts.jsonl", content_hash=name)
        run.metrics |= {"last_step": {"reward_mean": config["lr"] * 2}, "steps": 4}
    return run.id


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main([*arguments])
    output = capsys.readouterr()
    assert isinstance(end.value.code, int)
    return end.value.code, output.out, output.err


def test_two_runs_differ_in_what_was_set_and_what_came_of_it(workspace: Workspace) -> None:
    a = model_of(workspace, "a", {"lr": 0.5, "stop": [], "recipe": {"name": "grpo", "kl": 0}})
    b = model_of(workspace, "b", {"lr": 1.0, "stop": [], "recipe": {"name": "grpo", "kl": 1, "clip": 2}})
    assert compare_runs(workspace, a, b) == {
        "settings": {"lr": (0.5, 1.0), "recipe.kl": (0, 1), "recipe.clip": (None, 2)},
        "metrics": {"last_step.reward_mean": (1.0, 2.0)},
    }
    assert compare_runs(workspace, a, a) == {"settings": {}, "metrics": {}}
    with pytest.raises(NotFoundError, match="run-0"):
        compare_runs(workspace, a, "run-0")


def test_removed_files_leave_the_record(workspace: Workspace) -> None:
    run = model_of(workspace, "a", {"lr": 0.5})
    assert [model.bytes for model in list_models(workspace)] == [6]
    assert remove_model(workspace, "a") == 6
    assert not (workspace.models / "a").exists()
    [model] = list_models(workspace)
    assert (model.name, model.bytes, bool(model.removed)) == ("a", 0, True)
    assert find_artifact(workspace, "a") is None, "it cannot be loaded"
    with pytest.raises(NotFoundError):
        remove_model(workspace, "a")
    assert remove_run(workspace, run) > 0
    assert not (workspace.runs / run).exists()
    [summary] = list_runs(workspace)
    assert (summary.id, summary.models, bool(summary.removed)) == (run, ("a",), True)
    assert compare_runs(workspace, run, run) == {"settings": {}, "metrics": {}}
    made = [node.id for branch in lineage(workspace, run, "down").branches for node in branch.nodes]
    assert model.id in made


def test_a_name_can_be_given_again(workspace: Workspace) -> None:
    model_of(workspace, "a", {"lr": 0.5})
    remove_model(workspace, "a")
    model_of(workspace, "a", {"lr": 1.0})
    assert [bool(model.removed) for model in list_models(workspace)] == [False, True]
    assert remove_model(workspace, "a") == 6


@pytest.mark.parametrize("kind", ["artifact", "model_version"])
def test_what_a_run_read_stays_unless_forced(workspace: Workspace, kind: str) -> None:
    first = model_of(workspace, "a", {"lr": 0.5})
    ref = list_models(workspace)[0].id if kind == "artifact" else "v-a"
    second = model_of(workspace, "b", {"lr": 0.5}, {ref: kind, first: "run"})
    for remove, name in ((remove_model, "a"), (remove_run, first)):
        with pytest.raises(BadInputError, match=rf"was read by {second} \(rl\); --force"):
            remove(workspace, name)
    assert (workspace.models / "a" / "weights").is_file()
    assert (workspace.runs / first).is_dir()
    assert remove_model(workspace, "a", force=True) == 6
    assert remove_run(workspace, first, force=True) > 0
    assert remove_run(workspace, second) > 0


def test_a_run_under_way_and_files_elsewhere_are_not_removed(workspace: Workspace, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with start_run(workspace, "train", {}) as run:
        run.add_artifact("reward_model", "outside", elsewhere, content_hash="x")
        with pytest.raises(BadInputError, match="still running"):
            remove_run(workspace, run.id, force=True)
    with pytest.raises(BadInputError, match="not in the workspace's models"):
        remove_model(workspace, "outside", force=True)
    assert elsewhere.is_dir()


def test_the_commands(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    where = ("-w", str(workspace.root))
    for command in (("runs",), ("runs", "list")):
        assert printed(capsys, *command, *where)[1] == f"no runs in {workspace.root} yet\n"
    assert printed(capsys, "runs", "--kind", "rl", *where)[1] == f"no such runs in {workspace.root}\n"
    assert printed(capsys, "models", "list", *where)[1] == f"no model in {workspace.root} yet\n"
    a, b = (model_of(workspace, name, {"lr": lr}) for name, lr in (("a", 0.5), ("b", 1.0)))
    code, out, _ = printed(capsys, "runs", "--kind", "rl", *where)
    assert (code, [line.split()[0] for line in out.splitlines()]) == (0, [b, a])
    _, out, _ = printed(capsys, "runs", "compare", a, b, *where)
    assert out.split() == ["settings:", "lr", "0.5", "->", "1", "metrics:", "last_step.reward_mean", "1", "->", "2"]
    assert printed(capsys, "models", "compare", "a", "b", *where)[1] == out
    assert json.loads(printed(capsys, "runs", "remove", a, "--json", *where)[1])["removed"] == a
    assert printed(capsys, "runs", "--limit", "1", "--kind", "rl", *where)[1].split()[0] == b
    assert "(files removed)" in printed(capsys, "runs", *where)[1]
    assert json.loads(printed(capsys, "models", "--json", *where)[1])["models"][0]["name"] == "b"
    assert "removed the files of b" in printed(capsys, "models", "remove", "b", *where)[1]
    code, _, err = printed(capsys, "models", "remove", "c", *where)
    assert (code, err) == (3, "assay: no model 'c'; assay models lists them\n")
