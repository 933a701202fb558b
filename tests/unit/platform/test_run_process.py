"""Which process does a run: known by more than its number, asked to end only when it is certain that it is the one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from assay.errors import ConflictError
from assay.runs.process import FILE, birth_of, caught_signals, is_alive, process_of
from assay.runs.record import mark_dead_runs, start_run
from assay.system.graceful_stop import stop_on_signal
from assay.workspace import Workspace

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")

WORK = """
import sys, time
from assay.system.graceful_stop import stop_on_signal
from assay.runs.record import start_run
from assay.workspace import Workspace

with start_run(Workspace.open(sys.argv[1]), "train", {}) as run:
    with stop_on_signal() as end:
        print(run.id, flush=True)
        while not end.requested:
            time.sleep(0.01)
        (run.folder / "saved").write_text("")
        raise KeyboardInterrupt
"""


@pytest.fixture
def worker(workspace: Workspace) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that does a run until it is asked to end, as the trainings do; and the run's id."""
    process = subprocess.Popen([sys.executable, "-c", WORK, str(workspace.root)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


def statuses(workspace: Workspace) -> list[tuple[str, str | None]]:
    with workspace.store.unit() as db:
        return db.execute("SELECT status, error FROM runs").fetchall()


def test_a_run_is_asked_to_end_and_ends_when_its_work_is_saved(
    workspace: Workspace, worker: tuple[subprocess.Popen[str], str]
) -> None:
    process, run = worker
    folder = workspace.runs / run
    found = process_of(folder)
    assert found is not None
    assert (found.pid, found.kind, found.is_alive()) == (process.pid, "train", True)
    assert mark_dead_runs(workspace) == []
    found.interrupt()
    process.wait(120)
    assert (folder / "saved").is_file()
    assert statuses(workspace) == [("interrupted", "KeyboardInterrupt")]
    ended = process_of(folder)
    assert ended is not None
    assert (ended.status, ended.is_alive()) == ("interrupted", False)
    with pytest.raises(ConflictError, match="the run has ended: interrupted"):
        ended.interrupt()


def test_another_process_with_the_number_of_the_runs_own_is_left_alone(
    workspace: Workspace, worker: tuple[subprocess.Popen[str], str]
) -> None:
    process, run = worker
    found = process_of(workspace.runs / run)
    assert found is not None
    assert found.birth is not None
    boot, space, ticks = found.birth.rsplit(" ", 2)
    earlier = replace(found, birth=f"{boot} {space} {int(ticks) - 1}")  # ended; its number was given to our worker
    assert not earlier.is_alive()
    with pytest.raises(ConflictError, match="another has its number"):
        earlier.interrupt()
    for other, said in (
        (replace(found, host="elsewhere"), "the run is on elsewhere"),
        (replace(found, birth=None), "cannot be told from others"),
    ):
        with pytest.raises(ConflictError, match=said):
            other.interrupt()
    time.sleep(0.05)
    assert process.poll() is None, "it was not its run"
    assert statuses(workspace) == [("running", None)]


def test_a_killed_run_is_not_taken_for_a_process_that_waits_for_its_parent(
    workspace: Workspace, worker: tuple[subprocess.Popen[str], str]
) -> None:
    process, run = worker
    os.kill(process.pid, signal.SIGKILL)
    deadline = time.monotonic() + 120
    while is_alive(process.pid):  # nobody has waited for it: the number is still its own
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert mark_dead_runs(workspace) == [run]
    assert statuses(workspace) == [("interrupted", "process gone")]


def test_a_process_that_has_gone_on_to_other_work_is_not_the_runs(workspace: Workspace) -> None:
    with start_run(workspace, "train", {}) as run:
        assert process_of(run.folder).is_alive()  # type: ignore[union-attr]
    found = process_of(run.folder)
    assert found is not None
    assert (found.status, found.is_alive(), found.birth) == ("done", False, birth_of(os.getpid()))
    (run.folder / FILE).write_text('{"pid": ')
    assert process_of(run.folder) is None


def test_the_first_request_waits_for_the_step_and_the_second_does_not() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with stop_on_signal() as end:
        assert signal.SIGTERM in caught_signals(os.getpid())
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.01)
        assert end.requested
        with pytest.raises(KeyboardInterrupt):
            end.note(signal.SIGTERM, None)
    assert signal.getsignal(signal.SIGTERM) is before
    with stop_on_signal(held=False) as end:
        assert signal.getsignal(signal.SIGTERM) is before
