"""What a stage needs before it can be started: estimates of its calls, tokens and cost, and access to its models.

A stage runs with the permissions of the server's user, so paths in forms are restricted: curators may load the models
of the workspace and the hub, administrators any folder. Leaves out: computing estimates
(`assay_pipelines.curation.loop.estimating`), files of loops and judges (`loop_files`) and the models they name, since
writing them takes access to the workspace's folder. Stages without judges or people cost only time.
"""

import json
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from assay.browsing.candidates import count_candidates
from assay.data.snapshots import Selection
from assay.errors import BadInputError
from assay.http.problems import ProblemError
from assay.runs.record import locate_model
from assay.workspace import Workspace
from assay_pipelines.curation.consistency import ConsistencyConfig
from assay_pipelines.curation.loop.estimating import (
    StageEstimate,
    estimate_judging,
    estimate_stage1,
    estimate_stage2,
)
from assay_pipelines.hygiene.contamination.check import chosen_benchmarks
from assay_web.access.permissions import may
from assay_web.accounts.sessions import Person
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


def models_of(settings: StageSettings) -> tuple[str, ...]:
    """Models named in the settings."""
    if isinstance(settings, Stage2Stage):
        return settings.best, settings.gold
    return settings.models if isinstance(settings, ConsistencyStage) else ()


def require_model_access(workspace: Workspace, person: Person, names: Sequence[str]) -> None:
    """Raises ProblemError 403 for a folder outside the workspace, BadInputError for one that is not there,
    NotFoundError for a slip of a model's name. An admin may name what the command may."""
    for name in names:
        try:
            path = (workspace.root / Path(name).expanduser()).resolve()  # as the stage, which runs there, will see it
            exists = path.exists()
        except RuntimeError as error:
            raise BadInputError(f"{name}: there is no such person on this machine", field="model") from error
        except (OSError, ValueError) as error:  # longer than names can be, or with a zero byte
            raise BadInputError(f"{name!r} can be no model's name", field="model") from error
        path_like = "/" in name or name.startswith((".", "~"))
        is_artifact = locate_model(workspace, str(path) if path_like else name)[1] is not None
        if is_artifact or may(person, "administer"):
            continue  # a model that a run made is known wherever it lies
        if "://" in name:
            raise ProblemError(403, f"{name!r} is an address: a stage loads models of the workspace or of the hub")
        if not path.is_relative_to(workspace.root.resolve()):
            raise ProblemError(
                403,
                f"{name!r} is outside the workspace: name one of its models, a folder in it or a model of the hub "
                f"(owner/name); other folders take the role admin, {person.name} has {person.role}",
            )
        if not exists and (name.count("/") > 1 or name.startswith((".", "/", "~"))):
            raise BadInputError(f"no such folder in the workspace: {name}", field="model")


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
