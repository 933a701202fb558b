"""What a run leaves behind when it fails."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from assay.errors import AssayError, BackendError
from assay.runs.lineage import lineage
from assay.runs.record import locate_model, start_run
from assay.workspace import Workspace

HOLD = "import duckdb, sys; held = duckdb.connect(sys.argv[1]); print(1, flush=True); sys.stdin.read()"


def fail_while_the_store_is_held(workspace: Workspace, holding: ExitStack) -> None:
    with start_run(workspace, "train", {}):
        command = [sys.executable, "-c", HOLD, str(workspace.store.path)]
        holder = holding.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        assert holder.stdout is not None
        holder.stdout.readline()
        raise ValueError("the real cause")


def test_a_store_that_is_busy_at_the_end_does_not_hide_what_went_wrong(workspace: Workspace) -> None:
    with ExitStack() as holding, pytest.raises(ValueError, match="the real cause") as caught:
        fail_while_the_store_is_held(Workspace.open(workspace.root, wait=0.2), holding)
    assert any("could not be marked as failed" in note for note in caught.value.__notes__)


def fail(workspace: Workspace) -> None:
    with start_run(workspace, "train", {}) as run:
        run.metrics["seen"] = 3
        raise ValueError("no")


def test_a_failed_run_keeps_its_error_and_metrics(workspace: Workspace) -> None:
    with pytest.raises(ValueError, match="no"):
        fail(workspace)
    with workspace.store.unit() as db:
        found = db.execute("SELECT status, error, metrics ->> 'seen' FROM runs").fetchall()
    assert found == [("failed", "ValueError: no", "3")]


def test_nobody_reads_the_credentials_of_a_url_in_a_run(workspace: Workspace) -> None:
    settings = {"rewards": ["q=http://me:pw@host:1#safety"], "kept": "a@b", "steps": 2}
    for error in (BackendError("http://me:pw@host:1 is away"), OSError("no route to http://me:pw@host:1/x")):
        assert not isinstance(error, AssayError) or str(error) == "http://host:1 is away"
        with pytest.raises(type(error)), start_run(workspace, "rl", settings):
            raise error
    with workspace.store.unit() as db:
        rows = db.execute("SELECT config, error FROM runs ORDER BY started_at").fetchall()
    assert [json.loads(config) for config, _ in rows] == [{**settings, "rewards": ["q=http://host:1#safety"]}] * 2
    assert [error for _, error in rows] == [
        "BackendError: http://host:1 is away",
        "OSError: no route to http://host:1/x",
    ]


def test_a_copied_workspace_names_its_own_models(workspace: Workspace, tmp_path: Path) -> None:
    folder = workspace.models / "rm"
    folder.mkdir()
    with start_run(workspace, "train", {}) as run:
        artifact = run.add_artifact("reward_model", "rm", folder, content_hash="h")
    with workspace.store.unit() as db:
        assert db.execute("SELECT path FROM artifacts").fetchone() == ("models/rm",)
    copied = Workspace.open(shutil.copytree(workspace.root, tmp_path / "copy"))
    for own in (workspace, copied):
        assert locate_model(own, "rm") == (str(own.models / "rm"), artifact)
        assert locate_model(own, str(own.models / "rm")) == (str(own.models / "rm"), artifact)
        assert lineage(own, str(own.models / "rm"), "up").id == artifact
    shutil.rmtree(workspace.root)
    assert locate_model(copied, "rm")[0] == str(copied.models / "rm")


def test_a_model_outside_of_the_workspace_stays_where_it_is(workspace: Workspace, tmp_path: Path) -> None:
    outside = tmp_path / "models" / "rm"
    outside.mkdir(parents=True)
    (workspace.models / "rm").mkdir()
    with start_run(workspace, "train", {}) as run:
        artifact = run.add_artifact("reward_model", "rm", outside, content_hash="h")
    assert locate_model(workspace, "rm") == (str(outside), artifact)
    with start_run(workspace, "train", {}) as run:
        own = run.add_artifact("reward_model", "own", workspace.models / "rm", content_hash="i")
    outside.rename(tmp_path / "moved")
    assert locate_model(workspace, artifact) == (str(outside), artifact)
    assert locate_model(workspace, "own") == (str(workspace.models / "rm"), own)
    assert workspace.located_path("/nowhere") == Path("/nowhere")
