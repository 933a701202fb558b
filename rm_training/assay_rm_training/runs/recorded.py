"""Run records of this package: inputs for lineage, the contamination check of training data, evaluation reports,
records without workspace.

Leaves out: the record itself (`assay.runs.record`), names of models (`assay.runs.model_run`).
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from assay.data.snapshots import get_snapshot
from assay.errors import NotFoundError
from assay.models.devices import pick_device
from assay.models.loading import resolve_model
from assay.models.spec import RewardModelSpec
from assay.runs.contamination_gate import BenchmarkState, contamination_of, record_waivers, require_clean
from assay.runs.model_run import model_run
from assay.runs.record import Run, folder_digest, mark_dead_runs, start_run
from assay.workspace import Workspace
from assay_rm_training.evaluation.report import EvaluationReport


def snapshot_id(workspace: Workspace, data: str) -> str | None:
    """None for data that are no snapshot of the workspace: a file."""
    try:
        return get_snapshot(workspace, data).id
    except NotFoundError:
        return None


def inputs_of(
    workspace: Workspace,
    models: Iterable[tuple[str, str | None]],
    data: Iterable[str] = (),
    *,
    resume: str | None = None,
) -> dict[str, str]:
    """Ref -> kind of models as `locate_model` gives them, of snapshots or files, and of the run that is resumed."""
    inputs = {artifact or source: "artifact" if artifact else "model" for source, artifact in models}
    if resume is not None:
        inputs[resume] = "run"
    for name in data:
        path = Path(name).expanduser()
        snapshot = snapshot_id(workspace, name)
        inputs[snapshot or (str(path.resolve()) if path.exists() else name)] = "snapshot" if snapshot else "file"
    return inputs


def check_contamination(
    workspace: Workspace, run: Run | None, data: str, waivers: Mapping[str, str], *, resumed: bool = False
) -> list[BenchmarkState]:
    """The contamination state of training data, one per registered benchmark; with a run, waivers are recorded.

    Raises BadInputError where a benchmark is neither clean nor waived, except in a run that is `resumed`: its data were
    checked when it began, and benchmarks registered since are warnings (`unchecked`).
    """
    snapshot = snapshot_id(workspace, data)
    description = f"snapshot {data!r}" if snapshot else f"file {data}"
    states = contamination_of(workspace, snapshot)
    states = require_clean(states, waivers, data=description, snapshot=snapshot is not None, resumed=resumed)
    if run is not None:
        record_waivers(workspace, run.id, snapshot or data, states)
    return states


def unchecked(states: Iterable[BenchmarkState]) -> list[str]:
    """Warnings of a resumed run, one per benchmark that is neither clean nor waived."""
    return [
        f"benchmark {state.benchmark!r}, registered or checked after this run began, has {state.overlaps} overlaps"
        if state.state == "overlaps"
        else f"not checked against benchmark {state.benchmark!r}, registered after this run began"
        for state in states
        if state.state != "clean" and state.waived is None
    ]


@contextmanager
def training_run(
    workspace: Workspace,
    name: str,
    settings: Mapping[str, Any],
    *,
    force: bool,
    data: str,
    waivers: Mapping[str, str],
    inputs: Mapping[str, str],
    models: Iterable[str],
    device: str,
    resumed: bool = False,
) -> Iterator[tuple[Run, Path, list[BenchmarkState]]]:
    """A run of kind `train`, the reserved folder of its model, and the contamination state of its data. `models`: that
    it will load, on `device`. `resumed`: as of `check_contamination`, whose warnings are printed.

    Raises as `model_run`, and before it as `check_contamination`, `resolve_model` and `pick_device`.
    """
    for warning in unchecked(check_contamination(workspace, None, data, waivers, resumed=resumed)):
        print(f"WARNING: {warning}", file=sys.stderr, flush=True)
    for model in models:
        resolve_model(model)
    pick_device(device)
    mark_dead_runs(workspace)
    with model_run(workspace, "train", name, settings, force=force, inputs=inputs) as (run, folder):
        yield run, folder, check_contamination(workspace, run, data, waivers, resumed=resumed)


def write_report(report: EvaluationReport, run: Run | None, out: Path | None) -> Path | None:
    """Write the metrics and the items to `out` and to the run's folder, and the metrics to its record.

    Returns the first of these folders.
    """
    folders = [folder for folder in (out, run.folder if run else None) if folder is not None]
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        report.write(folder)
    if run is not None:
        run.metrics.update(report.to_dict())
    return folders[0] if folders else None


def add_model(run: Run, folder: Path, spec: RewardModelSpec) -> str:
    """Record the checkpoint in `folder` as an artifact of the run; returns its id. An implicit reward model is a policy
    and is found as both."""
    kind = "policy" if spec.kind == "implicit" else "reward_model"
    return run.add_artifact(kind, folder.name, folder, content_hash=folder_digest(folder), spec=asdict(spec))


@contextmanager
def recorded_run(
    workspace: Workspace | None,
    kind: str,
    settings: Mapping[str, Any],
    *,
    model: tuple[str, str | None],
    data: Iterable[str] = (),
) -> Iterator[Run | None]:
    """A run record around a block of work on one model; None without a workspace."""
    if workspace is None:
        yield None
        return
    with start_run(workspace, kind, settings, inputs=inputs_of(workspace, [model], data)) as run:
        yield run
