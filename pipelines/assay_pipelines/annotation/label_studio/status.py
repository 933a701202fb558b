"""Where the Label Studio projects of a workspace stand, from the store alone: nothing is asked of the server."""

from __future__ import annotations

from dataclasses import dataclass

from assay.workspace import Workspace
from assay_pipelines.annotation.label_studio.project import list_projects
from assay_pipelines.annotation.label_studio.spool import spool_folder


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
