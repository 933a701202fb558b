"""The runs and the models of a workspace: listing, comparing and removing them.

Covers: what two runs have different in settings and results; removing the files of a run or a model that nothing
recorded depends on. The record stays and says that the files were removed, so lineage still walks through it. Leaves
out: the walk itself (`lineage`), recording (`record`), charts of a run (`assay report`).
"""

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from assay.errors import BadInputError, NotFoundError
from assay.runs.record import MODEL_KINDS, find_artifact, is_running
from assay.store.database import Connection
from assay.workspace import Workspace

REMOVED = "removed"  #: of a run's metrics and an artifact's spec: when the files were removed
MINUTE = "%Y-%m-%d %H:%M"  #: how a time is listed


@dataclass(frozen=True)
class RunSummary:
    """`models`: names of what the run made. `removed`: when its files were, None while they are there."""

    id: str
    kind: str
    status: str
    started: str
    seconds: float | None  #: None: it has not ended
    models: tuple[str, ...]
    error: str | None
    removed: str | None


@dataclass(frozen=True)
class ModelSummary:
    """An artifact that can be loaded. `bytes`: of its files."""

    id: str
    kind: str
    name: str
    path: Path
    run: str | None
    created: str
    bytes: int
    removed: str | None


SUMMARY = tuple(field.name for field in fields(RunSummary))


def list_runs(
    workspace: Workspace, *, kind: str | None = None, group: str | None = None, limit: int = 50
) -> list[RunSummary]:
    """The newest runs first. `group`: only trainings that were started together under this name."""
    with workspace.store.unit() as db:
        rows = db.execute(
            """SELECT run_id, kind, status, strftime(started_at, $minute), epoch(ended_at - started_at),
                      (SELECT list(name ORDER BY name) FROM artifacts a
                       WHERE a.run_id = r.run_id AND list_contains($models, a.kind)),
                      error, metrics ->> $removed
               FROM runs r WHERE ($kind IS NULL OR kind = $kind) AND ($group IS NULL OR config ->> 'group' = $group)
               ORDER BY started_at DESC, run_id DESC LIMIT $limit""",
            {"models": list(MODEL_KINDS), "removed": REMOVED, "minute": MINUTE}
            | {"kind": kind, "group": group, "limit": limit},
        ).fetchall()
    return [RunSummary(**dict(zip(SUMMARY, (*row[:5], tuple(row[5] or ()), *row[6:]), strict=True))) for row in rows]


def list_models(workspace: Workspace, *, kind: str | None = None) -> list[ModelSummary]:
    """The newest first."""
    with workspace.store.unit() as db:
        rows = db.execute(
            """SELECT artifact_id, kind, name, path, run_id, strftime(created_at, $minute), spec ->> $removed
               FROM artifacts WHERE list_contains($kinds, kind) ORDER BY created_at DESC, artifact_id""",
            {"kinds": [kind] if kind else list(MODEL_KINDS), "removed": REMOVED, "minute": MINUTE},
        ).fetchall()
    models = []
    for artifact, model_kind, name, stored, run, created, removed in rows:
        path = workspace.located_path(stored)
        models.append(ModelSummary(artifact, model_kind, name, path, run, created, size_of(path), removed))
    return models


def compare_runs(workspace: Workspace, first: str, second: str) -> dict[str, dict[str, tuple[Any, Any]]]:
    """`settings` and `metrics` that differ, by dotted name, with the value of each run (None: it has none).

    Raises NotFoundError for an unknown run.
    """
    (settings_a, metrics_a), (settings_b, metrics_b) = (_record(workspace, run) for run in (first, second))
    return {"settings": _differences(settings_a, settings_b), "metrics": _differences(metrics_a, metrics_b)}


def run_of_model(workspace: Workspace, name: str) -> str:
    """Id of the run that made the newest model of this name, or of this id. Raises NotFoundError for an unknown one."""
    artifact = find_artifact(workspace, name, MODEL_KINDS)
    if artifact is None:
        raise NotFoundError(f"no model {name!r}; assay models lists them")
    with workspace.store.unit() as db:
        row = db.execute("SELECT run_id FROM artifacts WHERE artifact_id = ?", [artifact[1]]).fetchone()
    if row is None or row[0] is None:
        raise NotFoundError(f"no run is recorded that made {name}")
    return str(row[0])


def _record(workspace: Workspace, run: str) -> tuple[dict[str, Any], dict[str, Any]]:
    with workspace.store.unit() as db:
        row = db.execute("SELECT config, metrics FROM runs WHERE run_id = ?", [run]).fetchone()
    if row is None:
        raise NotFoundError(f"no run {run!r}; assay runs lists them")
    settings, metrics = (dict(_flat(json.loads(text) if text else {})) for text in row)
    return settings, metrics


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, part in value.items():
            yield from _flat(part, f"{name}.{key}" if name else str(key))
    else:
        yield name, value


def _differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    names = dict.fromkeys([*first, *second])
    return {name: (first.get(name), second.get(name)) for name in names if first.get(name) != second.get(name)}


def remove_run(workspace: Workspace, run: str, *, force: bool = False) -> int:
    """Remove the run's folder (logs, rollouts, checkpoints); returns its bytes. Models that it made are elsewhere.

    Raises NotFoundError for an unknown run, BadInputError for one that is running, and, unless `force`, for one that
    other runs depend on.
    """
    folder = workspace.runs / run
    with workspace.store.unit() as db:
        row = db.execute("SELECT status, pid FROM runs WHERE run_id = ?", [run]).fetchone()
        if row is None:
            raise NotFoundError(f"no run {run!r}; assay runs lists them")
        artifacts = db.execute("SELECT artifact_id, path FROM artifacts WHERE run_id = ?", [run]).fetchall()
        inside = [ref for ref, stored in artifacts if workspace.located_path(stored).is_relative_to(folder)]
        dependents = _dependents(db, [run, *inside])
    if row[0] == "running" and is_running(workspace, run, row[1]):
        raise BadInputError(f"{run} is still running, as process {row[1]}")
    _require_unused(run, dependents, force=force)
    with workspace.store.unit() as db:
        db.execute(
            "UPDATE runs SET metrics = json_merge_patch(coalesce(metrics, '{}'), ?) WHERE run_id = ?", [_stone(), run]
        )
        _note_removed(db, inside)
    return _remove_folder(folder)


def remove_model(workspace: Workspace, name: str, *, force: bool = False) -> int:
    """Remove the folder of the workspace's newest model of this name, or of this id; returns its bytes.

    Raises NotFoundError for an unknown one, BadInputError for one outside of the workspace, and, unless `force`, for
    one that runs depend on.
    """
    artifact = find_artifact(workspace, name, MODEL_KINDS)
    if artifact is None:
        raise NotFoundError(f"no model {name!r}; assay models lists them")
    path, ref = artifact
    if not path.is_relative_to(workspace.models):
        raise BadInputError("is not in the workspace's models: it is not this command's to remove", file=path)
    with workspace.store.unit() as db:
        version = db.execute(
            "SELECT coalesce(spec ->> 'version', content_hash) FROM artifacts WHERE artifact_id = ?", [ref]
        ).fetchone()
        dependents = _dependents(db, [ref, *(version or ())])
    _require_unused(name, dependents, force=force)
    with workspace.store.unit() as db:
        _note_removed(db, [ref])
    return _remove_folder(path)


def size_of(folder: Path) -> int:
    """Bytes of the files below it; 0 where it is gone."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())


def _dependents(db: Connection, refs: Sequence[str]) -> list[str]:
    """Runs that read one of these, with their kind."""
    rows = db.execute(
        """SELECT DISTINCT run_id, r.kind FROM run_links l JOIN runs r USING (run_id)
           WHERE direction = 'input' AND list_contains($refs, ref) ORDER BY run_id""",
        {"refs": list(refs)},
    ).fetchall()
    return [f"{run} ({kind})" for run, kind in rows]


def _require_unused(name: str, dependents: Sequence[str], *, force: bool) -> None:
    if dependents and not force:
        more = f" and {len(dependents) - 5} more" if len(dependents) > 5 else ""
        raise BadInputError(f"{name} was read by {', '.join(dependents[:5])}{more}; --force removes it all the same")


def _stone() -> str:
    return json.dumps({REMOVED: datetime.now(UTC).isoformat(timespec="seconds")})


def _note_removed(db: Connection, artifacts: Sequence[str]) -> None:
    for ref in artifacts:
        db.execute(
            "UPDATE artifacts SET spec = json_merge_patch(coalesce(spec, '{}'), ?) WHERE artifact_id = ?",
            [_stone(), ref],
        )


def _remove_folder(folder: Path) -> int:
    size = size_of(folder)
    shutil.rmtree(folder, ignore_errors=not folder.exists())
    return size
