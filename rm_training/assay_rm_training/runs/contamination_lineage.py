"""Contamination as a property of lineage: what a model inherits, and the gate of data that selects or calibrates.

Covers: uses of benchmarks by a base, members of a merge or an ensemble, the reward models that decided a snapshot's
labels; data of early stopping and calibration. Leaves out: training data (`assay.runs.contamination_gate`).
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from assay.domain import PreferencePair
from assay.errors import BadInputError
from assay.models.contamination import KEY, BenchmarkUse, Use, read_uses, union, uses_from
from assay.models.spec import RewardModelSpec
from assay.runs.contamination_gate import BenchmarkState, benchmarks_in, contamination_of, record_waivers
from assay.runs.record import Run
from assay.workspace import Workspace
from assay_rm_training.runs.recorded import snapshot_id
from assay_serving.composition.part_loader import models_of
from assay_serving.engines.ensemble import FILE as ENSEMBLE_FILE
from assay_serving.engines.ensemble import EnsembleSpec
from assay_serving.engines.head_ensemble import HeadEnsembleSpec
from assay_serving.model_reference import is_composed, is_ensemble, is_head_ensemble, is_rubric
from assay_serving.rubrics.loader import rubric_models

_DECIDING = """
    WITH deciding AS (
        SELECT d.run_id FROM snapshot_items i JOIN decisions d USING (comparison_id) WHERE i.snapshot_id = $snapshot
        UNION SELECT j.run_id FROM snapshot_items i JOIN judgments j USING (comparison_id)
        WHERE i.snapshot_id = $snapshot)"""
_CARRIED = f"""{_DECIDING}
    SELECT DISTINCT r.metrics ->> '$.{KEY}' FROM deciding JOIN runs r USING (run_id)
    WHERE r.metrics ->> '$.{KEY}' IS NOT NULL ORDER BY 1"""
_JUDGES = f"""{_DECIDING}
    SELECT DISTINCT a.path FROM deciding JOIN run_links l ON l.run_id = deciding.run_id AND l.direction = 'input'
    JOIN artifacts a ON l.kind = 'artifact' AND a.artifact_id = l.ref
        OR l.kind = 'model_version' AND a.spec ->> 'version' = l.ref
    ORDER BY 1"""


def uses_of_model(workspace: Workspace | None, source: str) -> tuple[BenchmarkUse, ...]:
    """What the model at `source` (a folder, the file of an ensemble or of a composed reward) carries. Of a spec from
    before uses were carried: its training data by the workspace's ledger, and what its base carries."""
    path = Path(source).expanduser()
    if path.exists() and is_ensemble(source):
        file = path / ENSEMBLE_FILE if path.is_dir() else path
        ensemble = EnsembleSpec.read(file)
        beside = [(file.parent / member.model, member.model) for member in ensemble.members]
        sources = [str(folder.resolve()) if folder.exists() else name for folder, name in beside]
        return union(ensemble.contamination, *(uses_of_model(workspace, member) for member in sources))
    if path.exists() and is_head_ensemble(source):
        return HeadEnsembleSpec.read(path).contamination
    if path.exists() and is_composed(source):
        return union(*(uses_of_model(workspace, model) for model in models_of(path, workspace)))
    if path.exists() and is_rubric(source):
        return union(*(uses_of_model(workspace, model) for model in rubric_models(path, workspace)))
    spec = RewardModelSpec.read(path) if path.is_dir() else None
    if spec is None:
        return read_uses(path)
    if spec.contamination or workspace is None:
        return spec.contamination
    own = as_uses(_states(workspace, spec), "training", spec.snapshot or "a file", path.name)
    base = Path(spec.base).expanduser()
    return union(own, uses_of_model(workspace, spec.base) if base.is_dir() and base.resolve() != path.resolve() else ())


def uses_of_judges(workspace: Workspace, snapshot: str | None) -> tuple[BenchmarkUse, ...]:
    """What the models carry that judged or decided the snapshot's comparisons."""
    if snapshot is None:
        return ()
    with workspace.store.unit() as db:
        carried = db.execute(_CARRIED, {"snapshot": snapshot}).fetchall()
        paths = [row[0] for row in db.execute(_JUDGES, {"snapshot": snapshot}).fetchall()]
    recorded = (uses_from(json.loads(uses)) for (uses,) in carried)
    return union(*recorded, *(uses_of_model(workspace, str(workspace.located_path(path))) for path in paths))


def relevant(
    uses: Iterable[BenchmarkUse], evaluated: Sequence[tuple[BenchmarkState, int]] | None
) -> tuple[BenchmarkUse, ...]:
    """Those of the benchmarks that are evaluated; None, outside a workspace: all, for nothing says which those are."""
    names = None if evaluated is None else {state.benchmark for state, _ in evaluated}
    return tuple(use for use in uses if names is None or use.benchmark in names)


def as_uses(states: Iterable[BenchmarkState], use: Use, data: str, model: str) -> tuple[BenchmarkUse, ...]:
    return tuple(
        BenchmarkUse(
            s.benchmark,
            s.content_hash,
            use,
            s.state,
            Path(data).name,
            model,
            s.overlaps,
            s.waived,
            f"{s.ngram} {s.unit}s, {s.run_id}" if s.ngram is not None else "",
        )
        for s in states
    )


def states_of_use(
    workspace: Workspace | None,
    data: str,
    rows: Collection[Any],
    use: Use,
    waivers: Mapping[str, str] | None,
    *,
    resumed: bool = False,
) -> list[BenchmarkState]:
    """The state of data that selects or calibrates against every registered benchmark; `rows` have a prompt.

    Raises BadInputError where they share prompts with a benchmark that is not in `waivers`; None, and in a run that is
    `resumed`: they are only stated.
    """
    if workspace is None:
        return []
    exact = benchmarks_in(workspace, [PreferencePair(row.prompt, "", "") for row in rows])
    states = []
    for state in contamination_of(workspace, snapshot_id(workspace, data)):
        overlaps = max(exact.get(state.benchmark, 0), state.overlaps)
        reason = (waivers or {}).get(state.benchmark, "").strip()
        if overlaps and not reason and waivers is not None and not resumed:
            raise BadInputError(
                f"{data}: {overlaps} of its prompts are in the benchmark {state.benchmark!r}, which is not for {use}; "
                f"use other data, or waive it (assay train, assay calibrate): --waive-contamination "
                f"{state.benchmark}=REASON"
            )
        waived = reason if overlaps and reason else None
        states.append(replace(state, state="overlaps" if overlaps else state.state, overlaps=overlaps, waived=waived))
    return states


def record_use(run: Run | None, data: str, states: Sequence[BenchmarkState]) -> None:
    """Record the waivers among the states with the run."""
    if run is not None:
        record_waivers(run.workspace, run.id, snapshot_id(run.workspace, data) or data, states)


def _states(workspace: Workspace, spec: RewardModelSpec) -> list[BenchmarkState]:
    with workspace.store.unit() as db:
        here = db.execute("SELECT 1 FROM runs WHERE run_id = ?", [spec.run_id]).fetchone()
    return contamination_of(workspace, spec.snapshot, run_id=spec.run_id) if here is not None else []
