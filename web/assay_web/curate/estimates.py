"""Estimates of a stage's calls, tokens and cost, shown before it can be started.

Leaves out: computing them (`assay_pipelines.curation.loop.estimating`). Stages without judges or people cost only time.
"""

from __future__ import annotations

import json
from hashlib import sha256

from assay.browsing.candidates import count_candidates
from assay.data.snapshots import Selection
from assay.workspace import Workspace
from assay_pipelines.curation.consistency import ConsistencyConfig
from assay_pipelines.curation.loop.estimating import (
    StageEstimate,
    estimate_judging,
    estimate_stage1,
    estimate_stage2,
)
from assay_pipelines.hygiene.contamination.check import chosen_benchmarks
from assay_web.curate.loop_files import find_file, loop_of
from assay_web.curate.replies import EstimateReply
from assay_web.curate.stage_process import command_line
from assay_web.curate.stage_settings import (
    STAGE_SETTINGS,
    ConsistencyStage,
    DecontaminateStage,
    JudgeStage,
    Stage1Stage,
    Stage2Stage,
    StageSettings,
    VerifyStage,
)


def stage_estimate(workspace: Workspace, settings: StageSettings) -> EstimateReply:
    """Raises what the stage's settings are refused with."""
    looked_at, estimate = _estimate(workspace, settings)
    plain = {
        "settings": STAGE_SETTINGS.dump_python(settings, mode="json"),
        "figures": [looked_at, estimate.calls, estimate.tokens, estimate.cost, estimate.people, estimate.spent],
    }
    token = sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:32]
    return EstimateReply(
        command=command_line(settings),
        comparisons=looked_at,
        calls=estimate.calls,
        tokens=estimate.tokens,
        cost=estimate.cost,
        **vars(estimate),
        token=token,
    )


def begun_loops(workspace: Workspace) -> dict[str, str]:
    """name -> settings as JSON, of the loops of the store."""
    with workspace.store.unit() as db:
        return dict(db.execute("SELECT loop, config::VARCHAR FROM loops ORDER BY created_at DESC").fetchall())


def _estimate(workspace: Workspace, settings: StageSettings) -> tuple[int, StageEstimate]:
    if isinstance(settings, Stage1Stage):
        config = loop_of(workspace, settings.file, begun_loops(workspace))
        return count_candidates(workspace, config.pool), estimate_stage1(workspace, config)
    if isinstance(settings, Stage2Stage):
        selection = Selection(("unverified",), settings.sources)
        judges = None if settings.judges is None else str(find_file(workspace, settings.judges))
        estimate = estimate_stage2(workspace, selection, judges, budget=settings.max_cost)
        return count_candidates(workspace, selection), estimate
    if isinstance(settings, JudgeStage):
        selection = Selection(settings.pools or Selection().pools, settings.sources)
        path = find_file(workspace, settings.judges)
        return estimate_judging(workspace, selection, str(path), limit=settings.limit, budget=settings.max_cost)
    if isinstance(settings, ConsistencyStage):
        ConsistencyConfig(settings.keep_above, settings.flip_below)  # refuses what the command would refuse
        return count_candidates(workspace, Selection(("unverified",), settings.sources)), StageEstimate([])
    if isinstance(settings, VerifyStage):
        return count_candidates(workspace, Selection(("unverified",), settings.sources)), StageEstimate([])
    with workspace.store.unit() as db:
        if isinstance(settings, DecontaminateStage):
            chosen_benchmarks(db, settings.benchmarks)  # refuses what the command would refuse
        row = db.execute("SELECT count(*) FROM comparisons").fetchone()
    return int(row[0]) if row else 0, StageEstimate([])
