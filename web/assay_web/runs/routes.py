"""Routes of runs: the list, one run, its curves and samples, an online loop, comparison, stopping."""

import re
import threading
from dataclasses import asdict
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from fastapi import APIRouter, Depends, Query, Request
from fastapi import Path as InPath
from fastapi.responses import PlainTextResponse

from assay.errors import BadInputError, BusyError, ConflictError, NotFoundError
from assay.runs.catalogue import removal_of, remove_run
from assay.runs.console_log import read_console
from assay.runs.notes import change_notes
from assay.runs.process import process_of
from assay.runs.record import mark_dead_runs
from assay.runs.resource_log import read_resources
from assay_pipelines.online.journal import Control
from assay_web.access.audited_route import AuditedRoute, note_change
from assay_web.access.guard import Curator, Viewer
from assay_web.report.pages.runs import METRICS, ROLLOUTS
from assay_web.runs.curves import curves_reply, newest_metrics
from assay_web.runs.detail import Details, compared
from assay_web.runs.loop_reader import asked_labels, online_loop, order
from assay_web.runs.loop_replies import AskedLabelsReply, LoopOrder, OnlineLoopReply
from assay_web.runs.metrics_reader import MetricsReader
from assay_web.runs.records import (
    field_names,
    has_dead,
    kind_counts,
    record_of,
    records,
    row_of,
    rows_without_store,
    runs_table,
    stop,
)
from assay_web.runs.replies import (
    ComparedRuns,
    ConsoleReply,
    CurvesReply,
    NoteChange,
    ResourcesReply,
    RunColumns,
    RunDetail,
    RunList,
    RunRemoval,
    SamplesReply,
    SamplesSideBySide,
    StopNote,
    StopRequest,
)
from assay_web.runs.rollouts_reader import Order, episode_table, rollouts_of, samples_of, side_by_side, step_bounds
from assay_web.runs.run_query import RunQuery, require_columns
from assay_web.service import ServiceNow, WebService

router = APIRouter(tags=["runs"], route_class=AuditedRoute)

RUN_ID = r"^run-[0-9]{8}-[0-9]{6}-[0-9a-f]{6}$"
RunId: TypeAlias = Annotated[str, InPath(pattern=RUN_ID)]
MOST_COMPARED = 100
MOST_READERS = 40  #: each takes some megabytes
MOST_BESIDE = 8  #: places whose samples are side by side
MOST_CSV = 100_000  #: rows


class RunPages:
    """Caches of one server, shared by its requests."""

    def __init__(self) -> None:
        self.reader = lru_cache(MOST_READERS)(MetricsReader)
        self.details = Details()


_MAKING = threading.Lock()


def pages_of(request: Request) -> RunPages:
    with _MAKING:
        pages: RunPages | None = getattr(request.app.state, "run_pages", None)
        if pages is None:
            pages = request.app.state.run_pages = RunPages()
        return pages


PagesNow: TypeAlias = Annotated[RunPages, Depends(pages_of)]
Stored: TypeAlias = Literal["running", "done", "failed", "interrupted"]


def query_of(
    kind: str | None = None,
    status: Stored | None = None,
    text: Annotated[str | None, Query(max_length=500)] = None,
    archived: bool = False,
    sort: Annotated[str, Query(max_length=220)] = "started",
    direction: Literal["up", "down"] = "down",
) -> RunQuery:
    """`text`: words of name, id, tags and note, and conditions: config.lr<1e-4 metrics.accuracy>=0.8 tag:best -tag:old.
    `sort`: started, took, kind, status, name, or a field as in conditions."""
    return RunQuery(kind, status, text, archived, sort, direction)


QueryNow: TypeAlias = Annotated[RunQuery, Depends(query_of)]
Columns: TypeAlias = Annotated[list[str], Query(max_length=30)]


@router.get("/api/runs")
def list_runs(
    person: Viewer,
    service: ServiceNow,
    query: QueryNow,
    column: Columns = [],  # noqa: B006
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    offset: Annotated[int, Query(ge=0, le=1_000_000_000)] = 0,
) -> RunList:
    """Runs, newest first unless asked otherwise; from their folders alone while another process holds the store."""
    workspace = service.workspace
    require_columns(column)
    try:
        with service.store() as db:
            dead = has_dead(db, workspace)
        if dead:
            mark_dead_runs(workspace)
        with service.store() as db:
            rows, total = records(db, query, limit=limit, offset=offset)
            kinds = kind_counts(db)
    except BusyError as error:
        return rows_without_store(workspace, query, limit=limit, offset=offset, held=str(error))
    listed = [row_of(record, workspace, note, column) for record, note in rows]
    return RunList(runs=listed, total=total, kinds=kinds)


@router.get("/api/runs/columns")
def run_columns(person: Viewer, service: ServiceNow) -> RunColumns:
    """What can be shown, searched and sorted by."""
    with service.store() as db:
        tags = db.execute("SELECT DISTINCT unnest(tags) AS tag FROM run_notes ORDER BY tag").fetchall()
        return RunColumns(fields=field_names(db), tags=[tag for (tag,) in tags])


@router.get("/api/runs/table.csv", response_class=PlainTextResponse)
def runs_csv(person: Viewer, service: ServiceNow, query: QueryNow, column: Columns = []) -> PlainTextResponse:  # noqa: B006
    """The list with its columns, all pages of it."""
    require_columns(column)
    with service.store() as db:
        rows, _ = records(db, query, limit=MOST_CSV)
    text = runs_table([row_of(record, service.workspace, note, column) for record, note in rows], column)
    headers = {"Content-Disposition": 'attachment; filename="runs.csv"'}
    return PlainTextResponse(text, media_type="text/csv", headers=headers)


@router.post("/api/runs/notes")
def note_runs(person: Curator, service: ServiceNow, pages: PagesNow, body: NoteChange, request: Request) -> None:
    """Change notes and tags of runs, archive them or put them back; all of them or none."""
    written = {} if body.note is None else {"note": "changed"}  # the audit log holds no text that people wrote
    changed = body.model_dump(exclude_none=True, exclude={"runs", "note"})
    note_change(request, " ".join(body.runs), **changed, **written)
    change_notes(service.workspace, by=person.name, **body.model_dump())
    pages.details.forget(body.runs)


@router.get("/api/runs/compare")
def compare_runs(
    person: Viewer, service: ServiceNow, run: Annotated[list[str], Query(min_length=2, max_length=MOST_COMPARED)]
) -> ComparedRuns:
    """Several runs and the settings in which they differ."""
    with service.store() as db:
        rows = [record_of(db, name) for name in dict.fromkeys(run)]
    missing = [name for name, record in zip(dict.fromkeys(run), rows, strict=True) if record is None]
    if missing:
        raise NotFoundError(f"no run {', '.join(missing)}")
    if len(rows) < 2:
        raise BadInputError("name two different runs to compare", field="run")
    return compared([record for record in rows if record is not None], service.workspace)


@router.get("/api/runs/samples")
def compare_samples(
    person: Viewer,
    service: ServiceNow,
    run: Annotated[list[str], Query(min_length=1, max_length=MOST_BESIDE)],
    step: Annotated[list[int], Query(max_length=MOST_BESIDE)] = [],  # noqa: B006
    text: Annotated[str, Query(max_length=200)] = "",
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    offset: Annotated[int, Query(ge=0)] = 0,
) -> SamplesSideBySide:
    """Responses of several runs, or of several steps of one, to the same prompts. `step`: of each run in turn, -1: its
    last. Does not read the store."""
    places = []
    for number, name in enumerate(run):
        if not re.fullmatch(RUN_ID, name):
            raise NotFoundError(f"no run {name!r} in this workspace")
        at = step[number] if number < len(step) else -1
        places.append((_folder(service, name) / ROLLOUTS, None if at < 0 else at))
    return side_by_side(places, limit=limit, offset=offset, text=text)


@router.get("/api/runs/{run_id}")
def get_run(person: Viewer, service: ServiceNow, pages: PagesNow, run_id: RunId) -> RunDetail:
    """One run without curves and samples. For a running one the store is read once, then its files."""
    return pages.details.of(service, run_id)


@router.get("/api/runs/{run_id}/curves")
def get_run_curves(
    person: Viewer,
    service: ServiceNow,
    pages: PagesNow,
    run_id: RunId,
    since: Annotated[str | None, Query(max_length=200)] = None,
) -> CurvesReply:
    """The points of a run's curves since an earlier reply, and the charts to draw. Does not read the store."""
    folder = _folder(service, run_id)
    return curves_reply(pages.reader(folder / METRICS), folder, since)


@router.get("/api/runs/{run_id}/samples")
def get_run_samples(
    person: Viewer,
    service: ServiceNow,
    run_id: RunId,
    step: Annotated[int | None, Query(ge=0)] = None,
    order: Order = "best",
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    offset: Annotated[int, Query(ge=0)] = 0,
    solved_above: Annotated[float, Query(allow_inf_nan=False)] = 0.5,
) -> SamplesReply:
    """Rollouts of a step, by default of the last one. Does not read the store. `solved_above`: an episode without a
    verdict is solved where its reward is over that."""
    path = _folder(service, run_id) / ROLLOUTS
    bounds = step_bounds(path)
    if bounds is None:
        return SamplesReply(step=None, first=None, last=None, total=0, samples=[])
    chosen = bounds[1] if step is None else step
    rows = rollouts_of(path, chosen)
    total, samples = samples_of(rows, order, limit=limit, offset=offset)
    episodes = episode_table(rows, solved_above) if offset == 0 else None
    return SamplesReply(step=chosen, first=bounds[0], last=bounds[1], total=total, samples=samples, episodes=episodes)


@router.get("/api/runs/{run_id}/loop")
def get_online_loop(person: Viewer, service: ServiceNow, pages: PagesNow, run_id: RunId) -> OnlineLoopReply:
    """Phase, budget and events of an online loop. Does not read the store."""
    folder = _folder(service, run_id)
    return online_loop(folder, newest_metrics(pages.reader(folder / METRICS)))


@router.get("/api/runs/{run_id}/loop/labels")
def get_loop_labels(
    person: Viewer,
    service: ServiceNow,
    run_id: RunId,
    waiting: bool = False,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    offset: Annotated[int, Query(ge=0)] = 0,
) -> AskedLabelsReply:
    """What an online loop asked, newest first. Does not read the store."""
    return asked_labels(_folder(service, run_id), waiting=waiting, limit=limit, offset=offset)


@router.post("/api/runs/{run_id}/loop/order")
def order_loop(person: Curator, service: ServiceNow, run_id: RunId, body: LoopOrder, request: Request) -> Control:
    """Pause an online loop, let it go on, end it after its step, or change its limits."""
    note_change(request, **body.model_dump(exclude_none=True))
    return order(_folder(service, run_id), body)


@router.get("/api/runs/{run_id}/console")
def get_run_console(
    person: Viewer,
    service: ServiceNow,
    run_id: RunId,
    after: Annotated[int | None, Query(ge=0, le=1_000_000_000)] = None,
) -> ConsoleReply:
    """What the run printed, from byte `after` on, by default the end of it. Does not read the store."""
    page = read_console(_folder(service, run_id), after=after)
    return ConsoleReply(**asdict(page))


@router.get("/api/runs/{run_id}/resources")
def get_run_resources(person: Viewer, service: ServiceNow, run_id: RunId) -> ResourcesReply:
    """CPU, memory and GPUs that the run used, sample by sample. Does not read the store."""
    rows = read_resources(_folder(service, run_id))
    names = list(dict.fromkeys(name for row in rows for name in row if name != "at"))
    process = process_of(_folder(service, run_id))
    began = datetime.fromisoformat(process.started).timestamp() if process else rows[0]["at"] if rows else 0.0
    return ResourcesReply(
        seconds=[round(row["at"] - began, 1) for row in rows],
        columns={name: [row.get(name) for row in rows] for name in names},
    )


@router.get("/api/runs/{run_id}/removal")
def get_run_removal(person: Curator, service: ServiceNow, run_id: RunId) -> RunRemoval:
    """What removing the run's files would do."""
    removal = removal_of(service.workspace, run_id)
    return RunRemoval(bytes=removal.bytes, dependents=list(removal.dependents), models=list(removal.models))


@router.delete("/api/runs/{run_id}")
def delete_run(person: Curator, service: ServiceNow, pages: PagesNow, run_id: RunId, request: Request) -> RunRemoval:
    """Remove the run's folder and archive the run. Its record, its models and its lineage stay. Refused where other
    runs read it."""
    removal = removal_of(service.workspace, run_id)
    if removal.dependents:
        raise ConflictError(f"other runs read it: {', '.join(removal.dependents)}")
    note_change(request, bytes=removal.bytes)
    remove_run(service.workspace, run_id)
    change_notes(service.workspace, [run_id], by=person.name, archived=True)
    pages.details.forget([run_id])
    return RunRemoval(bytes=removal.bytes, dependents=[], models=list(removal.models))


@router.post("/api/runs/{run_id}/stop")
def stop_run(person: Curator, service: ServiceNow, run_id: RunId, body: StopRequest, request: Request) -> StopNote:
    """Interrupt a run on this machine, as Ctrl-C does: it ends after its step, with a checkpoint."""
    note_change(request, again=body.again)
    return stop(_folder(service, run_id), person.name, again=body.again)


def _folder(service: WebService, run_id: str) -> Path:
    folder = service.workspace.runs / run_id
    if not folder.is_dir():
        raise NotFoundError(f"no run {run_id!r} in this workspace")
    return folder
