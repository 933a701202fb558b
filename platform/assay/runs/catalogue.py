"""The runs and the models of a workspace: listing, comparing and removing them.

Covers: what two runs have different in settings and results; removing the files of a run or a model that nothing
recorded depends on. The record stays and says that the files were removed, so lineage still walks through it. Leaves
out: the walk itself (`lineage`), recording (`record`), charts of a run (`assay report`).
"""

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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
    """`models`: names of what the run made. `removed`: when its files were, None while they are there. `tags`, `note`:
    what people wrote about it."""

    id: str
    kind: str
    status: str
    started: str
    seconds: float | None  #: None: it has not ended
    models: tuple[str, ...]
    error: str | None
    removed: str | None
    tags: tuple[str, ...]
    note: str
    archived: bool


@dataclass(frozen=True)
class RunContents:
    """A run with its settings and metrics by dotted name."""

    summary: RunSummary
    settings: dict[str, Any]
    metrics: dict[str, Any]


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


def list_runs(
    workspace: Workspace,
    *,
    run: str | None = None,
    kind: str | None = None,
    group: str | None = None,
    tag: str | None = None,
    archived: bool = False,
    limit: int = 50,
) -> list[RunSummary]:
    """The newest runs first. `group`: only trainings that were started together under this name. `archived`: those that
    are, too."""
    with workspace.store.unit() as db:
        rows = db.execute(
            """SELECT run_id, kind, status, strftime(started_at, $minute), epoch(ended_at - started_at),
                      (SELECT list(name ORDER BY name) FROM artifacts a
                       WHERE a.run_id = r.run_id AND list_contains($models, a.kind)),
                      error, metrics ->> $removed, tags, coalesce(note, ''), coalesce(archived, false)
               FROM runs r LEFT JOIN run_notes USING (run_id)
               WHERE ($run IS NULL OR run_id = $run) AND ($kind IS NULL OR kind = $kind)
                 AND ($group IS NULL OR config ->> 'group' = $group)
                 AND ($tag IS NULL OR list_contains(tags, $tag)) AND ($archived OR NOT coalesce(archived, false))
               ORDER BY started_at DESC, run_id DESC LIMIT $limit""",
            {"models": list(MODEL_KINDS), "removed": REMOVED, "minute": MINUTE}
            | {"run": run, "kind": kind, "group": group, "limit": limit, "tag": tag, "archived": archived},
        ).fetchall()
    return [
        RunSummary(
            run, kind, status, started, seconds, tuple(models or ()), error, removed, tuple(tags or ()), *written
        )
        for run, kind, status, started, seconds, models, error, removed, tags, *written in rows
    ]


def run_record(workspace: Workspace, run: str) -> RunContents:
    """Raises NotFoundError for an unknown run."""
    settings, metrics = _record(workspace, run)
    return RunContents(list_runs(workspace, run=run, archived=True)[0], settings, metrics)


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


@dataclass(frozen=True)
class Removal:
    """What removing a run's folder would do. `bytes`: of its files. `dependents`: runs that read it or what is in it,
    with their kind. `models`: made by it and kept, they are elsewhere. `inside`: ids of artifacts that would go."""

    run: str
    bytes: int
    dependents: tuple[str, ...]
    models: tuple[str, ...]
    inside: tuple[str, ...]


def removal_of(workspace: Workspace, run: str) -> Removal:
    """Raises NotFoundError for an unknown run, BadInputError for one that is running."""
    folder = workspace.runs / run
    with workspace.store.unit() as db:
        row = db.execute("SELECT status, pid FROM runs WHERE run_id = ?", [run]).fetchone()
        if row is None:
            raise NotFoundError(f"no run {run!r}; assay runs lists them")
        artifacts = db.execute("SELECT artifact_id, name, kind, path FROM artifacts WHERE run_id = ?", [run]).fetchall()
        within = {ref: workspace.located_path(path).is_relative_to(folder) for ref, _, _, path in artifacts}
        inside = tuple(ref for ref, is_inside in within.items() if is_inside)
        dependents = tuple(_dependents(db, [run, *inside]))
    if row[0] == "running" and is_running(workspace, run, row[1]):
        raise BadInputError(f"{run} is still running, as process {row[1]}")
    models = tuple(name for ref, name, kind, _ in artifacts if kind in MODEL_KINDS and not within[ref])
    return Removal(run, size_of(folder), dependents, models, inside)


def remove_run(workspace: Workspace, run: str, *, force: bool = False) -> int:
    """Remove the run's folder (logs, rollouts, checkpoints); returns its bytes. Models that it made are elsewhere.

    Raises as `removal_of`, and, unless `force`, BadInputError for one that other runs depend on.
    """
    removal = removal_of(workspace, run)
    _require_unused(run, removal.dependents, force=force)
    with workspace.store.unit() as db:
        db.execute(
            "UPDATE runs SET metrics = json_merge_patch(coalesce(metrics, '{}'), ?) WHERE run_id = ?", [_stone(), run]
        )
        _note_removed(db, removal.inside)
    return _remove_folder(workspace.runs / run)


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
