"""Events that nobody tells: how far queues are, runs that ended, decisions they made.

They are read from the workspace every few seconds and compared with what was told before, so that it makes no
difference who did what: the page, a command, a server that has ended since. The first look notes how things are and
tells nothing.
"""

import fcntl
import math

from assay.runs.process import RunProcess, process_of
from assay.workspace import Workspace
from assay_pipelines.annotation.queues import QueueProgress, list_queues, queue_progress
from assay_pipelines.annotation.recording import Queue
from assay_web.webhooks.event import DecisionsMade, QueueDone, QueueProgressed, RunEnded, emit
from assay_web.webhooks.webhook_file import WebhookFile

BEGUN = "begun"  #: key of the first look
LOCK = "webhooks.lock"  #: held during a look, so that of two servers of a workspace one tells an event
PARTS, VOTES = 20, 100  #: a queue's progress is told by twentieths, and by hundreds of votes
LOOKED_AT = 200  #: newest runs


class WorkspaceWatcher:
    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def look(self, file: WebhookFile) -> None:
        """Tell what has happened since the last look, unless another server looks now. Raises BusyError: the next look
        tells it."""
        with (self._workspace.root / LOCK).open("ab") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            self._look(file)

    def _look(self, file: WebhookFile) -> None:
        noted = file.noted()
        first = BEGUN not in noted
        for queue in list_queues(self._workspace):
            self._queue(file, noted, queue, first=first)
        for folder in sorted(self._workspace.runs.glob("run-*"), reverse=True)[:LOOKED_AT]:
            key = f"run {folder.name}"
            process = process_of(folder)
            if process is None or key in noted or not (process.status != "running" or process.is_gone()):
                continue
            if not first:
                self._run(folder.name, process)
            file.note(key, "ended")
        if first:
            file.note(BEGUN, "1")

    def _queue(self, file: WebhookFile, noted: dict[str, str], queue: Queue, *, first: bool) -> None:
        progress = queue_progress(self._workspace, queue.name)
        step = _step(progress)
        key = f"queue {queue.id}"
        before = noted.get(key, "0 0 open")
        if step == before:
            return
        if not first:
            name, project, items, votes = queue.name, queue.project, progress.items, progress.votes
            if step.split()[:2] != before.split()[:2]:
                emit(self._workspace, QueueProgressed(name, project, items, progress.done, votes))
            if step.endswith("done") and not before.endswith("done"):
                emit(self._workspace, QueueDone(name, project, items, votes, progress.conflicts))
        file.note(key, step)

    def _run(self, run_id: str, process: RunProcess) -> None:
        status = "interrupted" if process.status == "running" else process.status
        with self._workspace.store.unit() as db:
            rows = db.execute(
                "SELECT pool, count(*) FROM decisions WHERE run_id = ? GROUP BY pool ORDER BY pool", [run_id]
            ).fetchall()
        if rows:
            emit(self._workspace, DecisionsMade(run_id, process.kind, {str(pool): int(count) for pool, count in rows}))
        emit(self._workspace, RunEnded(run_id, process.kind, status, process.error))


def _step(progress: QueueProgress) -> str:
    """What is told of a queue's progress, as it is noted."""
    part = math.floor(PARTS * progress.done / progress.items) if progress.items else 0
    state = "done" if progress.items and progress.done >= progress.items else "open"
    return f"{part} {progress.votes // VOTES} {state}"
