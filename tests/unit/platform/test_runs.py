"""What a run leaves behind when it fails."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from assay.runs.record import start_run
from assay.workspace import Workspace

HOLD = "import duckdb, sys; held = duckdb.connect(sys.argv[1]); print(1, flush=True); sys.stdin.read()"


def fail_while_the_store_is_held(workspace: Workspace) -> None:
    with start_run(workspace, "train", {}):
        holder = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(workspace.store.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        try:
            assert holder.stdout is not None
            holder.stdout.readline()
            raise ValueError("the real cause")
        finally:
            threading.Timer(2.0, holder.communicate).start()  # lets go after the run has given up


def test_a_store_that_is_busy_at_the_end_does_not_hide_what_went_wrong(workspace: Workspace) -> None:
    with pytest.raises(ValueError, match="the real cause") as caught:
        fail_while_the_store_is_held(Workspace.open(workspace.root, wait=0.2))
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
