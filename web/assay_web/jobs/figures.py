"""Records of jobs for the pages: their folders, and what the store has of their runs, also while it is held.

Leaves out: the folders (`job`), progress files (`assay.runs.progress_file`), the record of calls
(`assay_pipelines.llm.calls`).
"""

import json
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from assay.errors import BadInputError, BusyError
from assay.runs.coverage import warnings_of
from assay.runs.progress_file import progress_of
from assay.workspace import Workspace
from assay_pipelines.llm.calls import RunSpending, spending_of_runs
from assay_web.jobs.forms import has_resume
from assay_web.jobs.job import GOING, Job, outcome_of, runs_of_jobs
from assay_web.jobs.kind import JOB_KINDS, JobKind
from assay_web.jobs.replies import ExpectedReply, JobCount, JobRecord
from assay_web.jobs.scheduler import JobScheduler
from assay_web.runs.detail import has_saved_state

MOST = 1_000  #: runs whose last figures are kept for while the store is held
WAIT_S = 0.2  #: for the store: pages ask often, and a job may hold it for long


@dataclass(frozen=True)
class StoredFigures:
    """`metrics`: of a finished run, empty before. `spent`: None if it called no model."""

    metrics: dict[str, Any]
    spent: RunSpending | None


NOTHING = StoredFigures({}, None)
_LAST: dict[tuple[Path, str], StoredFigures] = {}
_LOCK = threading.Lock()


def counts_of(folder: Path) -> list[JobCount]:
    """The last progress of the run in this folder."""
    return [JobCount.model_validate(one, from_attributes=True) for one in progress_of(folder)]


def records_of(scheduler: JobScheduler, jobs: Sequence[Job], every: Sequence[Job]) -> list[JobRecord]:
    """`every`: the newest jobs, among which are those that wait, go on or resume one of `jobs`."""
    workspace = scheduler.workspace
    runs = runs_of_jobs(workspace, jobs)
    stored = _stored(workspace, list(runs.values()))
    alive = [job for job in every if job.is_alive]
    resumed = {job.resumes: job.id for job in reversed(every) if job.resumes is not None}
    return [
        _record(
            job,
            runs.get(job.id),
            stored.get(runs.get(job.id, ""), NOTHING),
            scheduler.waits_for(job, alive) if job.process is None else [],
            resumed.get(job.id),
            workspace,
        )
        for job in jobs
    ]


def run_to_resume(workspace: Workspace, job: Job, run: str | None) -> str | None:
    """The run with a saved state that the job went on with: its own `run`, else the one that it was to resume."""
    words = ["", *job.arguments]
    resumed = [word for option, word in pairwise(words) if option == "--resume"]
    return next((one for one in (run, *resumed) if one is not None and has_saved_state(workspace.runs / one)), None)


def _record(
    job: Job,
    run: str | None,
    stored: StoredFigures,
    waits_for: list[str],
    resumed_by: str | None,
    workspace: Workspace,
) -> JobRecord:
    outcome = outcome_of(job, stored.metrics)
    going = outcome.status in GOING
    kind = _kind(job.kind)
    ends = going or outcome.status == "done" or resumed_by is not None or (kind is not None and not kind.resumes)
    return JobRecord(
        id=job.id,
        kind=job.kind,
        title=job.title,
        area="other" if kind is None else kind.area,
        settings=job.settings,
        command=job.command,
        by=job.by,
        started=job.started,
        ended=outcome.ended,
        status=outcome.status,
        why=outcome.why,
        warnings=[] if going else warnings_of(stored.metrics),
        waits_for=waits_for if outcome.status == "waiting" else [],
        resumes=job.resumes,
        resumed_by=resumed_by,
        can_resume=not ends and (not job.was_refused or _has_begun(workspace, job, run)),
        run_id=run,
        progress=counts_of(workspace.runs / run) if run is not None else [],
        spent=stored.spent,
        expected=ExpectedReply(**asdict(job.expected)) if job.expected is not None else None,
    )


def _has_begun(workspace: Workspace, job: Job, run: str | None) -> bool:
    """Whether there is something to go on from: a saved state, or a run of a command that leaves out what was done."""
    try:
        return run_to_resume(workspace, job, run) is not None or (run is not None and has_resume(job.arguments) is None)
    except BadInputError:  # the command of a plugin that is gone
        return False


def _kind(name: str) -> JobKind | None:
    """None for the kind of a plugin that is gone."""
    try:
        return JOB_KINDS.find(name)
    except BadInputError:
        return None


def _stored(workspace: Workspace, runs: list[str]) -> dict[str, StoredFigures]:
    """Figures of these runs in the store; the last ones read while another process holds it."""
    last = {run: _LAST[workspace.root, run] for run in runs if (workspace.root, run) in _LAST}
    missing = [run for run in runs if not (run in last and last[run].metrics)]
    if not missing:
        return last
    impatient = Workspace(workspace.root, wait=WAIT_S)
    try:
        spent = spending_of_runs(impatient, missing)
        with impatient.store.unit() as db:
            rows = db.execute(
                "SELECT run_id, metrics::VARCHAR FROM runs WHERE list_contains($runs, run_id)", {"runs": missing}
            ).fetchall()
    except BusyError:
        return last
    figures = {run: StoredFigures(json.loads(metrics) if metrics else {}, spent.get(run)) for run, metrics in rows}
    with _LOCK:
        for run, of_run in figures.items():
            _LAST[workspace.root, run] = of_run
        while len(_LAST) > MOST:
            del _LAST[next(iter(_LAST))]
    return last | figures
