"""Stages started from the page: separate process groups that outlive the web server, one at a time.

Covers: starting, listing, pausing (Ctrl-C, after which a command can be resumed), the outcome; progress and spending,
from progress files in the run's folder, which can be read while another process holds the store, and from the store.
Leaves out: the commands (`stage_settings`), run records (`assay.runs.record`), writing progress files
(`assay.runs.progress_file`), the record of calls (`assay_pipelines.llm.calls`).

    WORKSPACE/stages/lock           held by the process of the running stage, whichever server started it
    WORKSPACE/stages/ID/            stage.json, output.txt, pause.json, exit.json
"""

import fcntl
import json
import os
import secrets
import shlex
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from assay.errors import BusyError, ConflictError, NotFoundError
from assay.runs.process import RunProcess, birth_of, process_of
from assay.runs.progress_file import progress_of
from assay.system.atomic_files import replacing
from assay.workspace import Workspace
from assay_pipelines.llm.calls import RunSpending, spending_of_runs
from assay_web.curate.replies import StageCount, StageExpected, StageRecord, StageStatus
from assay_web.curate.stage_child import EXIT_FILE
from assay_web.curate.stage_settings import StageSettings

MOST = 1_000  #: runs whose last figures are cached for while a stage holds the store


@dataclass(frozen=True)
class StoredFigures:
    """`metrics`: of a finished run, empty before. `spent`: None if it called no model."""

    metrics: dict[str, Any]
    spent: RunSpending | None


NOTHING = StoredFigures({}, None)


def counts_of(folder: Path) -> list[StageCount]:
    """The last progress of the run in this folder."""
    return [StageCount.model_validate(one, from_attributes=True) for one in progress_of(folder)]


def stored_figures(workspace: Workspace, runs: Iterable[str]) -> dict[str, StoredFigures]:
    """Figures of these runs in the store; the last ones read while another process holds it."""
    run_ids = list(runs)
    if not run_ids:
        return {}
    try:
        spent = spending_of_runs(workspace, run_ids)
        with workspace.store.unit() as db:
            rows = db.execute(
                "SELECT run_id, metrics::VARCHAR FROM runs WHERE list_contains($runs, run_id) AND metrics IS NOT NULL",
                {"runs": run_ids},
            ).fetchall()
    except BusyError:
        with _LOCK:
            return {run: _LAST[workspace.root, run] for run in run_ids if (workspace.root, run) in _LAST}
    ended = {run: json.loads(metrics) for run, metrics in rows}
    stored = {run: StoredFigures(ended.get(run, {}), spent.get(run)) for run in run_ids}
    with _LOCK:
        for run, figures in stored.items():
            _LAST[workspace.root, run] = figures
        while len(_LAST) > MOST:
            del _LAST[next(iter(_LAST))]
    return stored


_LAST: dict[tuple[Path, str], StoredFigures] = {}
_LOCK = threading.Lock()


FOLDER, LOCK = "stages", "lock"
STAGE_FILE, PAUSE_FILE, OUTPUT_FILE = "stage.json", "pause.json", "output.txt"
KINDS = frozenset(
    (
        "clean",
        "dedup",
        "near-dup",
        "decontaminate",
        "curate-verify",
        "curate-consistency",
        "curate-stage1",
        "curate-stage2",
        "judge",
    )
)
ENDING_SECONDS = 5.0  #: a process that has written its exit status needs at most this long to end
INTERRUPTED = 130  #: exit status of a command that was interrupted
SHOWN, TAIL = 20, 6_000  #: stages listed; characters of their output
LOOKED_AT = 200  #: newest runs among which a stage's is looked for


@dataclass(frozen=True)
class StageProcess:
    """A stage as it was started."""

    id: str
    settings: StageSettings
    command: str
    by: str
    started: float
    process: RunProcess
    folder: Path
    expected: StageExpected | None  #: None for one that was started before this was noted


_STAGES = TypeAdapter(StageProcess)


def command_line(settings: StageSettings) -> str:
    """The command as typed in the workspace's folder."""
    return shlex.join(["assay", *settings.arguments()])


def start_stage(workspace: Workspace, settings: StageSettings, by: str, expected: StageExpected) -> StageProcess:
    """Raises ConflictError while another stage runs."""
    if (other := running_elsewhere(workspace)) is not None:
        raise ConflictError(f"{other} is going on: one stage at a time")
    root = workspace.root / FOLDER
    root.mkdir(exist_ok=True)
    lock = os.open(root / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        _take(lock, root)
        now = time.time()
        folder = root / f"stage-{datetime.fromtimestamp(now, UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
        folder.mkdir()
        with (folder / OUTPUT_FILE).open("wb") as output:
            child = subprocess.Popen(
                [sys.executable, "-m", "assay_web.curate.stage_child", str(folder), *settings.arguments()],
                cwd=workspace.root,
                env={**os.environ, "ASSAY_WORKSPACE": str(workspace.root), "PYTHONUNBUFFERED": "1", "NO_COLOR": "1"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=(lock,),  # the child keeps the lock for as long as it lives
            )
        process = RunProcess(
            child.pid,
            socket.gethostname(),
            birth_of(child.pid),
            "stage",
            datetime.fromtimestamp(now, UTC).isoformat(timespec="seconds"),
        )
        stage = StageProcess(folder.name, settings, command_line(settings), by, now, process, folder, expected)
        with replacing(folder / STAGE_FILE) as temporary:
            temporary.write_bytes(_STAGES.dump_json(stage, exclude={"id", "folder"}))
        threading.Thread(target=child.wait, name=f"assay-{folder.name}", daemon=True).start()  # leaves no zombie
        return stage
    finally:
        os.close(lock)


def _take(lock: int, root: Path) -> None:
    """Raises ConflictError while another stage holds the lock; one that has written its exit status is waited for."""
    patience = time.monotonic() + ENDING_SECONDS
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            running = any(not (folder / EXIT_FILE).exists() for folder in root.glob("stage-*"))
            if running or time.monotonic() > patience:
                raise ConflictError("another stage is going on: one at a time") from None
        time.sleep(0.02)


def pause_stage(workspace: Workspace, stage_id: str, by: str) -> StageProcess:
    """Send one interrupt. Raises NotFoundError; ConflictError if it has ended or cannot be reached."""
    stage = stage_of(workspace, stage_id)
    if (stage.folder / PAUSE_FILE).exists() and stage.process.is_alive():
        return stage  # a second Ctrl-C would not wait for the step
    if (stage.folder / EXIT_FILE).exists():
        raise ConflictError("the stage has ended")
    stage.process.interrupt()
    with replacing(stage.folder / PAUSE_FILE) as temporary:
        temporary.write_text(json.dumps({"by": by, "at": time.time()}), encoding="utf-8")
    return stage


def stages_of(workspace: Workspace) -> list[StageProcess]:
    """The newest first, at most SHOWN."""
    folders = sorted((workspace.root / FOLDER).glob("stage-*"), reverse=True)[:SHOWN]
    return [stage for folder in folders if (stage := _read(folder)) is not None]


def stage_of(workspace: Workspace, stage_id: str) -> StageProcess:
    """Raises NotFoundError."""
    for stage in stages_of(workspace):
        if stage.id == stage_id:
            return stage
    raise NotFoundError(f"no stage {stage_id!r} among the last {SHOWN}")


def runs_of(workspace: Workspace, stages: Sequence[StageProcess]) -> dict[str, str]:
    """Stage id -> id of the run that its process began, among the newest runs."""
    by_process = {(stage.process.pid, stage.process.birth): stage.id for stage in stages}
    return {
        by_process[process.pid, process.birth]: run
        for run, process in _newest_runs(workspace)
        if (process.pid, process.birth) in by_process
    }


def running_elsewhere(workspace: Workspace) -> str | None:
    """A running stage that was not started from the page."""
    processes = {(stage.process.pid, stage.process.birth) for stage in stages_of(workspace)}
    for run, process in _newest_runs(workspace):
        if process.kind in KINDS and (process.pid, process.birth) not in processes and process.is_alive():
            return run
    return None


def record_of_stage(stage: StageProcess, run_id: str | None, stored: StoredFigures) -> StageRecord:
    """`stored`: what the store has of its run."""
    status, why, ended = _outcome(stage, run_id, stored.metrics)
    return StageRecord(
        **vars(stage),
        ended=ended,
        status=status,
        why=why,
        run_id=run_id,
        progress=counts_of(stage.folder.parent.parent / "runs" / run_id) if run_id is not None else [],
        spent=stored.spent,
        output=_tail(stage.folder / OUTPUT_FILE),
    )


def _outcome(
    stage: StageProcess, run_id: str | None, metrics: dict[str, Any]
) -> tuple[StageStatus, str | None, float | None]:
    if stage.process.is_alive():
        if (request := _json(stage.folder / PAUSE_FILE)) is not None:
            return "pausing", f"{request.get('by')} asked for a pause", None
        return ("running" if run_id is not None else "starting"), None, None
    exited = _json(stage.folder / EXIT_FILE)
    if exited is None:
        return "paused", "its process was ended from outside", None
    ended = float(exited["at"])
    if exited["code"] == INTERRUPTED:
        request = _json(stage.folder / PAUSE_FILE)
        return "paused", f"paused by {request['by']}" if request else "interrupted", ended
    if exited["code"] != 0:
        last = _tail(stage.folder / OUTPUT_FILE).strip().splitlines()
        message = next((line for line in reversed(last) if line.startswith("assay: ")), last[-1] if last else "")
        return "failed", message.removeprefix("assay: "), ended
    judges = [judge for judge in metrics.values() if isinstance(judge, dict)]  # of a run of judges alone
    why = metrics.get("waiting") or next((one["stopped"] for one in (metrics, *judges) if one.get("stopped")), None)
    return ("waiting", f"{'waiting for people: ' if metrics.get('waiting') else ''}{why}", ended) if why else (
        "done", None, ended
    )  # fmt: skip


def _newest_runs(workspace: Workspace) -> list[tuple[str, RunProcess]]:
    folders = sorted(workspace.runs.glob("run-*"), reverse=True)[:LOOKED_AT]
    return [(folder.name, process) for folder in folders if (process := process_of(folder)) is not None]


def _read(folder: Path) -> StageProcess | None:
    payload = _json(folder / STAGE_FILE)
    if payload is None:
        return None
    return _STAGES.validate_python({"expected": None} | payload | {"id": folder.name, "folder": folder})


def _json(path: Path) -> dict[str, Any] | None:
    try:
        payload: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return payload


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 4 * TAIL))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    lines = [line.rsplit("\r", 1)[-1] for line in text.replace("\r\n", "\n").split("\n")]  # a bar's last state
    return "\n".join(lines)[-TAIL:]
