"""Known answers and adjudication of ratings, steps and rankings: in the service, in exports, after a loss of files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from assay_command import Run

from assay.annotation.vote_journal import fold
from assay.backups.rebuild import rebuild
from assay.data.snapshots import Selection
from assay.errors import BadInputError
from assay.store.records import Decision, insert_decisions
from assay.workspace import Workspace
from assay_pipelines.annotation.ledger import FILE
from assay_pipelines.annotation.quality.annotators import annotator_quality, own_figures
from assay_pipelines.annotation.question_types.question_type import Submission
from assay_pipelines.annotation.question_types.rating import AnnotationScale
from assay_pipelines.annotation.queues import get_queue, queue_progress
from assay_pipelines.annotation.recovery import open_ledger
from assay_pipelines.annotation.service import AnnotationService
from assay_pipelines.annotation.tasks import TaskQuestion, create_task_queue, tasks_of
from assay_pipelines.annotation.votes import queue_votes
from assay_pipelines.importers.run import open_import, run_import
from assay_pipelines.importers.source import ImportConfig


@pytest.fixture
def answers(workspace: Workspace, tmp_path: Path) -> Workspace:
    """Eight prompts with three answers of two steps each."""
    path = tmp_path / "answers.jsonl"
    rows = [
        {"prompt": f"{n}?", "responses": [f"{n} {k}.\n\nSo {k}." for k in range(3)], "scores": [1, 2, 3]}
        for n in range(8)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run_import(workspace, open_import(workspace, ImportConfig(str(path))))
    return workspace


def asked(workspace: Workspace, name: str, question: str, limit: int | None = None, **settings: Any) -> TaskQuestion:
    task = TaskQuestion(question)
    tasks = tasks_of(workspace, task, Selection(), limit=limit)
    create_task_queue(workspace, name, tasks, task, run_id=None, **settings)
    return task


def answer_all(workspace: Workspace, queue: str, person: str, respond: Callable[[Any], dict[str, Any]]) -> int:
    with AnnotationService(workspace) as service:
        number = 0
        while (item := service.next(queue, person)) is not None:
            service.cast(item.ticket, person, Submission(response=respond(item)))
            number += 1
    return number


def rating(value: int) -> Callable[[Any], dict[str, Any]]:
    return lambda _: {"ratings": {"overall": value}}


DISAGREEING: dict[str, list[dict[str, Any]]] = {
    "rating": [{"ratings": {"overall": 1}}, {"ratings": {"overall": 4}}, {"ratings": {"overall": 3}}],
    "steps": [{"steps": [1, 1]}, {"steps": [1, -1]}, {"steps": [-1]}],
}


@pytest.mark.parametrize("question", ["rating", "steps", "ranking"])
def test_what_people_contradict_each_other_on_is_adjudicated(answers: Workspace, question: str) -> None:
    asked(answers, "q", question, limit=2, overlap=2)
    ranks = ({0: [1, 2, 3]}, {0: [3, 2, 1]}, {0: [1, 2, 3]})

    def say(person: int) -> Callable[[Any], dict[str, Any]]:
        def respond(item: Any) -> dict[str, Any]:
            if question != "ranking":
                return DISAGREEING[question][person]
            return {"ranks": ranks[person][0][:: 1 if item.shown_order == "AB" else -1]}

        return respond

    for person, name in enumerate(("ann", "ben")):
        assert answer_all(answers, "q", name, say(person)) == 2
    assert queue_progress(answers, "q").conflicts == 2
    with AnnotationService(answers) as service:
        assert service.next_conflict("q", "ann") is None, "who answered does not adjudicate"
        given = service.next_conflict("q", "dora")
        assert given is not None
        with pytest.raises(BadInputError, match="after one's own"):
            service.votes_on(given)
        receipt = service.cast(given.ticket, "dora", Submission(response=say(2)(given)))
        assert len(service.votes_on(given)) == 2
    fold(answers)
    assert queue_progress(answers, "q").conflicts == 1
    table = {"rating": "response_judgments", "steps": "step_judgments", "ranking": "judgments"}[question]
    with answers.store.unit() as db:
        (number,) = db.execute(
            f"SELECT count(*) FROM {table} JOIN annotators USING (annotator_id) "
            "WHERE name = 'dora' AND origin = 'adjudication:blind/q/1'"
        ).fetchall()[0]
        assert number == {"rating": 1, "steps": 1, "ranking": 3}[question]
        assert db.execute("SELECT role FROM queue_answers WHERE answer_id = ?", [receipt.judgment_id]).fetchone() == (
            "adjudication:blind",
        )
    before = queue_progress(answers, "q")
    for name in (FILE, f"{FILE}-wal", f"{FILE}-shm"):
        (answers.root / name).unlink(missing_ok=True)
    answers.store.path.unlink()
    rebuild(answers)
    assert queue_progress(answers, "q") == before
    with AnnotationService(answers) as service:
        assert service.undo("q", "dora", adjudication=True) is not None
    fold(answers)
    with answers.store.unit() as db:
        standing = db.execute(f"SELECT count(*) FROM {table} j JOIN withdrawn_judgments USING (judgment_id)").fetchone()
    assert standing == (number,)
    assert queue_progress(answers, "q").conflicts == 2


def test_an_export_has_the_adjudicated_label(answers: Workspace, assay: Run, tmp_path: Path) -> None:
    asked(answers, "q", "rating", limit=2, overlap=2)
    answer_all(answers, "q", "ann", rating(1))
    answer_all(answers, "q", "ben", rating(5))
    with AnnotationService(answers) as service:
        given = service.next_conflict("q", "dora")
        assert given is not None
        service.cast(given.ticket, "dora", Submission(response={"ratings": {"overall": 2}}))
    fold(answers)
    out = tmp_path / "ratings.jsonl"
    code, _, problem = assay("data", "export", str(out), "--format", "ratings", "--workspace", answers.root)
    assert code == 0, problem
    values = [json.loads(line)["ratings"].get("overall") for line in out.read_text().splitlines()]
    assert sorted(value for value in values if value is not None) == [2.0, 3.0]


def test_people_are_checked_by_what_earlier_queues_settled(answers: Workspace) -> None:
    asked(answers, "settled", "rating", limit=12, overlap=2)
    answer_all(answers, "settled", "ann", rating(3))
    answer_all(answers, "settled", "ben", rating(4))
    fold(answers)
    task = TaskQuestion("rating")
    with answers.store.unit() as db:
        rated = {row[0] for row in db.execute("SELECT DISTINCT item FROM queue_answers").fetchall()}
    others = [one for one in tasks_of(answers, task, Selection()) if one.responses[0] not in rated]
    create_task_queue(answers, "next", others, task, run_id=None, overlap=2, gold_checks=0.3)
    queue = get_queue(answers, "next")
    assert (queue.items, queue.checks) == (12, 5)
    assert answer_all(answers, "next", "cleo", rating(4)) > 12
    assert answer_all(answers, "next", "dan", rating(1)) > 12, "gold checks are asked of everybody"
    with open_ledger(answers) as ledger:
        votes = queue_votes(ledger, "next")
        own = own_figures(ledger, "next", "cleo")
    people = {one.annotator: one for one in annotator_quality(votes)}
    assert people["cleo"].checks == people["cleo"].passed > 0
    assert own.votes in (0, 20)
    assert sum(vote.check_label is not None and not vote.passed for vote in votes) == people["dan"].checks
    again = create_task_queue(answers, "next", others, task, run_id=None, overlap=2, gold_checks=0.3)
    assert (again.items, again.checks) == (12, 5)
    with pytest.raises(BadInputError, match="no known answer"):
        create_task_queue(answers, "spans", [], TaskQuestion("spans"), run_id=None, gold_checks=0.1)


def test_checks_are_of_the_same_scales_and_project(answers: Workspace) -> None:
    asked(answers, "settled", "rating", limit=6, overlap=2)
    answer_all(answers, "settled", "ann", rating(3))
    answer_all(answers, "settled", "ben", rating(3))
    fold(answers)
    other = TaskQuestion("rating", (AnnotationScale("truth"),))
    tasks = tasks_of(answers, other, Selection(), limit=3, seed=1)
    assert create_task_queue(answers, "other", tasks, other, run_id=None, gold_checks=0.3).checks == 0
    same = TaskQuestion("rating")
    more = [task for task in tasks_of(answers, same, Selection()) if task not in tasks][-3:]
    elsewhere = create_task_queue(answers, "away", more, same, run_id=None, gold_checks=0.3, project="another")
    assert elsewhere.checks == 0, "its people may not see what other projects were asked"
    assert create_task_queue(answers, "here", more, same, run_id=None, gold_checks=0.3).checks > 0


@pytest.mark.slow
def test_rankings_are_resolved_by_their_pairs(answers: Workspace, assay: Run) -> None:
    """Ann and Ben agree on one prompt and contradict each other on the other, where Dora decides."""
    asked(answers, "q", "ranking", limit=2, overlap=2)
    with AnnotationService(answers) as service:
        first = service.next("q", "ann")
        assert first is not None
        agreed = first.content.prompt
        service.release(first)

    def say(here: list[int], there: list[int]) -> Callable[[Any], dict[str, Any]]:
        def respond(item: Any) -> dict[str, Any]:
            return {
                "ranks": (here if item.content.prompt == agreed else there)[:: 1 if item.shown_order == "AB" else -1]
            }

        return respond

    def resolve(*arguments: str) -> dict[str, Any]:
        code, out, problem = assay("queue", "resolve", "q", "--json", *arguments, "--workspace", answers.root)
        assert code == 0, problem
        return json.loads(out.splitlines()[0])  # type: ignore[no-any-return]

    assert answer_all(answers, "q", "ann", say([1, 1, 2], [1, 2, 3])) == 2
    report = resolve("--dry-run")
    assert (report["items"], report["gold"], report["waiting"]) == (6, 0, 6)
    assert answer_all(answers, "q", "ben", say([1, 1, 2], [2, 1, 3])) == 2
    report = resolve()
    figures = ("items", "gold", "ties", "adjudicated", "conflicts", "waiting", "new")
    assert tuple(report[name] for name in figures) == (6, 5, 1, 0, 1, 0, 5)
    with AnnotationService(answers) as service:
        given = service.next_conflict("q", "dora")
        assert given is not None
        assert given.content.prompt != agreed
        service.cast(given.ticket, "dora", Submission(response=say([], [3, 1, 2])(given)))
    report = resolve()
    assert tuple(report[name] for name in figures) == (6, 6, 1, 1, 0, 0, 1)
    with answers.store.unit() as db:
        counted = db.execute(
            """SELECT rule, count(*)
               FROM (SELECT rule, comparison_id, unnest(basis).ref AS ref FROM current_decisions) d
               SEMI JOIN standing_judgments j ON j.judgment_id = d.ref AND j.comparison_id = d.comparison_id
               GROUP BY 1 ORDER BY 1"""
        ).fetchall()
        insert_decisions(db, [Decision(_first(db, "people_majority"), "discarded", None, "clean", "by hand")], None)
    assert counted == [("adjudicated", 3), ("people_majority", 10)]
    assert resolve()["overtaken"] == 1
    with AnnotationService(answers) as service:
        assert service.undo("q", "dora", adjudication=True) is not None
    report = resolve()
    assert (report["gold"], report["revoked"], report["conflicts"]) == (4, 1, 1)


def _first(db: Any, rule: str) -> str:
    rows = db.execute("SELECT min(comparison_id) FROM current_decisions WHERE rule = ?", [rule]).fetchall()
    return str(rows[0][0])
