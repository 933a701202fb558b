"""What a job would take, from its settings: comparisons, calls, tokens and cost of judges, steps of a training.

Whatever the command would refuse its settings with is raised here, before anything runs. Leaves out: computing the
estimates of judges (`assay_pipelines.curation.loop.estimating`), memory and time of a training (`planned`), files of
loops and judges (`assay_web.curate.loop_files`). What asks no judges or people costs only time.
"""

import json
import math
from difflib import get_close_matches
from hashlib import sha256
from pathlib import Path
from typing import Any

from assay.browsing.candidates import count_candidates
from assay.data.snapshots import Selection, check_snapshot, get_snapshot
from assay.errors import BadInputError, NotFoundError
from assay.runs.contamination_gate import contamination_of, require_clean
from assay.workspace import Workspace
from assay_pipelines.curation.consistency import ConsistencyConfig
from assay_pipelines.curation.loop.estimating import (
    StageEstimate,
    estimate_judging,
    estimate_stage1,
    estimate_stage2,
)
from assay_pipelines.hygiene.contamination.check import chosen_benchmarks
from assay_pipelines.online.config import load_loop
from assay_serving.model_reference import is_url, located
from assay_web.curate.loop_files import begun_loops, find_file, loop_of, write_loop_file
from assay_web.jobs.kind import JobFigures, Settings
from assay_web.jobs.replies import EstimateReply
from assay_web.jobs.suggestions import uploads
from assay_web.uploads.upload_folder import FOLDER as UPLOADS
from assay_web.uploads.upload_folder import clean_name


def estimate_reply(command: str, settings: Settings, figures: JobFigures) -> EstimateReply:
    """`command`: what would be run. The token says of which settings and figures this estimate was seen."""
    asking = figures.questions or StageEstimate([])
    figured = [
        figures.comparisons,
        figures.steps,
        asking.calls,
        asking.tokens,
        asking.cost,
        asking.people,
        asking.spent,
    ]
    token = sha256(json.dumps([command, dict(settings), figured], sort_keys=True).encode()).hexdigest()[:32]
    return EstimateReply(
        command=command,
        comparisons=figures.comparisons,
        steps=figures.steps,
        calls=asking.calls,
        tokens=asking.tokens,
        cost=asking.cost,
        **vars(asking),
        token=token,
    )


def comparisons_figures(workspace: Workspace, settings: Settings) -> JobFigures:
    with workspace.store.unit() as db:
        row = db.execute("SELECT count(*) FROM comparisons").fetchone()
    return JobFigures(int(row[0]) if row else 0)


def snapshot_figures(workspace: Workspace, settings: Settings) -> JobFigures:
    check_snapshot(str(settings.get("name")), _optional(settings, "holdout"))
    selection = Selection(_texts(settings, "pool") or Selection().pools, _texts(settings, "source"))
    return JobFigures(count_candidates(workspace, selection))


def unverified_figures(workspace: Workspace, settings: Settings) -> JobFigures:
    return JobFigures(count_candidates(workspace, _unverified(settings)))


def decontaminate_figures(workspace: Workspace, settings: Settings) -> JobFigures:
    with workspace.store.unit() as db:
        chosen_benchmarks(db, _texts(settings, "benchmark"))
    return comparisons_figures(workspace, settings)


def consistency_figures(workspace: Workspace, settings: Settings) -> JobFigures:
    ConsistencyConfig(_number(settings, "keep_above", 0.5), _number(settings, "flip_below", 0.0))
    return unverified_figures(workspace, settings)


def stage1_figures(workspace: Workspace, settings: Settings) -> JobFigures:
    config = loop_of(workspace, _file(settings, "config"), begun_loops(workspace))
    return JobFigures(count_candidates(workspace, config.pool), questions=estimate_stage1(workspace, config))


def prepare_stage1(workspace: Workspace, settings: Settings) -> None:
    """Write the file of a loop that only the store has."""
    file = _file(settings, "config")
    write_loop_file(workspace, file, loop_of(workspace, file, begun_loops(workspace)))


def stage2_figures(workspace: Workspace, settings: Settings) -> JobFigures:
    selection = _unverified(settings)
    judges = settings.get("judges")
    path = str(find_file(workspace, judges)) if isinstance(judges, str) and judges else None
    estimate = estimate_stage2(workspace, selection, path, budget=_optional(settings, "max_cost"))
    return JobFigures(count_candidates(workspace, selection), questions=estimate)


def judge_figures(workspace: Workspace, settings: Settings) -> JobFigures:
    selection = Selection(_texts(settings, "pool") or Selection().pools, _texts(settings, "source"))
    path, limit = str(find_file(workspace, _file(settings, "judges"))), _optional(settings, "limit")
    least = None if limit is None else int(limit)
    budget = _optional(settings, "max_cost")
    looked_at, estimate = estimate_judging(workspace, selection, path, limit=least, budget=budget)
    return JobFigures(looked_at, questions=estimate)


def training_figures(workspace: Workspace, settings: Settings) -> JobFigures:
    """Steps where the data is a snapshot, whose pairs are counted."""
    if settings.get("resume"):  # a resumed run keeps its settings
        return JobFigures()
    if not settings.get("data"):
        raise BadInputError("name the training data: a training set or a file", field="data")
    for name in ("eval_data", "final_data"):
        data_rows(workspace, settings, name)
    rows = data_rows(workspace, settings, "data")
    _check_contamination(workspace, settings)
    batch, epochs = _number(settings, "batch_size", 16), _number(settings, "epochs", 1)
    steps = None if rows is None or batch < 1 else math.ceil(rows / batch) * int(epochs)
    return JobFigures(rows, steps)


def _check_contamination(workspace: Workspace, settings: Settings) -> None:
    data = str(settings["data"])
    try:
        snapshot = get_snapshot(workspace, data).id
    except NotFoundError:
        snapshot = None
    states = contamination_of(workspace, snapshot)
    waivers = {name: reason for name, _, reason in (w.partition("=") for w in _texts(settings, "waive_contamination"))}
    require_clean(states, waivers, data=f"{'snapshot' if snapshot else 'file'} {data}", snapshot=snapshot is not None)


def policy_figures(workspace: Workspace, settings: Settings) -> JobFigures:
    if not settings.get("reward") and not settings.get("resume"):
        raise BadInputError(
            "name a reward: a reward server, or verifier for prompts that can be checked", field="reward"
        )
    steps = _optional(settings, "steps")
    return JobFigures(steps=None if steps is None else int(steps))


def loop_figures(workspace: Workspace, settings: Settings) -> JobFigures:
    load_loop(find_file(workspace, _file(settings, "config")))  # raises what the command refuses
    return JobFigures()


def sample_figures(workspace: Workspace, settings: Settings) -> JobFigures:
    """Raises BadInputError where the file is no upload: without it the command would run the whole demo."""
    name = str(settings.get("data") or "")
    if name != f"{UPLOADS}/{clean_name(name)}":
        raise BadInputError(f"the sample is a new file of the folder {UPLOADS}", field="data")
    return JobFigures()


def score_figures(workspace: Workspace, settings: Settings) -> JobFigures:
    """Raises BadInputError for what is missing or not there: a file or a prompt, a model or a reward server."""
    if not settings.get("prompt"):
        _check_file(workspace, settings.get("file"), "file")
    if not settings.get("reward"):
        _check_models(workspace, settings)
    return JobFigures()


def benchmark_figures(workspace: Workspace, settings: Settings) -> JobFigures:
    _check_file(workspace, settings.get("path"), "path")
    return JobFigures()


def evaluation_figures(workspace: Workspace, settings: Settings) -> JobFigures:
    if not settings.get("judge") and not settings.get("scores"):
        _check_models(workspace, settings)
    if not settings.get("data") and not settings.get("bench"):
        raise BadInputError("name the pairs (a training set or a file), or a benchmark", field="data")
    for file in _texts(settings, "path"):
        _check_file(workspace, file, "path")
    rows, limit = data_rows(workspace, settings, "data"), _optional(settings, "limit")
    return JobFigures(rows if rows is None or not limit else min(rows, int(limit)))


def _check_models(workspace: Workspace, settings: Settings) -> None:
    models = [one for one in _texts(settings, "model") if one]
    if not models:
        raise BadInputError("name the reward model: one of the workspace, or of the hub (owner/name)", field="model")
    for model in models:
        try:
            if not is_url(model) and not (workspace.root / Path(model).expanduser()).exists():
                located(model, workspace.root)
        except NotFoundError as error:  # of paths and of the hub, loading says whether there is one
            raise BadInputError(str(error), field="model") from None


def _check_file(workspace: Workspace, file: object, name: str) -> None:
    if not isinstance(file, str) or not file:
        raise BadInputError("choose a file; new ones are uploaded under Data, Import", field=name)
    if not (workspace.root / Path(file).expanduser()).exists():
        have = [one.removeprefix(f"{UPLOADS}/") for one in uploads(workspace)]
        near = get_close_matches(Path(file).name, have, n=3)
        there = f"; there is {', '.join(f'{UPLOADS}/{one}' for one in near)}" if near else ""
        raise BadInputError(f"no file {file!r}{there}; new ones are uploaded under Data, Import", field=name)


def data_rows(workspace: Workspace, settings: Settings, name: str) -> int | None:
    """Pairs of a snapshot that a setting names; None of a file, or where nothing is named. Raises BadInputError for
    what is neither."""
    data = settings.get(name)
    if not isinstance(data, str) or not data:
        return None
    try:
        snapshot = get_snapshot(workspace, data)
        return snapshot.items - snapshot.ties
    except NotFoundError:
        if data.startswith("hf:") or (workspace.root / Path(data).expanduser()).exists():
            return None
        raise BadInputError(f"no snapshot and no file is named {data!r}", field=name) from None


def _unverified(settings: Settings) -> Selection:
    return Selection(("unverified",), _texts(settings, "source"))


def _texts(settings: Settings, name: str) -> tuple[Any, ...]:
    value = settings.get(name)
    return tuple(value) if isinstance(value, list) else (value,) if isinstance(value, str) and value else ()


def _file(settings: Settings, name: str) -> str:
    value = settings.get(name)
    if not isinstance(value, str) or not value:
        raise BadInputError("choose a file of the workspace", field=name)
    return value


def _optional(settings: Settings, name: str) -> float | None:
    value = settings.get(name)
    return None if value is None or value == "" or isinstance(value, list) else float(value)


def _number(settings: Settings, name: str, default: float) -> float:
    value = _optional(settings, name)
    return default if value is None else value
