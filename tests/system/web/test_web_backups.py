"""`assay web` makes backups at intervals, keeps as many as it is told, and goes on where one fails."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from store_contents import store_contents

from assay.backups.backup import back_up
from assay.backups.manifest import backups_in
from assay.backups.restoring import restore
from assay.backups.schedule import BackupSchedule, ScheduledBackups
from assay.workspace import Workspace

SOON_H = 0.3 / 3600
PATIENCE_S = 120.0


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


@pytest.mark.slow
def test_the_command_makes_and_removes_backups(workspace: Workspace, tmp_path: Path) -> None:
    to = tmp_path / "copies"
    command = ["web", "--open", "--port", "0", "-w", str(workspace.root), "--backup-every", str(SOON_H)]
    process = subprocess.Popen(
        [sys.executable, "-m", "assay", *command, "--backup-to", str(to), "--backup-keep", "2"],
        stderr=subprocess.DEVNULL,
    )
    try:
        seen: set[str] = set()

        def several() -> bool:
            seen.update(path.name for path in backups_in(to))
            return len(seen) >= 4

        until(several)
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    assert 2 <= len(backups_in(to)) <= 3, "the third is made before the oldest goes"
    assert not list(to.glob(".*.part"))
    restored, _ = restore(backups_in(to)[-1], tmp_path / "back")
    assert store_contents(restored) == store_contents(workspace)


def test_a_restart_makes_none_before_it_is_due(workspace: Workspace) -> None:
    scheduled = ScheduledBackups(workspace, BackupSchedule(every_h=1.0))
    assert scheduled.due_in() == 0
    back_up(workspace)
    assert 3000 < scheduled.due_in() <= 3600
    scheduled.start()
    scheduled.stop()
    assert len(backups_in(workspace.root / "backups")) == 1


def test_a_backup_that_failed_is_tried_again(
    workspace: Workspace, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "copies"
    blocked.write_text("a file where the folder should be")
    scheduled = ScheduledBackups(workspace, BackupSchedule(every_h=SOON_H, to=blocked))
    scheduled.start()
    until(lambda: "no backup was made" in caplog.text)
    blocked.unlink()
    until(lambda: backups_in(blocked))
    scheduled.stop()


def test_no_schedule_no_thread(workspace: Workspace) -> None:
    scheduled = ScheduledBackups(workspace, BackupSchedule())
    scheduled.start()
    scheduled.stop()
    assert not (workspace.root / "backups").exists()
