"""Votes out of Label Studio by asking: every annotation of a project, page by page; repeats lose and double nothing.

What was known BEFORE the poll began and is not in it is asked for by its number, and is gone only if the server says
so: a vote that a webhook brings in meanwhile is safe. Where the projects of a workspace stand is read from the store
alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from assay.errors import BadInputError
from assay.runs.progress_bar import Advance, silent
from assay.store.database import Connection
from assay.workspace import Workspace
from assay_pipelines.annotation.label_studio.connection import ANNOTATION_FIELDS, exists, iter_tasks
from assay_pipelines.annotation.label_studio.events import EventFoldReport, fold_events, spool_folder
from assay_pipelines.annotation.label_studio.project import Project, check_project, list_projects
from assay_pipelines.annotation.label_studio.reading import Revision, read_annotation
from assay_pipelines.annotation.label_studio.tasks import take_up_tasks
from assay_pipelines.annotation.label_studio.votes import Deletion, VoteCounts, record

if TYPE_CHECKING:
    from label_studio_sdk import LabelStudio


@dataclass
class PullReport:
    """`annotations`: on the server now. `counts`: what the poll brought; `events`: what webhooks had brought before."""

    tasks: int = 0
    annotations: int = 0
    events: EventFoldReport = field(default_factory=EventFoldReport)
    counts: VoteCounts = field(default_factory=VoteCounts)


def pull(
    workspace: Workspace, client: LabelStudio, project: Project, run_id: str | None, *, on_progress: Advance = silent
) -> PullReport:
    """Bring the votes of the project up to date. Each page is durable; stopped, it is finished by running it again."""
    check_project(client, project)
    take_up_tasks(workspace, client, project, run_id)
    report = PullReport(events=fold_events(workspace, run_id))
    with workspace.store.unit() as db:
        known_tasks, known_annotations = _standing(db, project)
    for page in iter_tasks(client, project.server, project.id, ANNOTATION_FIELDS):
        annotations = [a for task in page for a in _annotations(project, task)]
        revisions = [_read(project, annotation) for annotation in annotations]
        with workspace.store.unit() as db:
            report.counts += record(db, project.server, revisions, (), run_id)
        report.tasks += len(page)
        report.annotations += len(revisions)
        known_tasks -= {int(task["id"]) for task in page}
        for revision in revisions:
            known_annotations.pop(revision.annotation_id, None)
        on_progress(len(page))
    lost = [task for task in sorted(known_tasks) if not exists(client, project.server, "task", task)]
    gone = [Deletion("task", task, project.id) for task in lost]

    gone += [
        Deletion("annotation", annotation, project.id)
        for annotation, task in sorted(known_annotations.items())
        if task not in lost and not exists(client, project.server, "annotation", annotation)
    ]
    if gone:
        with workspace.store.unit() as db:
            report.counts += record(db, project.server, (), gone, run_id)
    return report


def _standing(db: Connection, project: Project) -> tuple[set[int], dict[int, int]]:
    """Tasks, and annotations with their tasks, that are there as far as is known."""
    values = {"server": project.server, "project": project.id}
    tasks = db.execute(
        """SELECT task_id FROM label_studio_tasks t WHERE server = $server AND project_id = $project
             AND NOT EXISTS (SELECT 1 FROM label_studio_deletions d
                             WHERE d.server = t.server AND d.kind = 'task' AND d.id = t.task_id)""",
        values,
    ).fetchall()
    annotations = db.execute(
        """SELECT annotation_id, task_id FROM label_studio_revisions
           WHERE server = $server AND project_id = $project AND standing = 'current'""",
        values,
    ).fetchall()
    return {row[0] for row in tasks}, dict(annotations)


def _annotations(project: Project, task: dict[str, Any]) -> list[dict[str, Any]]:
    """With the numbers of the task and project, which some versions leave out inside a task."""
    defaults = {"task": task["id"], "project": project.id}
    return [defaults | {k: v for k, v in a.items() if v is not None} for a in task.get("annotations") or []]


def _read(project: Project, annotation: dict[str, Any]) -> Revision:
    try:
        return read_annotation(annotation, project.config)
    except BadInputError as error:
        raise BadInputError(f"{project.url}, annotation {annotation.get('id')}: {error}") from error


@dataclass(frozen=True)
class ProjectStatus:
    """`votes`: those that stand, by answer; `notes`: annotations that are no plain answer."""

    server: str
    project_id: int
    title: str
    template: str
    tasks: int
    answered: int  #: tasks with at least one standing vote
    people: int
    votes: dict[str, int]
    withdrawn: int
    notes: dict[str, int]
    seconds: float | None  #: median time of a vote


def label_studio_status(workspace: Workspace) -> tuple[list[ProjectStatus], int]:
    """Every project, newest first, and the number of webhook events that wait to be folded."""
    projects = list_projects(workspace)
    statuses = []
    with workspace.store.unit() as db:
        for p in projects:
            which = {"server": p.server, "project": p.id}
            here = "server = $server AND project_id = $project"
            tasks = db.execute(
                f"""SELECT count(*) FROM label_studio_tasks t WHERE {here}
                      AND NOT EXISTS (SELECT 1 FROM label_studio_deletions d
                                      WHERE d.server = t.server AND d.kind = 'task' AND d.id = t.task_id)""",
                which,
            ).fetchone()
            votes = db.execute(
                f"""SELECT j.answer, count(*)
                    FROM label_studio_revisions r JOIN standing_judgments j USING (judgment_id)
                    WHERE {here} GROUP BY j.answer ORDER BY 2 DESC, 1""",
                which,
            ).fetchall()
            people = db.execute(
                f"""SELECT count(DISTINCT r.task_id), count(DISTINCT j.annotator_id), median(j.seconds)
                    FROM label_studio_revisions r JOIN standing_judgments j USING (judgment_id) WHERE {here}""",
                which,
            ).fetchone()
            withdrawn = db.execute(
                f"SELECT count(*) FROM label_studio_revisions WHERE {here} AND standing <> 'current'", which
            ).fetchone()
            notes = db.execute(
                f"""SELECT note, count(*) FROM label_studio_revisions
                    WHERE {here} AND standing = 'current' AND note IS NOT NULL GROUP BY note ORDER BY 2 DESC, 1""",
                which,
            ).fetchall()
            answered, voters, seconds = people or (0, 0, None)
            statuses.append(
                ProjectStatus(
                    p.server,
                    p.id,
                    p.title,
                    p.config.template,
                    int(tasks[0]) if tasks else 0,
                    answered,
                    voters,
                    dict(votes),
                    int(withdrawn[0]) if withdrawn else 0,
                    dict(notes),
                    seconds,
                )
            )
    return statuses, sum(1 for _ in spool_folder(workspace).glob("event-*.json"))
