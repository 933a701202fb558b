"""Routes of the stages: what can be run, what it would cost, starting, pausing, what became of them.

Resuming is starting the same settings again: every stage resumes where it stopped, and asks nobody twice.
"""

import time
from typing import Annotated

from fastapi import APIRouter, Request
from fastapi import Path as InPath

from assay.errors import ConflictError
from assay_web.access.audited_route import AuditedRoute, note_change
from assay_web.access.guard import Curator, Viewer
from assay_web.curate.estimates import begun_loops, models_of, require_model_access, stage_estimate
from assay_web.curate.loop_files import judge_files, loop_files, loop_of, new_loop, write_loop_file
from assay_web.curate.replies import (
    EstimateReply,
    LoopFile,
    StageExpected,
    StageOptions,
    StageRecord,
    StageRequest,
    StagesReply,
)
from assay_web.curate.stage_process import (
    NOTHING,
    StageProcess,
    counts_of,
    pause_stage,
    record_of_stage,
    running_elsewhere,
    runs_of,
    stages_of,
    start_stage,
    stored_figures,
)
from assay_web.curate.stage_settings import NewLoop, Stage1Stage, StageSettings, declared_settings
from assay_web.service import ServiceNow, WebService

router = APIRouter(tags=["curate"], route_class=AuditedRoute)

StageId = Annotated[str, InPath(pattern=r"^stage-[0-9]{8}-[0-9]{6}-[0-9a-f]{6}$")]


@router.get("/api/curate/stages")
def list_stages(person: Viewer, service: ServiceNow) -> StagesReply:
    """Stages that were started from the page, how far each is, and whether one is running. Answers while a stage holds
    the store: figures that take the store are then the last that were known."""
    workspace = service.workspace
    stages = stages_of(workspace)
    runs = runs_of(workspace, stages)
    stored = stored_figures(workspace, runs.values())
    elsewhere = running_elsewhere(workspace)
    return StagesReply(
        stages=[record_of_stage(stage, run := runs.get(stage.id), stored.get(run or "", NOTHING)) for stage in stages],
        elsewhere=elsewhere,
        elsewhere_progress=counts_of(workspace.runs / elsewhere) if elsewhere is not None else [],
        now=time.time(),
    )


@router.get("/api/curate/stages/options")
def read_stage_options(person: Viewer, service: ServiceNow) -> StageOptions:
    """What the forms offer: descriptions of loops and judges in the workspace, models, benchmarks, sources."""
    with service.store() as db:
        begun = dict(db.execute("SELECT loop, config::VARCHAR FROM loops ORDER BY created_at DESC").fetchall())
        models = db.execute(
            "SELECT DISTINCT name FROM artifacts WHERE kind = 'reward_model' OR spec ->> 'kind' = 'implicit' ORDER BY 1"
        ).fetchall()
        benchmarks = db.execute("SELECT benchmark FROM benchmarks ORDER BY 1").fetchall()
        sources = db.execute("SELECT DISTINCT source FROM origins ORDER BY 1 LIMIT 500").fetchall()
    return StageOptions(
        loops=loop_files(service.workspace, begun),
        judge_files=judge_files(service.workspace),
        models=[row[0] for row in models],
        benchmarks=[row[0] for row in benchmarks],
        sources=[row[0] for row in sources],
        settings=declared_settings(),
    )


@router.post("/api/curate/loops")
def create_loop_file(person: Curator, service: ServiceNow, body: NewLoop, request: Request) -> LoopFile:
    """Describe a new loop in the workspace's folder `loops`; nothing is run. 403 for models outside the workspace."""
    require_model_access(service.workspace, person, (body.base, body.encoder))
    file = new_loop(service.workspace, body, begun_loops(service.workspace))
    note_change(request, file)
    return LoopFile(file=file, name=body.name, begun=False, iterations=body.iterations, problem=None)


@router.post("/api/curate/stages/estimate")
def estimate_stage(person: Curator, service: ServiceNow, body: StageSettings, request: Request) -> EstimateReply:
    """What the stage would ask and cost at most. Asks nobody. 403 for models outside the workspace."""
    note_change(request, body.stage)
    require_model_access(service.workspace, person, models_of(body))
    return stage_estimate(service.workspace, body)


@router.post("/api/curate/stages")
def begin_stage(person: Curator, service: ServiceNow, body: StageRequest, request: Request) -> StageRecord:
    """Run the stage's command in a process of its own, after its estimate was seen. 409 while another is running, and
    where the estimate has changed since."""
    require_model_access(service.workspace, person, models_of(body.settings))
    estimate = stage_estimate(service.workspace, body.settings)
    if estimate.token != body.token:
        raise ConflictError("what the stage would take has changed since: look at the estimate again")
    if isinstance(body.settings, Stage1Stage):
        config = loop_of(service.workspace, body.settings.file, begun_loops(service.workspace))
        write_loop_file(service.workspace, body.settings.file, config)
    expected = StageExpected(calls=estimate.calls, cost=estimate.cost, budget=estimate.budget, spent=estimate.spent)
    stage = start_stage(service.workspace, body.settings, person.name, expected)
    note_change(request, stage.id, command=stage.command)
    return _record(service, stage)


@router.post("/api/curate/stages/{stage_id}/pause")
def interrupt_stage(person: Curator, service: ServiceNow, stage_id: StageId) -> StageRecord:
    """End it as Ctrl-C does; starting the same settings again resumes."""
    return _record(service, pause_stage(service.workspace, stage_id, person.name))


def _record(service: WebService, stage: StageProcess) -> StageRecord:
    return record_of_stage(stage, runs_of(service.workspace, [stage]).get(stage.id), NOTHING)
