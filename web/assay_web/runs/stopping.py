"""Stopping a run from the page: one interrupt to its process, with a record of who requested it.

Leaves out: finding the process (`assay.runs.process`), the training's reaction (`assay.system.graceful_stop`).
"""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

from assay.errors import ConflictError
from assay.runs.process import process_of
from assay.system.atomic_files import replacing
from assay_web.runs.replies import StopNote

FILE = "stop.json"
_LOCK = threading.Lock()  # concurrent requests send one signal: a second skips the checkpoint


def stop_note(folder: Path) -> StopNote | None:
    """The stop request of a run, if any."""
    try:
        return StopNote(**json.loads((folder / FILE).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def stop(folder: Path, by: str, *, again: bool) -> StopNote:
    """Interrupt the run's process. A repeated request has no effect unless `again`, which does not wait for the step.
    Raises ConflictError if the run has ended or its process cannot be reached with certainty."""
    process = process_of(folder)
    if process is None:
        raise ConflictError("nothing is known of the run's process: end it with Ctrl-C where it runs")
    with _LOCK:
        noted = stop_note(folder)
        if noted is not None and not again and process.is_alive():
            return noted
        process.interrupt()
        noted = StopNote(by=by, at=time.time())
        with replacing(folder / FILE) as temporary:
            temporary.write_text(noted.model_dump_json() + "\n", encoding="utf-8")
        return noted
