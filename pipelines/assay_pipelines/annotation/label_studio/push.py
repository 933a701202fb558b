"""Comparisons as tasks of a Label Studio project, in a random order of responses, judges' opinions as predictions."""

import fcntl
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.browsing.candidates import Candidate, iter_candidates
from assay.data.snapshots import CATEGORIES, POOLS, Selection
from assay.domain import Prompt, ShownOrder, swap_answer
from assay.errors import BadInputError, BusyError
from assay.runs.progress_bar import Advance, silent
from assay.workspace import Workspace
from assay_pipelines.annotation.label_studio.config import CONTROL, ProjectConfig, choice_for
from assay_pipelines.annotation.label_studio.connection import said_clearly
from assay_pipelines.annotation.label_studio.project import Project, check_project
from assay_pipelines.annotation.label_studio.tasks import take_up_tasks

if TYPE_CHECKING:
    from label_studio_sdk import LabelStudio

BATCH = 100  #: tasks in one request
JUDGES = ("llm", "reward_model", "verifier", "simulated")


@dataclass(frozen=True)
class PushReport:
    """`known`: there already, or deleted there by a person, and not sent again."""

    seen: int = 0
    pushed: int = 0
    known: int = 0
    predictions: int = 0
    taken_up: int = 0  #: found on the server, from a push that was interrupted


def push(
    workspace: Workspace,
    client: "LabelStudio",
    project: Project,
    selection: Selection,
    run_id: str | None,
    *,
    comparisons: Sequence[str] = (),
    limit: int | None = None,
    predictions: bool = False,
    on_progress: Advance = silent,
) -> PushReport:
    """Make a task of each comparison of the selection, or of those named, that has none yet in the project.

    One push per workspace at a time (BusyError). Stopped at any point it is finished by running it again.
    """
    if limit is not None and limit < 1:
        raise BadInputError("must be at least 1", field="limit")
    counts = dict.fromkeys(PushReport.__dataclass_fields__, 0)
    with _alone(workspace):
        check_project(client, project)
        counts["taken_up"] = take_up_tasks(workspace, client, project, run_id)
        pushed = _pushed_already(workspace, project)
        pending = set(comparisons)
        # comparisons that are named are pushed whatever pool they are in
        for page in iter_candidates(workspace, Selection(pools=POOLS) if pending else selection):
            chosen = [c for c in page if not pending or c.comparison_id in pending]
            counts["seen"] += len(chosen)
            here = sum(c.comparison_id in pushed for c in chosen)
            counts["known"] += here
            on_progress(here)
            new = [c for c in chosen if c.comparison_id not in pushed]
            if limit is not None:
                new = new[: limit - counts["pushed"]]
            for start in range(0, len(new), BATCH):
                batch = new[start : start + BATCH]
                predicted = _judged(workspace, batch) if predictions else {}
                tasks = [_task(c, project, predicted.get(c.comparison_id, ())) for c in batch]
                with said_clearly(project.server, f"project {project.id}"):
                    client.projects.import_tasks(id=project.id, request=tasks)
                noted = take_up_tasks(workspace, client, project, run_id)
                counts["pushed"] += noted
                counts["predictions"] += sum(len(task["predictions"]) for task in tasks)
                on_progress(len(batch))
            if limit is not None and counts["pushed"] >= limit:
                break
    return PushReport(**counts)


def shown_order(project_id: int, config: ProjectConfig, comparison_id: str) -> ShownOrder:
    """A coin of the project's seed: neither a person nor a judge can tell from the place which response is which."""
    return "AB" if random.Random(f"{config.seed}/{project_id}/{comparison_id}").random() < 0.5 else "BA"


def count_comparisons(workspace: Workspace, selection: Selection, comparisons: Sequence[str] = ()) -> int:
    """How many `push` would look at. Raises BadInputError for a comparison that is not in the workspace."""
    with workspace.store.unit() as db:
        if comparisons:
            rows = db.execute(
                "SELECT comparison_id FROM comparisons WHERE list_contains($ids, comparison_id)",
                {"ids": list(comparisons)},
            ).fetchall()
            if missing := sorted(set(comparisons) - {row[0] for row in rows}):
                raise BadInputError(f"no comparison {missing[0]!r} in this workspace", field="comparison")
            return len(rows)
        condition, values = selection.where()
        row = db.execute(
            f"SELECT count(*) FROM pools p LEFT JOIN {CATEGORIES} g ON g.prompt_id = p.prompt_id WHERE {condition}",
            values,
        ).fetchone()
    return int(row[0]) if row else 0


def _task(candidate: Candidate, project: Project, opinions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    order = shown_order(project.id, project.config, candidate.comparison_id)
    a, b = candidate.response_a, candidate.response_b
    predictions = [_prediction(project.config, order, judged) for judged in opinions]
    return {
        "data": {
            "prompt": prompt_text(candidate.prompt),
            "answer1": a if order == "AB" else b,
            "answer2": b if order == "AB" else a,
            "comparison_id": candidate.comparison_id,
        },
        "meta": {"shown_order": order},
        "predictions": [p for p in predictions if p is not None],
    }


def _prediction(config: ProjectConfig, order: ShownOrder, judged: Mapping[str, Any]) -> dict[str, Any] | None:
    """None where the template cannot say it: `pairwise` has no tie."""
    answer = judged["answer"] if order == "AB" else swap_answer(judged["answer"])
    control = CONTROL[config.template]
    if config.template == "pairwise":
        if answer not in ("A", "B"):
            return None
        result = {"type": "pairwise", "to_name": control, "value": {"selected": "left" if answer == "A" else "right"}}
    else:
        value = {"choices": [choice_for(answer, judged["strength"])]}
        result = {"type": "choices", "to_name": "prompt", "value": value}
    score = {"score": judged["confidence"]} if judged["confidence"] is not None else {}
    return {"model_version": judged["judge"], "result": [{"from_name": control, **result}], **score}


def prompt_text(prompt: Prompt) -> str:
    """One user turn as it is; a longer conversation with the roles in front."""
    if len(prompt) == 1 and prompt[0].role == "user":
        return prompt[0].text
    return "\n\n".join(f"{message.role.capitalize()}: {message.text}" for message in prompt)


def _judged(workspace: Workspace, batch: Sequence[Candidate]) -> dict[str, list[dict[str, Any]]]:
    """The newest standing answer of every judge, by comparison; a judge's single votes are left out."""
    with workspace.store.unit() as db:
        rows = db.execute(
            """SELECT j.comparison_id, n.name, j.answer, j.strength, j.confidence
               FROM standing_judgments j JOIN annotators n USING (annotator_id)
               WHERE list_contains($ids, j.comparison_id) AND list_contains($kinds, n.kind)
                 AND NOT starts_with(j.origin, 'vote/')
               QUALIFY row_number() OVER (PARTITION BY j.comparison_id, j.annotator_id
                                          ORDER BY j.created_at DESC, j.judgment_id) = 1
               ORDER BY j.comparison_id, n.kind, n.name""",
            {"ids": [c.comparison_id for c in batch], "kinds": list(JUDGES)},
        ).fetchall()
    judgments: dict[str, list[dict[str, Any]]] = {}
    for comparison, judge, answer, strength, confidence in rows:
        entry = {"judge": judge, "answer": answer, "strength": strength, "confidence": confidence}
        judgments.setdefault(comparison, []).append(entry)
    return judgments


def _pushed_already(workspace: Workspace, project: Project) -> set[str]:
    with workspace.store.unit() as db:
        rows = db.execute(
            "SELECT comparison_id FROM label_studio_tasks WHERE server = ? AND project_id = ?",
            [project.server, project.id],
        ).fetchall()
    return {row[0] for row in rows}


@contextmanager
def _alone(workspace: Workspace) -> Iterator[None]:
    """Two pushes at once would each find the other's tasks missing and double them."""
    handle = os.open(workspace.root / "label-studio.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BusyError("another push to Label Studio is running in this workspace", retry_after=10.0) from error
        yield
    finally:
        os.close(handle)
