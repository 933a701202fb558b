"""Routes of jobs: what can be run, its form, what it would take, starting, stopping, resuming, and how each stands.

Also describing a loop for stage 1, which a job then runs. Leaves out: uploads.
"""

import shlex
import time
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi import Path as InPath
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from assay.errors import ConflictError
from assay_web.access.audited_route import AuditedRoute, Unaudited, note_change
from assay_web.access.guard import Curator, Viewer
from assay_web.access.permissions import may
from assay_web.accounts.sessions import Person
from assay_web.curate.loop_files import NewLoop, begun_loops, new_loop
from assay_web.curate.replies import LoopFile
from assay_web.jobs.estimates import estimate_reply
from assay_web.jobs.figures import counts_of, records_of, run_to_resume
from assay_web.jobs.forms import JobForm, arguments_for, form_of, has_resume
from assay_web.jobs.job import GOING, Expected, Job, job_of, jobs_of, new_job, runs_of_jobs
from assay_web.jobs.kind import JOB_KINDS, Area, JobKind, Settings, SettingValue, job_kind
from assay_web.jobs.online_loops import LoopFileReply, NewOnlineLoop, write_online_loop
from assay_web.jobs.planned import PlanReply, plan_of
from assay_web.jobs.reach import require_reach
from assay_web.jobs.replies import (
    EstimateReply,
    JobRecord,
    JobRequest,
    JobSettings,
    JobsReply,
    KindReply,
    KindsReply,
)
from assay_web.jobs.scheduler import JobScheduler, running_elsewhere
from assay_web.jobs.scores import JobScores, index_of, scores_of
from assay_web.jobs.suggestions import with_suggestions
from assay_web.processes.log import TAIL, LogPart, log_part
from assay_web.server.event_stream import Event, event_stream
from assay_web.service import ServiceNow, WebService
from assay_web.uploads.places import importable

router = APIRouter(tags=["jobs"], route_class=AuditedRoute)


async def scheduler_of(request: Request) -> JobScheduler:
    scheduler: JobScheduler = request.app.state.jobs
    return scheduler


#: For routes that start jobs: `jobs: JobsNow`.
JobsNow = Annotated[JobScheduler, Depends(scheduler_of)]
JobId = Annotated[str, InPath(pattern=r"^(job|stage)-[0-9]{8}-[0-9]{6}-[0-9a-f]{6}$")]
KindName = Annotated[str, InPath(max_length=200)]
NEWEST = 200  #: jobs among which are those that go on


@router.get("/api/jobs")
def list_jobs(
    person: Viewer,
    service: ServiceNow,
    jobs: JobsNow,
    area: Annotated[list[Area] | None, Query(max_length=4)] = None,
    kind: Annotated[str | None, Query(max_length=200)] = None,
    limit: Annotated[int, Query(ge=1, le=NEWEST)] = 30,
) -> JobsReply:
    """The newest jobs and how far each is. Answers while a job holds the store: figures that take the store are then
    the last that were known."""
    every = jobs_of(service.workspace, NEWEST)
    kinds = {name for name in JOB_KINDS.names() if area is None or JOB_KINDS.find(name).area in area}
    chosen = [job for job in every if (area is None or job.kind in kinds) and (kind is None or job.kind == kind)]
    going = [job for job in chosen[limit:] if job.exit is None and (job.process is None or job.is_alive)]
    elsewhere = running_elsewhere(service.workspace)
    return JobsReply(
        jobs=records_of(jobs, [*chosen[:limit], *going], every),
        total=len(chosen),
        elsewhere=elsewhere,
        elsewhere_progress=counts_of(service.workspace.runs / elsewhere) if elsewhere is not None else [],
        now=time.time(),
    )


@router.get("/api/jobs/kinds")
def list_job_kinds(person: Viewer) -> KindsReply:
    """What can be run from the page."""
    kinds = {name: JOB_KINDS.find(name) for name in dict.fromkeys([*JOB_KINDS.members, *JOB_KINDS.names()])}
    return KindsReply(
        kinds=[
            KindReply(
                name=name, title=kind.title, area=kind.area, lane=kind.lane, command=f"assay {' '.join(kind.command)}"
            )
            for name, kind in kinds.items()
        ]
    )


@router.get("/api/jobs/kinds/{kind}/form")
def read_job_form(
    person: Viewer, service: ServiceNow, kind: KindName, choice: Annotated[str | None, Query(max_length=200)] = None
) -> JobForm:
    """The settings of a kind, with what could be chosen. `choice`: the command, where one is chosen first."""
    form = form_of(kind, job_kind(kind), choice)
    return with_suggestions(form, service.workspace, [server.url for server in service.reward_servers])


@router.post("/api/jobs/estimate")
def estimate_job(person: Curator, service: ServiceNow, body: JobSettings, silent: Unaudited) -> EstimateReply:
    """What it would ask and take at most. Runs nothing, asks nobody. 403 for what the person may not name."""
    _, _, estimate = _checked(service, person, body)
    return estimate


@router.post("/api/jobs/plan")
def plan_job(person: Curator, service: ServiceNow, body: JobSettings, silent: Unaudited) -> PlanReply:
    """Memory and time of a training on this machine, as `assay plan` works them out; takes seconds."""
    _, arguments, _ = _checked(service, person, body)
    return plan_of(service.workspace, arguments)


@router.post("/api/jobs")
def start_job(person: Curator, service: ServiceNow, jobs: JobsNow, body: JobRequest, request: Request) -> JobRecord:
    """Run the command in a process of its own; it waits for its turn where others are before it. 409 where the estimate
    that was seen has changed since, and where none was seen of what asks judges or people."""
    kind, arguments, estimate = _checked(service, person, body)
    if estimate.token != body.token and (body.token is not None or estimate.calls or estimate.people):
        raise ConflictError("what it would take has changed since: look at the estimate again")
    kind.prepare(service.workspace, body.settings)
    expected = Expected(estimate.calls, estimate.cost, estimate.budget, estimate.spent)
    return start_in(jobs, person, request, body.kind, kind, body.settings, arguments, expected=expected)


@router.post("/api/curate/loops")
def create_loop_file(person: Curator, service: ServiceNow, body: NewLoop, request: Request) -> LoopFile:
    """Describe a new loop in the workspace's folder `loops`; nothing is run. 403 for models outside the workspace."""
    require_reach(service.workspace, person, {"base": body.base, "encoder": body.encoder})
    file = new_loop(service.workspace, body, begun_loops(service.workspace))
    note_change(request, file)
    return LoopFile(file=file, name=body.name, begun=False, iterations=body.iterations, problem=None)


@router.post("/api/jobs/online-loops")
def create_online_loop(person: Curator, service: ServiceNow, body: NewOnlineLoop, request: Request) -> LoopFileReply:
    """Describe an online loop in the workspace's folder `loops`; nothing is run. 403 for what the person may not
    name."""
    require_reach(service.workspace, person, {"policy": body.policy, "prompts": body.prompts})
    file = write_online_loop(service.workspace, body)
    note_change(request, file)
    return LoopFileReply(file=file)


@router.get("/api/jobs/{job_id}")
def read_job(person: Viewer, service: ServiceNow, jobs: JobsNow, job_id: JobId) -> JobRecord:
    """One job."""
    return _record(jobs, job_of(service.workspace, job_id))


@router.get("/api/jobs/{job_id}/log")
def read_job_log(
    person: Viewer,
    service: ServiceNow,
    job_id: JobId,
    start: Annotated[int, Query(ge=-10_000_000, description="Byte; negative: from the end.")] = -4 * TAIL,
) -> LogPart:
    """A part of the command's output."""
    return log_part(job_of(service.workspace, job_id).folder, start)


@router.get("/api/jobs/{job_id}/events", response_class=StreamingResponse)
async def follow_job(
    person: Viewer,
    service: ServiceNow,
    jobs: JobsNow,
    job_id: JobId,
    start: Annotated[int, Query(ge=-10_000_000)] = -4 * TAIL,
    last_event_id: Annotated[str | None, Header()] = None,
) -> StreamingResponse:
    """Server-sent events: `job`, a record, when it has changed; `log`, a part of the output. The id of an event is the
    position in the output, from which a new stream goes on. Ends with the job."""
    job = await run_in_threadpool(job_of, service.workspace, job_id)
    position = int(last_event_id) if last_event_id is not None and last_event_id.isdigit() else start
    last: JobRecord | None = None

    def look_now() -> tuple[list[Event], bool]:
        nonlocal position, last
        record = _record(jobs, job_of(service.workspace, job_id))  # before its log: nothing is said after its end
        part = log_part(job.folder, position)
        position = part.end if part.size else position
        events = [Event("log", part.model_dump(), str(part.end))] if part.text else []
        if record != last:
            events.append(Event("job", record.model_dump(mode="json"), str(part.end)))
        last = record
        return events, record.status in GOING or (part.text != "" and part.end < part.size)

    return event_stream(lambda: run_in_threadpool(look_now), every_s=1.0, is_ending=lambda: service.is_ending)


@router.get("/api/jobs/{job_id}/scores")
def read_job_scores(
    person: Viewer,
    service: ServiceNow,
    job_id: JobId,
    offset: Annotated[int, Query(ge=0)] = 0,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> JobScores:
    """What a job of `assay score` has written so far: scores and failures beside their responses, by lines."""
    return scores_of(service.workspace, job_of(service.workspace, job_id), offset, limit)


@router.get(
    "/api/jobs/{job_id}/scores.jsonl",
    response_class=StreamingResponse,
    responses={200: {"content": {"application/x-ndjson": {}}, "description": "The lines of `assay score`"}},
)
def download_job_scores(person: Viewer, service: ServiceNow, job_id: JobId) -> StreamingResponse:
    """All that it has written so far."""
    index = index_of(job_of(service.workspace, job_id))
    lines = index.lines(0, len(index)) if index is not None else iter(())
    headers = {"Content-Disposition": f'attachment; filename="{job_id}-scores.jsonl"'}
    return StreamingResponse((text + b"\n" for text in lines), media_type="application/x-ndjson", headers=headers)


@router.post("/api/jobs/{job_id}/stop")
def stop_job(person: Curator, service: ServiceNow, jobs: JobsNow, job_id: JobId) -> JobRecord:
    """End it as Ctrl-C does, or take it back while it waits. What it had stored is kept, and it can be resumed."""
    job = job_of(service.workspace, job_id)
    jobs.ask_to_stop(job, person.name)
    return _record(jobs, job_of(service.workspace, job_id))


@router.post("/api/jobs/{job_id}/resume")
def resume_job(person: Curator, service: ServiceNow, jobs: JobsNow, job_id: JobId, request: Request) -> JobRecord:
    """Start a new job that goes on where this one ended: with the run's last saved state where there is one, else
    by the same command, which leaves out what was done. 409 while it goes on, where another already goes on with it,
    where its command would do all of its work again, and where something of its input was refused and there is nothing
    to go on from."""
    job = job_of(service.workspace, job_id)
    record, kind = _record(jobs, job), job_kind(job.kind)
    if not record.can_resume:
        none = f", with nothing to go on from: {record.why}" if job.was_refused else ""
        none = none if kind.resumes else ", and would do all of its work again: start a new job"
        raise ConflictError(
            f"it is {record.status}{none}" if record.resumed_by is None else f"{record.resumed_by} goes on with it"
        )
    _require_within(service, person, job.kind, job.settings)
    run = run_to_resume(service.workspace, job, runs_of_jobs(service.workspace, [job]).get(job.id))
    words = has_resume(job.arguments)
    arguments = job.arguments if words is None or run is None else [*shlex.split(words), "--resume", run]
    return start_in(jobs, person, request, job.kind, kind, job.settings, arguments, resumes=job.id)


def _checked(service: WebService, person: Person, body: JobSettings) -> tuple[JobKind, list[str], EstimateReply]:
    kind = job_kind(body.kind)
    arguments = arguments_for(kind, body.settings)
    _require_within(service, person, body.kind, body.settings)
    figures = kind.figures(service.workspace, body.settings)
    return kind, arguments, estimate_reply(shlex.join(["assay", *arguments]), body.settings, figures)


def _require_within(service: WebService, person: Person, kind: str, settings: Settings) -> None:
    """Raises ProblemError for what the person may not name."""
    checked = dict(settings)
    if kind == "import" and not may(person, "administer"):  # the workspace holds accounts and keys, too
        importable(service.workspace, service.settings, str(checked.pop("path", "")))
    require_reach(service.workspace, person, checked, _servers(service))


def start_in(
    jobs: JobScheduler,
    person: Person,
    request: Request,
    name: str,
    kind: JobKind,
    settings: dict[str, SettingValue],
    arguments: list[str],
    *,
    expected: Expected | None = None,
    resumes: str | None = None,
) -> JobRecord:
    """A new job, which begins at once where there is a place."""
    job = new_job(
        *(jobs.workspace, name, kind.title, kind.lane, settings, arguments, person.name, time.time()),
        expected=expected,
        resumes=resumes,
    )
    note_change(request, job.id, command=job.command)
    jobs.advance()
    jobs.wake()
    return _record(jobs, job_of(jobs.workspace, job.id))


def _record(jobs: JobScheduler, job: Job) -> JobRecord:
    return records_of(jobs, [job], jobs_of(jobs.workspace, NEWEST))[0]


def _servers(service: WebService) -> list[str]:
    return [server.url for server in service.reward_servers]
