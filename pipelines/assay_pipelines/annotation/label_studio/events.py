"""What a webhook event says (actions as Label Studio's server spells them), and folding waiting events into the store.

An event waits as one durable file, written before it is acknowledged and removed once it is folded. Events of unknown
projects and tasks change nothing: a poll sees whatever an event could have said.
"""

import json
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from assay.errors import BackendError, BadInputError
from assay.system.atomic_files import replacing
from assay.workspace import Workspace
from assay_pipelines.annotation.label_studio.config import ProjectConfig
from assay_pipelines.annotation.label_studio.project import list_projects
from assay_pipelines.annotation.label_studio.reading import Revision, read_annotation
from assay_pipelines.annotation.label_studio.votes import Deletion, VoteCounts, record

#: Action -> key of the payload that holds what it is about.
ACTIONS: dict[str, str] = {
    "ANNOTATION_CREATED": "annotation",
    "ANNOTATIONS_CREATED": "annotation",
    "ANNOTATION_UPDATED": "annotation",
    "ANNOTATIONS_DELETED": "annotations",
    "TASKS_DELETED": "tasks",
}


@dataclass
class EventFoldReport:
    """`events`: read from the spool; `ignored`: of projects this workspace does not know, or that say nothing."""

    events: int = 0
    ignored: int = 0
    damaged: int = 0
    counts: VoteCounts = field(default_factory=VoteCounts)


def slim(event: Mapping[str, Any]) -> dict[str, Any] | None:
    """What is kept of a payload; None for an action that is none of ours. Raises BadInputError for a wrong shape."""
    action = event.get("action")
    if not isinstance(action, str):
        raise BadInputError("a webhook of Label Studio says its action", field="action")
    key = ACTIONS.get(action)
    if key is None:
        return None
    about = event.get(key)
    about = about if isinstance(about, list) else [about]
    if not all(isinstance(entry, Mapping) and isinstance(entry.get("id"), int) for entry in about):
        raise BadInputError("no such thing in the payload: turn on 'send payload' in the webhook's settings", field=key)
    project = event.get("project")
    number = project.get("id") if isinstance(project, Mapping) else project
    return {"action": action, "project": number, "about": about}


def fold_events(workspace: Workspace, run_id: str | None = None) -> EventFoldReport:
    """Put the waiting events into the store in one unit of work. Safe to repeat and to kill at any point.

    Raises BusyError when another process holds the store; the events wait on.
    """
    folder = spool_folder(workspace)
    report = EventFoldReport()
    waiting: list[tuple[Path, str, dict[str, Any]]] = []
    damaged: list[Path] = []
    for path, contents in read_events(folder):
        if contents is None:
            damaged.append(path)
        else:
            waiting.append((path, str(contents["server"]), contents["event"]))
    report.events, report.damaged = len(waiting) + len(damaged), len(damaged)
    if waiting:
        configs = {(p.server, p.id): p.config for p in list_projects(workspace)}
        seen: dict[str, tuple[list[Revision], list[Deletion]]] = {}
        for _, server, event in waiting:
            revisions, deletions = seen.setdefault(server, ([], []))
            found_revisions, found_deletions = observations(server, event, configs)
            report.ignored += not found_revisions and not found_deletions
            revisions += found_revisions
            deletions += found_deletions
        with workspace.store.unit() as db:
            for server, (revisions, deletions) in seen.items():
                report.counts += record(db, server, revisions, deletions, run_id)
    retire(folder, [path for path, _, _ in waiting], damaged)
    return report


def observations(
    server: str, event: Mapping[str, Any], configs: Mapping[tuple[str, int], ProjectConfig]
) -> tuple[list[Revision], list[Deletion]]:
    """What a slim event says of projects in `configs`, by (server, number)."""
    revisions: list[Revision] = []
    deletions: list[Deletion] = []
    action, about = event.get("action"), event.get("about") or []
    if action in ("ANNOTATIONS_DELETED", "TASKS_DELETED"):
        project = event.get("project")
        if isinstance(project, int) and (server, project) in configs:
            kind: Literal["task", "annotation"] = "task" if action == "TASKS_DELETED" else "annotation"
            deletions = [Deletion(kind, entry["id"], project) for entry in about]
        return revisions, deletions
    for entry in about:
        config = configs.get((server, entry.get("project")))
        if config is not None:
            try:
                revisions.append(read_annotation(entry, config))
            except BadInputError:
                continue  # a poll reads it, or says why not
    return revisions, deletions


DAMAGED = "damaged"


def spool_folder(workspace: Workspace) -> Path:
    return workspace.journal / "label-studio"


def append_event(folder: Path, server: str, event: Mapping[str, Any]) -> None:
    """Returns once the event is on the disk: only then may it be acknowledged. Raises BackendError."""
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise BackendError(f"cannot make {folder}: {error.strerror or error}") from error
    name = f"event-{time.time_ns():020d}-{secrets.token_hex(4)}.json"
    with replacing(folder / name) as path:
        path.write_text(json.dumps({"server": server, "event": dict(event)}), encoding="ascii")


def read_events(folder: Path) -> Iterator[tuple[Path, dict[str, Any] | None]]:
    """The events that wait, oldest first; None for a file that cannot be read any more."""
    for path in sorted(folder.glob("event-*.json")):
        try:
            event = json.loads(path.read_text(encoding="ascii"))
        except FileNotFoundError:
            continue  # another process has just folded it
        except ValueError:
            event = None
        sound = isinstance(event, dict) and isinstance(event.get("event"), dict) and "server" in event
        yield path, event if sound else None


def retire(folder: Path, folded: Sequence[Path], damaged: Sequence[Path]) -> None:
    """After the commit: what is in the store goes, what cannot be read is set aside."""
    for path in folded:
        path.unlink(missing_ok=True)
    for path in damaged:
        (folder / DAMAGED).mkdir(exist_ok=True)
        path.rename(folder / DAMAGED / path.name)
