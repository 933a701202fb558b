"""Ending a run from the page: what Ctrl-C does where it runs, once, with a note of who asked.

Leaves out: which process it is (`assay.runs.process`), what the trainings do when asked (`assay.system.graceful_stop`).
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
_LOCK = threading.Lock()  # of two people who press at once, only one sends the signal: a second one ends at once


def stop_note(folder: Path) -> StopNote | None:
    """Who asked for the run's end; None where nobody did."""
    try:
        return StopNote(**json.loads((folder / FILE).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def stop(folder: Path, by: str, *, again: bool) -> StopNote:
    """Ask the run's process to end. Asked once more it changes nothing, unless `again`, which does not wait for the
    step. Raises ConflictError when the run has ended, or its process cannot be reached from here for certain."""
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
