"""Which task on the server is which comparison here, and in which order it shows the two responses.

The order is read off the texts of the task, so that the tasks of an interrupted push are used by the next one.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from assay.store.database import Connection
from assay.workspace import Workspace
from assay_pipelines.annotation.label_studio.connection import iter_tasks
from assay_pipelines.annotation.label_studio.project import Project

if TYPE_CHECKING:
    from label_studio_sdk import LabelStudio


def take_up_tasks(workspace: Workspace, client: "LabelStudio", project: Project, run_id: str | None) -> int:
    """Record the tasks of ours that the server has beyond the last one recorded here; returns how many there were.

    Each page is durable, and every push and pull begins with this: below the last one recorded nothing can be missing.
    """
    with workspace.store.unit() as db:
        row = db.execute(
            "SELECT coalesce(max(task_id), 0) FROM label_studio_tasks WHERE server = ? AND project_id = ?",
            [project.server, project.id],
        ).fetchone()
    after, noted = (int(row[0]) if row else 0), 0
    for page in iter_tasks(client, project.server, project.id, ("data",), after=after):
        with workspace.store.unit() as db:
            noted += adopt_tasks(db, project, page, run_id)
    return noted


def adopt_tasks(db: Connection, project: Project, tasks: Iterable[Mapping[str, Any]], run_id: str | None) -> int:
    """Record the tasks that show a comparison of this workspace and are not recorded yet; returns how many were new.

    A task that shows anything else belongs to another project and is left alone.
    """
    offered = {int(task["id"]): task["data"] for task in tasks if isinstance(task.get("data"), Mapping)}
    pairs = {
        row[0]
        for row in db.execute(
            "SELECT task_id FROM label_studio_tasks WHERE server = $server AND list_contains($ids, task_id)",
            {"server": project.server, "ids": list(offered)},
        ).fetchall()
    }
    fresh = {task: data for task, data in offered.items() if task not in pairs}
    texts = _texts(db, {str(data.get("comparison_id")) for data in fresh.values()})
    rows = []
    for task, data in fresh.items():
        comparison = str(data.get("comparison_id"))
        responses = (data.get("answer1"), data.get("answer2"))
        order = {texts.get(comparison): "AB", _reversed(texts.get(comparison)): "BA"}.get(responses)
        if order is not None:
            rows.append((project.server, project.id, task, comparison, order, run_id))
    if rows:
        db.executemany(
            """INSERT INTO label_studio_tasks (server, project_id, task_id, comparison_id, shown_order, run_id)
               VALUES (?, ?, ?, ?, ?, ?)""",
            rows,
        )
    return len(rows)


def _texts(db: Connection, comparisons: Iterable[str]) -> dict[str, tuple[str, str]]:
    rows = db.execute(
        """SELECT c.comparison_id, a.content, b.content FROM comparisons c
           JOIN responses a ON a.response_id = c.response_a JOIN responses b ON b.response_id = c.response_b
           WHERE list_contains($ids, c.comparison_id)""",
        {"ids": list(comparisons)},
    ).fetchall()
    return {comparison: (a, b) for comparison, a, b in rows}


def _reversed(pair: tuple[str, str] | None) -> tuple[str, str] | None:
    return (pair[1], pair[0]) if pair is not None else None
