"""A job as its folder has it: what was asked, its process, its outcome.

Covers: writing a new one, reading it, those of earlier versions (stages) too; how it stands, and the run that it began.
Leaves out: starting and stopping (`scheduler`), the process itself (`child`), its output (`log`), figures in the store
(`figures`).

    WORKSPACE/jobs/ID/      job.json, output.txt, process.json, stop.json, exit.json, run.txt
"""

import secrets
import shlex
import shutil
import socket
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeAlias

from assay.errors import AssayError, BackendError, BadInputError, NotFoundError
from assay.runs.process import RunProcess, process_of
from assay.system.atomic_files import replacing
from assay.system.full_disk import full_disk_line
from assay.workspace import Workspace
from assay_web.jobs.kind import Lane, SettingValue
from assay_web.processes.child import EXIT_FILE, reserve
from assay_web.processes.launch import read_json, write_json
from assay_web.processes.log import tail

FOLDER, JOB_FILE, STOP_FILE, RUN_FILE = "jobs", "job.json", "stop.json", "run.txt"
EARLIER, EARLIER_FILE = "stages", "stage.json"  #: jobs of versions that only knew the stages of curation
LOOKED_AT = 200  #: newest runs among which a job's is looked for
INTERRUPTED = 130  #: exit status of a command that was interrupted
REFUSED = (BadInputError.exit_code, NotFoundError.exit_code)  #: settings or data, or some of its answers only

#: incomplete: it ended, and resumes when started again, as a loop that waits for people. stopped: somebody asked.
#: interrupted: its process was killed.
JobStatus: TypeAlias = Literal[
    "waiting", "running", "stopping", "stopped", "interrupted", "failed", "incomplete", "done"
]
GOING: frozenset[JobStatus] = frozenset(("waiting", "running", "stopping"))


@dataclass(frozen=True)
class Expected:
    """What the estimate said when the job was started. `spent`: before it, of the same budget."""

    calls: int = 0
    cost: float | None = None
    budget: float | None = None
    spent: float = 0.0


@dataclass(frozen=True)
class Job:
    """A job as it was asked for. `resumes`: the job that it goes on with. `started`: in seconds since the epoch, when
    it was asked for. `expected`: None where nothing was estimated."""

    id: str
    kind: str
    title: str
    lane: Lane
    settings: dict[str, SettingValue]
    arguments: list[str]
    by: str
    started: float
    folder: Path
    resumes: str | None = None
    expected: Expected | None = None
    process: RunProcess | None = field(default=None)

    @property
    def command(self) -> str:
        """As typed in the workspace's folder."""
        return shlex.join(["assay", *self.arguments])

    @property
    def stop(self) -> dict[str, Any] | None:
        """Who asked when that it stops."""
        return read_json(self.folder / STOP_FILE)

    @property
    def exit(self) -> dict[str, Any] | None:
        return read_json(self.folder / EXIT_FILE)

    @property
    def was_refused(self) -> bool:
        """Before or after it saved anything: the status does not say which."""
        return (self.exit or {}).get("code") in REFUSED

    @property
    def is_alive(self) -> bool:
        """Whether its process is there; one of another machine is, as far as can be seen from here."""
        if self.process is None:
            return False
        return self.process.is_alive() or (self.process.host != socket.gethostname() and self.exit is None)


@dataclass(frozen=True)
class JobOutcome:
    """`why`: in one line, None where the status says it all. `ended`: seconds since the epoch."""

    status: JobStatus
    why: str | None = None
    ended: float | None = None


def new_job(
    workspace: Workspace,
    kind: str,
    title: str,
    lane: Lane,
    settings: dict[str, SettingValue],
    arguments: list[str],
    by: str,
    now: float,
    *,
    expected: Expected | None = None,
    resumes: str | None = None,
) -> Job:
    """Write it down. Raises BackendError where the disk takes no more: then there is no job."""
    name = f"job-{datetime.fromtimestamp(now, UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
    folder = workspace.root / FOLDER / name
    job = Job(name, kind, title, lane, settings, arguments, by, now, folder, resumes, expected)
    try:
        folder.mkdir(parents=True)
        reserve(folder)
        plain = asdict(job)
        for derived in ("id", "folder", "process"):
            del plain[derived]
        write_json(folder / JOB_FILE, **plain)  # last: without it the folder is no job
    except (OSError, AssayError) as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise BackendError(f"the job was not started: {full_disk_line(error) or error}") from error
    return job


def jobs_of(workspace: Workspace, limit: int | None = None) -> list[Job]:
    """The newest first."""
    folders = sorted(
        [*(workspace.root / FOLDER).glob("job-*"), *(workspace.root / EARLIER).glob("stage-*")],
        key=lambda folder: folder.name.partition("-")[2],
        reverse=True,
    )
    jobs: list[Job] = []
    for folder in folders:
        if limit is not None and len(jobs) >= limit:
            break
        if (job := read_job(folder)) is not None:
            jobs.append(job)
    return sorted(jobs, key=lambda job: job.started, reverse=True)


def job_of(workspace: Workspace, job_id: str) -> Job:
    """Raises NotFoundError."""
    for folder in (workspace.root / FOLDER / job_id, workspace.root / EARLIER / job_id):
        if (job := read_job(folder)) is not None:
            return job
    raise NotFoundError(f"there is no job {job_id!r}")


def read_job(folder: Path) -> Job | None:
    """None where the folder has no readable job."""
    if (payload := read_json(folder / JOB_FILE)) is None:
        return _earlier(folder)
    expected = payload.pop("expected")
    return Job(
        id=folder.name,
        folder=folder,
        process=process_of(folder),
        expected=Expected(**expected) if expected else None,
        **payload,
    )


def _earlier(folder: Path) -> Job | None:
    """A stage, which earlier versions wrote down under another name."""
    if (payload := read_json(folder / EARLIER_FILE)) is None:
        return None
    settings = payload["settings"]
    kind = str(settings.pop("stage"))
    return Job(
        id=folder.name,
        kind=kind,
        title=kind.replace("_", "-").capitalize(),
        lane="store",
        settings=settings,
        arguments=shlex.split(payload["command"])[1:],
        by=payload["by"],
        started=payload["started"],
        folder=folder,
        process=RunProcess(**payload["process"]),
    )


def outcome_of(job: Job, metrics: dict[str, Any]) -> JobOutcome:
    """`metrics`: of its run, empty where nothing is known of them."""
    stop, exited = job.stop, job.exit
    if job.process is None:
        return JobOutcome("stopped", f"taken back by {stop['by']}", stop["at"]) if stop else JobOutcome("waiting")
    if job.is_alive:
        return JobOutcome("stopping", f"{stop['by']} asked it to stop") if stop else JobOutcome("running")
    if exited is None:
        return JobOutcome("interrupted", "its process was killed; what it had stored is kept")
    ended = float(exited["at"])
    if exited["code"] == INTERRUPTED:
        return JobOutcome("stopped", f"stopped by {stop['by']}" if stop else "interrupted with Ctrl-C", ended)
    if exited["code"] != 0:
        return JobOutcome("failed", exited.get("error") or _last_line(job.folder) or "it gave no reason", ended)
    judges = [judge for judge in metrics.values() if isinstance(judge, dict)]  # of a run of judges alone
    if people := metrics.get("waiting"):
        return JobOutcome("incomplete", f"waiting for people: {people}", ended)
    stopped = next((str(one["stopped"]) for one in (metrics, *judges) if one.get("stopped")), None)
    return JobOutcome("incomplete", stopped, ended) if stopped else JobOutcome("done", None, ended)


def runs_of_jobs(workspace: Workspace, jobs: Sequence[Job]) -> dict[str, str]:
    """Job id -> id of the run that its process began first."""
    runs, unknown = dict[str, str](), list[Job]()
    for job in jobs:
        with suppress(OSError):
            runs[job.id] = (job.folder / RUN_FILE).read_text(encoding="utf-8")
        if job.id not in runs and job.process is not None:
            unknown.append(job)
    by_process = {(job.process.pid, job.process.birth): job for job in unknown if job.process is not None}
    for run, process in newest_runs(workspace) if by_process else ():
        if (job := by_process.get((process.pid, process.birth))) is not None:  # type: ignore[assignment]
            runs[job.id] = run  # the newest first, so that the first of a process is the last seen
    for job in unknown:
        if job.id in runs:
            with suppress(OSError, AssayError), replacing(job.folder / RUN_FILE) as temporary:
                temporary.write_text(runs[job.id], encoding="utf-8")
    return runs


def newest_runs(workspace: Workspace) -> Iterable[tuple[str, RunProcess]]:
    """Ids and processes, the newest first."""
    folders = sorted(workspace.runs.glob("run-*"), reverse=True)[:LOOKED_AT]
    return [(folder.name, process) for folder in folders if (process := process_of(folder)) is not None]


def _last_line(folder: Path) -> str:
    lines = tail(folder).strip().splitlines()
    line = next((line for line in reversed(lines) if line.startswith("assay: ")), lines[-1] if lines else "")
    return line.removeprefix("assay: ")
