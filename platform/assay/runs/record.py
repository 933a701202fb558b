"""Runs: one record for each execution of anything, with config, code version, inputs, outputs and outcome.

Covers: starting and ending a run, its links and metrics, artifacts it made, marking dead runs. Leaves out: the
walk over the links (`assay.runs.lineage`).
"""

import difflib
import hashlib
import json
import os
import secrets
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from assay import __version__
from assay.errors import AssayError, BadInputError, NotFoundError, without_credentials
from assay.models.readings import IMPLICIT, implicit_parts
from assay.runs.console_log import console_to
from assay.runs.process import is_alive, note_end, note_process, process_of
from assay.runs.progress_file import noting_in
from assay.runs.resource_log import sampling_to
from assay.store.database import Connection
from assay.workspace import Workspace

Direction = Literal["input", "output"]


@dataclass
class Run:
    """A run in progress. Its folder is `workspace.runs / id`; metrics set here are stored when it ends."""

    workspace: Workspace
    id: str
    kind: str
    metrics: dict[str, Any] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        return self.workspace.runs / self.id

    def link(self, direction: Direction, kind: str, ref: str) -> None:
        """Record an input or output, e.g. `run.link("input", "snapshot", snapshot_id)`."""
        with self.workspace.store.unit() as db:
            db.execute(
                "INSERT INTO run_links VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
                [self.id, direction, kind, ref],
            )

    def add_artifact(
        self, kind: str, name: str, path: Path, *, content_hash: str, spec: Mapping[str, Any] | None = None
    ) -> str:
        """Record a model or file that this run made, and return its artifact id.

        The id is of the content AND the run, so two runs that make equal bytes keep their own lineage.
        """
        artifact = ("m-" if kind in ("reward_model", "policy") else "f-") + _short(f"{content_hash}{self.id}{name}")
        stored = self.workspace.stored_path(path)
        with self.workspace.store.unit() as db:
            db.execute(
                """INSERT INTO artifacts (artifact_id, kind, name, path, content_hash, spec, run_id)
                   VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING""",
                [artifact, kind, name, stored, content_hash, json.dumps(dict(spec or {})), self.id],
            )
            db.execute(
                "INSERT INTO run_links VALUES (?, 'output', 'artifact', ?) ON CONFLICT DO NOTHING",
                [self.id, artifact],
            )
        return artifact


_REFUSED: list[str] = []


@contextmanager
def without_runs(why: str) -> Iterator[None]:
    """Until the end of the block no run begins: `start_run` raises BadInputError that says why."""
    _REFUSED.append(why)
    try:
        yield
    finally:
        _REFUSED.pop()


@contextmanager
def start_run(
    workspace: Workspace, kind: str, config: Mapping[str, Any], *, inputs: Mapping[str, str] | None = None
) -> Iterator[Run]:
    """Record a run around a block of work: `done` at its end, `failed` with the error if it raises.

    `inputs`: ref -> kind. Ctrl-C and SystemExit leave status `interrupted`; a killed process leaves `running`,
    which `mark_dead_runs` turns into `interrupted`.
    """
    if _REFUSED:
        raise BadInputError(_REFUSED[-1])
    now = datetime.now(UTC)
    run = Run(workspace, f"run-{now:%Y%m%d-%H%M%S}-{secrets.token_hex(3)}", kind)
    run.folder.mkdir(parents=True)
    note_process(run.folder, kind, now.isoformat(timespec="seconds"))
    with workspace.store.unit() as db:
        db.execute(
            """INSERT INTO runs (run_id, kind, config, code_version, status, pid, host)
               VALUES (?, ?, ?, ?, 'running', ?, ?)""",
            [run.id, kind, json.dumps(recorded(config)), code_version(), os.getpid(), socket.gethostname()],
        )
        for ref, ref_kind in (inputs or {}).items():
            db.execute("INSERT INTO run_links VALUES (?, 'input', ?, ?)", [run.id, ref_kind, ref])
    try:
        with noting_in(run.folder), console_to(run.folder), sampling_to(run.folder):
            yield run
    except BaseException as error:
        status, text = (
            ("failed", f"{type(error).__name__}: {error}")
            if isinstance(error, Exception)
            else ("interrupted", type(error).__name__)
        )
        try:
            _end(run, status, text)
        except AssayError as unrecorded:  # the store is busy or broken too: what went wrong first is what counts
            error.add_note(f"{run.id} could not be marked as {status}: {unrecorded}")
        raise
    _end(run, "done", None)


def _end(run: Run, status: str, error: str | None) -> None:
    error = None if error is None else without_credentials(error)  # an error of a library, too
    with suppress(AssayError):  # a full disk: the store is what counts
        note_end(run.folder, status, error)
    with run.workspace.store.unit() as db:
        db.execute(
            "UPDATE runs SET status = ?, error = ?, metrics = ?, ended_at = now() WHERE run_id = ?",
            [status, error, json.dumps(run.metrics, default=str), run.id],
        )


def recorded(settings: Mapping[str, Any]) -> dict[str, Any]:
    """As a run records them: JSON, without credentials of URLs, since all may read them who read runs."""
    return dict(json.loads(without_credentials(json.dumps(dict(settings), default=str))))


def mark_dead_runs(workspace: Workspace) -> list[str]:
    """Mark `running` runs of this host whose process is gone as `interrupted`; returns their ids."""
    with workspace.store.unit() as db:
        rows = db.execute(
            "SELECT run_id, pid FROM runs WHERE status = 'running' AND host = ?", [socket.gethostname()]
        ).fetchall()
        dead = [run_id for run_id, pid in rows if not is_running(workspace, run_id, pid)]
        _mark(db, dead, "process gone")
    return dead


def mark_interrupted(workspace: Workspace, runs: Sequence[str], reason: str) -> None:
    """Mark those of the runs as `interrupted` that are `running`, on whatever machine: they are known to be gone."""
    if runs:
        with workspace.store.unit() as db:
            _mark(db, runs, reason)


def _mark(db: Connection, runs: Sequence[str], reason: str) -> None:
    db.execute(
        """UPDATE runs SET status = 'interrupted', error = $reason, ended_at = now()
           WHERE status = 'running' AND list_contains($runs, run_id)""",
        {"reason": reason, "runs": list(runs)},
    )


def is_running(workspace: Workspace, run_id: str, pid: int | None) -> bool:
    """Whether the process of a run of this machine still does it. `pid`: as the store has it, for runs that wrote no
    more of it down."""
    process = process_of(workspace.runs / run_id)
    return is_alive(pid) if process is None else process.is_alive()


def require_unfinished(workspace: Workspace, run_id: str, *, in_others: bool = False) -> None:
    """Raise BadInputError for a run that ended well: there is nothing to resume. An unknown one passes.

    `in_others`: also for one that a later run of its kind resumed and finished.
    """
    with workspace.store.unit() as db:
        row = db.execute(
            """SELECT other.run_id FROM runs own JOIN runs other ON other.kind = own.kind AND other.status = 'done'
               WHERE own.run_id = ? AND (other.run_id = own.run_id OR ? AND other.run_id IN
                   (SELECT run_id FROM run_links WHERE direction = 'input' AND kind = 'run' AND ref = own.run_id))
               ORDER BY other.run_id = own.run_id DESC, other.run_id LIMIT 1""",
            [run_id, in_others],
        ).fetchone()
    if row is not None:
        where = "is finished" if row[0] == run_id else f"was finished by {row[0]}"
        raise BadInputError(f"{run_id} {where}: there is nothing to resume", field="--resume")


MODEL_KINDS = ("reward_model", "policy")


def locate_model(
    workspace: Workspace | None, name: str, *, kinds: Sequence[str] = MODEL_KINDS
) -> tuple[str, str | None]:
    """(what to load, artifact id) for what a person calls a model; the one rule for every command.

    A bare name is the workspace's newest model of that name or id, wherever the command runs. What looks like a path
    (it has a `/`, or begins with `.` or `~`) or is unknown to the workspace stays as it is: a folder, a hub id, one
    of ours; loading says whether it exists. Of `dpo:POLICY@REFERENCE` each part is located, and the id is the policy's.
    Raises NotFoundError, with the names that are near, for a slip of one.
    """
    if workspace is None:
        return name, None
    if (parts := implicit_parts(name)) is not None:
        located = [locate_model(workspace, part, kinds=kinds) for part in parts if part is not None]
        return IMPLICIT + "@".join(folder for folder, _ in located), located[0][1]
    artifact = find_artifact(workspace, name, kinds)
    if artifact is not None:
        path, artifact_id = artifact
        return (name if _is_path_like(name) else str(path)), artifact_id
    if not _is_path_like(name) and not Path(name).exists():
        with workspace.store.unit() as db:
            near = _near(db, name, kinds)
        if near:
            raise NotFoundError(f"no model {name!r}; the workspace has {', '.join(near)}")
    return name, None


def find_artifact(workspace: Workspace, name: str, kinds: Sequence[str] = ()) -> tuple[Path, str] | None:
    """(path, id) of the newest artifact that has this id or name, or, for what looks like a path, this path; of any
    kind where none is given."""
    path_like = _is_path_like(name)
    with workspace.store.unit() as db:
        rows = db.execute(
            """SELECT path, artifact_id FROM artifacts
               WHERE (list_contains($kinds, kind) OR len($kinds) = 0) AND spec ->> 'removed' IS NULL
                 AND ($path_like OR artifact_id = $name OR name = $name)
               ORDER BY created_at DESC""",
            {"kinds": list(kinds), "name": name, "path_like": path_like},
        ).fetchall()
    absolute = recorded_path(name) if path_like else None
    for stored, artifact in rows:
        path = workspace.located_path(stored)
        if absolute is None or str(path) == absolute:
            return path, str(artifact)
    return None


def model_of_version(workspace: Workspace, version: str, name: str) -> dict[str, str]:
    """The input, ref -> kind, of a run whose model is called `name` and has that version: the newest artifact of both,
    the only one of the version, or else the version: models of equal weights share it."""
    with workspace.store.unit() as db:
        rows = db.execute(
            """SELECT artifact_id, name FROM artifacts
               WHERE list_contains($kinds, kind) AND $version IN (spec ->> 'version', content_hash)
               ORDER BY created_at DESC""",
            {"version": version, "kinds": list(MODEL_KINDS)},
        ).fetchall()
    artifacts = [row for row in rows if row[1] == name] or rows
    return {artifacts[0][0]: "artifact"} if len({row[1] for row in artifacts}) == 1 else {version: "model_version"}


def recorded_path(name: str) -> str:
    """As paths are recorded; what cannot be one is left as it is."""
    try:
        return str(Path(name).expanduser().resolve())
    except (OSError, ValueError, RuntimeError):  # too long; a zero character; `~` of nobody known here
        return name


def _is_path_like(name: str) -> bool:
    return "/" in name or name.startswith((".", "~"))


_MODEL_NAMES = "SELECT DISTINCT name FROM artifacts WHERE list_contains($kinds, kind) AND spec ->> 'removed' IS NULL"


def _near(db: Connection, name: str, kinds: Sequence[str]) -> list[str]:
    """Names of the workspace's models that `name` may be a slip of; none for a model of ours."""
    from assay.models.loading import OWN

    if name in OWN:
        return []
    rows = db.execute(_MODEL_NAMES, {"kinds": list(kinds)})
    return difflib.get_close_matches(name, [row[0] for row in rows.fetchall()], cutoff=0.7)


def folder_digest(folder: Path) -> str:
    """Content hash of a checkpoint folder: relative names and bytes of its files, in name order."""
    hasher = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        hasher.update(path.relative_to(folder).as_posix().encode() + b"\0")
        with path.open("rb") as stream:
            hasher.update(hashlib.file_digest(stream, "sha256").digest())
    return hasher.hexdigest()[:32]


@lru_cache(maxsize=1)
def code_version() -> str:
    """Package version, with the commit (and `-dirty`) where Assay runs from its own checkout.

    A package installed inside somebody else's repository must not take that repository's commit for its own.
    """
    root = Path(__file__).resolve().parents[3]
    try:
        if 'name = "assay"' not in (root / "pyproject.toml").read_text(encoding="utf-8"):
            return __version__
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--exclude", "*"],
            cwd=root,
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        ).stdout.strip()
    except (OSError, UnicodeDecodeError, subprocess.SubprocessError):
        return __version__
    return f"{__version__}+{described}" if described else __version__


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]
