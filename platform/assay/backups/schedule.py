"""Backups at intervals, beside a server's work.

Covers: when the next one is due (by the backups that are there, so a restart changes nothing), trying again after a
failure, ending. Leaves out: what a backup is (`assay.backups.backup`).
"""

import logging
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from assay.backups.backup import BACKUPS, back_up
from assay.backups.manifest import backups_in, read_manifest
from assay.errors import AssayError
from assay.workspace import Workspace

log = logging.getLogger(__name__)

RETRY_S = 600.0  #: at most, after a backup that failed


@dataclass(frozen=True)
class BackupSchedule:
    """`every_h`: hours between backups; 0 makes none. `to`: their folder, default `backups` in the workspace. `keep`:
    so many stay."""

    every_h: float = 0.0
    to: Path | None = None
    keep: int = 7


class ScheduledBackups:
    """A thread that makes a backup whenever one is due. `start` does nothing where the schedule makes none."""

    def __init__(self, workspace: Workspace, schedule: BackupSchedule) -> None:
        self._workspace = workspace
        self._schedule = schedule
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        if self._schedule.every_h > 0:
            self._thread = threading.Thread(target=self._run, name="assay-backup", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """A backup in progress is given up; nothing of it stays."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join()

    def due_in(self) -> float:
        """Seconds until the next backup; 0 when it is due."""
        folder = self._schedule.to or self._workspace.root / BACKUPS
        every = self._schedule.every_h * 3600.0
        for backup in reversed(backups_in(folder)):
            try:
                manifest = read_manifest(backup)
            except AssayError:
                continue
            if manifest.workspace == str(self._workspace.root):
                age = (datetime.now(UTC) - datetime.fromisoformat(manifest.created)).total_seconds()
                return max(0.0, every - age)
        return 0.0

    def _run(self) -> None:
        pause = self.due_in()
        while not self._ending.wait(pause):
            try:
                made = back_up(
                    self._workspace,
                    self._schedule.to,
                    keep=self._schedule.keep,
                    advance=lambda _: self._require_going_on(),
                )
                log.info("backup made: %s", made.folder)
                pause = max(self.due_in(), 1.0)
            except InterruptedError:
                return
            except Exception as error:  # one that failed must not be the last
                log.error("no backup was made: %s", error, exc_info=not isinstance(error, AssayError))
                pause = min(RETRY_S, self._schedule.every_h * 3600.0)

    def _require_going_on(self) -> None:
        if self._ending.is_set():
            raise InterruptedError("the server ends")
