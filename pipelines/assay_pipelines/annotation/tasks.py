"""Queues of what is no pair: responses to rate or to mark, prompts whose responses are ranked.

Covers: choosing the items from a selection or by id, what each is asked with, recording them in the store. Leaves out:
asking and answers, which are those of all queues (`assay_pipelines.annotation.service`).
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from assay import ids
from assay.conversation.message import part_spans, response_text, stored_response, turn_spans
from assay.data.snapshots import CATEGORIES, Selection, why_empty
from assay.domain import Response
from assay.errors import BadInputError
from assay.store.database import Connection, registered
from assay.workspace import Workspace
from assay_pipelines.annotation.answer_match import consensus
from assay_pipelines.annotation.assignment import draw
from assay_pipelines.annotation.item_filters import FieldFilter, field_conditions
from assay_pipelines.annotation.question_types.question_type import TASKS
from assay_pipelines.annotation.question_types.ranking import MOST_RANKED
from assay_pipelines.annotation.question_types.rating import AnnotationScale
from assay_pipelines.annotation.queues import check_queue, find_queue, refuse_deleted
from assay_pipelines.annotation.recording import (
    DEFAULT_PROJECT,
    Overlap,
    Queue,
    checks_for,
    insert_queue,
    is_closed,
    record_event,
    same_settings,
)
from assay_pipelines.annotation.recovery import carry, open_ledger

_STEP = re.compile(r"\S(?:.*?\S)?(?=\s*\n\s*\n|\s*$)", re.DOTALL)
_LINE = re.compile(r"\S[^\n]*")


@dataclass(frozen=True, slots=True)
class TaskQuestion:
    """What the items of a queue are asked. `scales` for `rating`, `labels` for `spans`. `by_turns`: the steps are the
    assistant's turns, whatever labels there are."""

    name: str
    scales: tuple[AnnotationScale, ...] = (AnnotationScale("overall"),)
    labels: tuple[str, ...] = ("error",)
    reason: str = ""
    by_turns: bool = False

    def __post_init__(self) -> None:
        if self.name not in TASKS:
            raise BadInputError(
                f"{self.name!r} is no question on responses; one of {', '.join(TASKS)}", field="question"
            )
        if len({scale.aspect for scale in self.scales}) < len(self.scales):
            raise BadInputError("an aspect is rated twice", field="rate")


@dataclass(frozen=True, slots=True)
class QueueTask:
    """One item. `responses`: ids; of a ranking in the order drawn for it, else one. `steps`: [start, end] of each."""

    prompt_id: str
    responses: tuple[str, ...]
    steps: tuple[tuple[int, int], ...] = field(default=())

    def payload(self, question: TaskQuestion) -> dict[str, Any]:
        settings: dict[str, Any] = {}
        if question.name == "rating":
            settings["scales"] = [{"aspect": s.aspect, "low": s.low, "high": s.high} for s in question.scales]
        elif question.name == "spans":
            settings["labels"] = list(question.labels)
        elif question.name == "steps":
            settings |= {"steps": [list(step) for step in self.steps]} | (
                {"by_turns": True} if question.by_turns else {}
            )
        return {
            "question": question.name,
            "settings": settings,
            "prompt_id": self.prompt_id,
            "response_ids": list(self.responses),
            "reason": question.reason,
            "guideline": "",
            "attributes": None,
            "pre_verification": {},
            "opinions": [],
            "principles": [],
        }

    def item(self, question: TaskQuestion) -> str:
        return self.prompt_id if question.name == "ranking" else self.responses[0]


def create_task_queue(
    workspace: Workspace,
    name: str,
    tasks: Sequence[QueueTask],
    question: TaskQuestion,
    *,
    run_id: str | None,
    overlap: Overlap = 1,
    gold_checks: float = 0.0,
    guideline: str = "",
    seed: int = 0,
    lease_seconds: float = 1800.0,
    project: str | None = None,
) -> Queue:
    """Make the queue, or add the items that it lacks. `gold_checks`: share of what each person is shown that has a
    known answer: one that earlier queues' people agreed on, or that was adjudicated; fewer, or none, where there are
    few. Raises BadInputError as `create_queue`, and for gold checks on spans."""
    check_queue(name, overlap, gold_checks, lease_seconds)
    if gold_checks and question.name == "spans":
        raise BadInputError("marked words have no known answer to check people by", field="gold_checks")
    settings = (overlap, float(gold_checks), seed, float(lease_seconds), guideline)
    queue = Queue(name, "q-" + ids.digest(name), *settings, project or DEFAULT_PROJECT, False, run_id, 0, 0)
    with open_ledger(workspace) as ledger:
        refuse_deleted(ledger, name)
    rows = [(queue.id, task.item(question), 0.0, json.dumps(task.payload(question)), run_id) for task in tasks]
    with workspace.store.unit() as db:
        exists = same_settings(db, queue)
        if exists and is_closed(db, queue.id):
            raise BadInputError(f"queue {name!r} is closed: choose a new name, or `assay queue reopen {name}`")
        if not exists:
            insert_queue(db, queue)
        db.executemany("INSERT INTO queue_tasks VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING", rows)
        if gold_checks and (checks := _known_tasks(db, queue, question)):
            db.executemany("INSERT INTO queue_tasks VALUES (?, ?, 0, ?, ?) ON CONFLICT DO NOTHING", checks)
        record_event(db, queue.id, "extended" if exists else "created", {"items": len(rows)}, run_id)
    with open_ledger(workspace) as ledger:
        carry(workspace, ledger, name)
        return find_queue(ledger, name)


def _known_tasks(db: Connection, queue: Queue, question: TaskQuestion) -> list[tuple[str, str, str, str | None]]:
    """Rows of gold checks: tasks of the project's other queues, asked the same, so many that one person can do the
    whole queue."""
    scales = QueueTask("", ("",)).payload(question)["settings"].get("scales")
    answers: dict[str, list[tuple[bool, Any]]] = {}
    payloads: dict[str, Any] = {}
    for item, payload, role, labels in db.execute(_ANSWERED, {"question": question.name, "queue": queue.id}).fetchall():
        stored = json.loads(payload)
        if stored["settings"].get("scales") == scales:
            payloads[item] = stored
            answers.setdefault(item, []).append((role is not None, json.loads(labels)))
    settled: dict[str, Any] = {}
    for item, answered in answers.items():
        decided = [labels for adjudicated, labels in answered if adjudicated][-1:] or [labels for _, labels in answered]
        agreed = consensus(decided) if len(answered) > 1 else None
        if agreed is not None:
            settled[item] = {**payloads[item], "reason": question.reason, "known": agreed}
    counts = db.execute(
        """SELECT count(*) FILTER ((payload -> 'known') IS NULL), count(*) FILTER ((payload -> 'known') IS NOT NULL)
           FROM queue_tasks WHERE queue_id = ?""",
        [queue.id],
    ).fetchall()
    drawn = sorted(settled, key=lambda item: draw("check", queue.seed, item))
    return [
        (queue.id, item, json.dumps(settled[item]), queue.run_id)
        for item in drawn[: max(0, checks_for(counts[0][0], queue.gold_checks) - counts[0][1])]
    ]


# What people have answered in other queues of the project, of items that this one does not have.
_ANSWERED = """
    SELECT a.item, t.payload::VARCHAR, a.role, a.labels::VARCHAR
    FROM queue_answers a JOIN queues q ON q.name = a.queue
    JOIN queue_tasks t ON t.queue_id = q.queue_id AND t.item = a.item
    WHERE a.question = $question AND a.labels::VARCHAR <> '{}' AND (t.payload -> 'known') IS NULL
      AND q.project = (SELECT project FROM queues WHERE queue_id = $queue)
      AND a.answer_id NOT IN (SELECT judgment_id FROM withdrawn_judgments)
      AND a.item NOT IN (SELECT item FROM queue_tasks WHERE queue_id = $queue) ORDER BY a.created_at, a.answer_id"""


def tasks_of(
    workspace: Workspace,
    question: TaskQuestion,
    selection: Selection,
    *,
    alone: bool = True,
    limit: int | None = None,
    seed: int = 0,
    fields: Sequence[FieldFilter] = (),
) -> list[QueueTask]:
    """The responses of a selection's comparisons that `fields` let through, and with `alone` and no fields those that
    its sources have without one; of a ranking the prompts with two or more. A sample of `limit` drawn by hash. Raises
    BadInputError where there are none."""
    condition, values = selection.where()
    of_fields, field_values = field_conditions(fields)
    values |= field_values
    alone = alone and not fields
    sources = "source = ANY($only_sources)" if selection.sources else "true"
    categories = "category = ANY($only_categories)" if selection.categories else "true"
    if alone and selection.sources:
        values = {**values, "only_sources": list(selection.sources)}
    if alone and selection.categories:
        values = {**values, "only_categories": list(selection.categories)}
    lone = f"UNION SELECT response_id FROM response_origins WHERE {sources} AND {categories}" if alone else ""
    with workspace.store.unit() as db:
        db.execute(
            f"""CREATE OR REPLACE TEMP TABLE asked AS
                SELECT DISTINCT response_id FROM (
                    SELECT unnest([p.response_a, p.response_b]) AS response_id
                    FROM pools p LEFT JOIN {CATEGORIES} g ON g.prompt_id = p.prompt_id
                    WHERE {condition} AND {of_fields} {lone})""",
            values,
        )
        tasks = _tasks(db, question, seed, limit)
        db.execute("DROP TABLE asked")
        if not tasks:
            raise BadInputError(f"nothing matches, the queue would be empty: {why_empty(db, selection, alone=alone)}")
    return tasks


def named_tasks(
    workspace: Workspace, question: TaskQuestion, names: Sequence[str], *, seed: int = 0
) -> list[QueueTask]:
    """Of responses by id; for a ranking also of prompts. Raises BadInputError for one that the store does not hold."""
    import pyarrow as pa

    with workspace.store.unit() as db:
        with registered(db, "named", pa.table({"name": pa.array(list(names), pa.string())})):
            db.execute(
                """CREATE OR REPLACE TEMP TABLE asked AS
                   SELECT DISTINCT response_id FROM responses r JOIN named ON name IN (r.response_id, r.prompt_id)"""
            )
            missing = db.execute(
                "SELECT name FROM named WHERE name NOT IN (SELECT unnest([response_id, prompt_id]) FROM responses)"
            ).fetchall()
        tasks = _tasks(db, question, seed, None)
        db.execute("DROP TABLE asked")
    if missing:
        raise BadInputError(f"the store holds no response {missing[0][0]}", field="ids")
    return tasks


def _tasks(db: Connection, question: TaskQuestion, seed: int, limit: int | None) -> list[QueueTask]:
    """Of the responses in `asked`."""
    cut = "" if limit is None else f"LIMIT {int(limit)}"
    drawn = "sha256($draw || chr(31) || {})"
    if question.name == "ranking":
        rows = db.execute(
            f"""SELECT prompt_id, list(response_id ORDER BY {drawn.format("response_id")})[:{MOST_RANKED}]
                FROM asked JOIN responses USING (response_id) GROUP BY 1 HAVING count(*) > 1
                ORDER BY {drawn.format("prompt_id")} {cut}""",
            {"draw": str(seed)},
        ).fetchall()
        return [QueueTask(prompt, tuple(responses)) for prompt, responses in rows]
    rows = db.execute(
        f"""SELECT prompt_id, response_id, content, turns, marks
            FROM asked JOIN responses USING (response_id) LEFT JOIN (
                SELECT response_id, list([start, "end"] ORDER BY start, "end") AS marks
                FROM (SELECT DISTINCT response_id, start, "end" FROM step_judgments WHERE step IS NOT NULL)
                GROUP BY 1) USING (response_id)
            ORDER BY {drawn.format("response_id")} {cut}""",
        {"draw": str(seed)},
    ).fetchall()
    tasks = []
    for prompt, name, text, turns, marks in rows:
        steps: tuple[tuple[int, int], ...] = ()
        if question.name == "steps":
            response = stored_response(text, turns)
            steps = tuple(turn_spans(response)) if question.by_turns else steps_of(response, marks)
        tasks.append(QueueTask(prompt, (name,), steps))
    return tasks


def steps_of(response: Response, marked: Sequence[Sequence[int]] | None = None) -> tuple[tuple[int, int], ...]:
    """Where the steps of a response stand in its text view: those that it has labels of, else the paragraphs of each of
    its parts, else its lines."""
    if marked and all(one[1] <= other[0] for one, other in pairwise(marked)):
        return tuple((start, end) for start, end in marked)
    text = response_text(response)
    if not isinstance(response, str):
        return tuple(
            (start + match.start(), start + match.end())
            for start, end in part_spans(response)
            for match in _STEP.finditer(text[start:end])
        )
    paragraphs = [match.span() for match in _STEP.finditer(text)]
    return tuple(paragraphs if len(paragraphs) > 1 else [match.span() for match in _LINE.finditer(text)])
