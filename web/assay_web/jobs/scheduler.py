"""Starting jobs: each a process group of its own, which outlives the web server; those of a lane wait for each other.

Covers: beginning what may begin, now and when something has ended, also after a restart of the server; what a job
waits for; asking one to stop. A lane's places are locked files that the processes of the jobs inherit, so that a place
is free exactly when its process is gone, whichever server of the workspace started it. Leaves out: what is written
down of a job (`job`), the process (`child`).

    WORKSPACE/jobs/lock             held while a server begins or takes back jobs
    WORKSPACE/jobs/LANE-N.lock      held by the process of a job
"""

import fcntl
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import get_args

from assay.errors import AssayError, ConflictError
from assay.runs.process import FILE as PROCESS_FILE
from assay.runs.process import note_process
from assay.workspace import Workspace
from assay_web.jobs.job import FOLDER, STOP_FILE, Job, jobs_of, newest_runs, read_job
from assay_web.jobs.kind import Lane
from assay_web.processes.child import KIND
from assay_web.processes.launch import launch, write_json
from assay_web.settings import RewardServer

log = logging.getLogger(__name__)

PLACES: dict[Lane, int] = {"store": 1, "compute": 2}  #: jobs of a lane at once
#: Kinds of runs that hold the store for long; one that the command line started is waited for, too.
HOLDING = frozenset(
    (
        *("import", "clean", "dedup", "near-dup", "decontaminate", "judge"),
        *("curate-verify", "curate-consistency", "curate-stage1", "curate-stage2"),
    )
)
LOOK_S, IDLE_S = 0.5, 15.0  #: between two looks at whether something may begin, while something waits and otherwise


class JobScheduler:
    """`start` before the first request, `stop` after the last; running jobs go on. `servers`: reward servers that the
    page knows, whose keys a job gets that names one."""

    def __init__(self, workspace: Workspace, servers: Callable[[], Iterable[RewardServer]] = tuple) -> None:
        self.workspace = workspace
        self._servers = servers
        self._root = workspace.root / FOLDER
        self._wake, self._ending = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._look, name="assay-jobs", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._ending.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def advance(self) -> bool:
        """Begin every waiting job that finds a place, the oldest first. Whether one still waits."""
        waiting = self.waiting()
        if not waiting:
            return False
        with self._locked():
            for lane in get_args(Lane):
                for job in self.waiting():
                    if job.lane == lane and not self._begin(job):
                        break
        return bool(self.waiting())

    def waiting(self) -> list[Job]:
        """The oldest first."""
        folders = self._root.glob("job-*")
        jobs = [read_job(f) for f in folders if not (f / PROCESS_FILE).exists() and not (f / STOP_FILE).exists()]
        return sorted((job for job in jobs if job is not None), key=lambda job: job.started)

    def waits_for(self, job: Job, alive: list[Job]) -> list[str]:
        """Ids of the jobs of its lane that are before it, else of a run that holds the store. `alive`: running jobs."""
        before = [other for other in self.waiting() if other.lane == job.lane and other.started < job.started]
        ids = [other.id for other in (*alive, *before) if other.lane == job.lane]
        run = running_elsewhere(self.workspace) if not ids and job.lane == "store" else None
        return [run] if run is not None else ids

    def ask_to_stop(self, job: Job, by: str) -> None:
        """Do what Ctrl-C does, once; a waiting job is taken back. Raises ConflictError if it has ended or cannot be
        reached."""
        with self._locked():
            job = read_job(job.folder) or job
            if job.process is None:
                self._note_stop(job, by)
                return
            if job.stop is not None and job.is_alive:
                return  # a second Ctrl-C would not wait for the step
            if job.exit is not None:
                raise ConflictError("the job has ended")
            job.process.interrupt()
            self._note_stop(job, by)

    def wake(self) -> None:
        """Look now: something new waits."""
        self._wake.set()

    def _note_stop(self, job: Job, by: str) -> None:
        write_json(job.folder / STOP_FILE, by=by, at=time.time())

    def _look(self) -> None:
        while not self._ending.is_set():
            waiting = True
            try:
                waiting = self.advance()
            except (AssayError, OSError) as error:  # a full disk: tried again
                log.warning("a job cannot begin yet: %s", error)
            except Exception as error:  # one failed attempt must not end it until a restart
                log.error("a job cannot begin: %s", type(error).__name__, exc_info=error)
            self._wake.wait(LOOK_S if waiting else IDLE_S)
            self._wake.clear()

    def _begin(self, job: Job) -> bool:
        """Whether there was a place for it."""
        if job.lane == "store" and (alive_in_store(self.workspace) or running_elsewhere(self.workspace) is not None):
            return False
        for number in range(PLACES[job.lane]):
            lock = os.open(self._root / f"{job.lane}-{number}.lock", os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            else:
                self._start(job, lock)
                return True
            finally:
                os.close(lock)
        return False

    def _start(self, job: Job, lock: int) -> None:
        keys = keys_for(job.arguments, self._servers())
        child = launch(self.workspace, job.folder, job.arguments, keys, pass_fds=(lock,))  # the child keeps the place
        note_process(job.folder, KIND, time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()), child.pid)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self._root.mkdir(exist_ok=True)
        lock = os.open(self._root / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


def keys_for(arguments: Sequence[str], servers: Iterable[RewardServer]) -> dict[str, str]:
    """Environment variables with the keys of the reward servers that a command names: the first one that it trains on
    or asks, and the first that it only watches. A key is never part of a command line."""
    keys: dict[str, str] = {}
    for server in servers:
        for option, text in zip(("", *arguments), arguments, strict=False):
            if server.key is not None and re.search(rf"{re.escape(server.url.rstrip('/'))}(?![\w.:@\\-])", text):
                keys.setdefault("ASSAY_WATCH_API_KEY" if option == "--watch" else "ASSAY_API_KEY", server.key)
    return keys


def running_elsewhere(workspace: Workspace) -> str | None:
    """A run that holds the store for long and that no job began."""
    processes = {
        (job.process.pid, job.process.birth) for job in jobs_of(workspace, limit=50) if job.process is not None
    }
    for run, process in newest_runs(workspace):
        if process.kind in HOLDING and (process.pid, process.birth) not in processes and process.is_alive():
            return run
    return None


def alive_in_store(workspace: Workspace) -> bool:
    """Whether a job that holds the store goes on; one of an earlier version has no lock that is seen here."""
    return any(job.lane == "store" and job.is_alive for job in jobs_of(workspace, limit=50))
