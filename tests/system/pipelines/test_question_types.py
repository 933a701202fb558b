"""Question types: the two that are built in, and one of one's own from a file, through every layer."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from annotating import skip, vote

from assay.annotation.vote_journal import fold
from assay.cli.main import main
from assay.domain import ANSWERS
from assay.errors import BadInputError
from assay.workspace import Workspace
from assay_pipelines.annotation.items import QueueItem
from assay_pipelines.annotation.question_types.pair import placed
from assay_pipelines.annotation.question_types.question_type import (
    QUESTION_TYPES,
    TASKS,
    Submission,
    question_type,
    record_submission,
)
from assay_pipelines.annotation.queues import create_queue
from assay_pipelines.annotation.service import AnnotationService
from assay_web.annotate.items import item_reply

Fill = Callable[[int], list[str]]

GRADES = '''
from assay_pipelines.annotation.question_types.question_type import Submission, VoteRecord
from assay.errors import BadInputError


class Grades:
    """A grade from 1 to 5 for each response; the better grade wins, the difference is the strength."""

    component = "Grades"

    def words(self):
        return {"grades": ["poor", "fair", "good", "very good", "excellent"]}

    def form(self):
        return None

    def record(self, submission, item, order, vote):
        grades = [submission.response.get(place) for place in ("first", "second")]
        if any(grade not in range(1, 6) for grade in grades):
            raise BadInputError("a grade is 1 to 5", field="response")
        a, b = grades if order == "AB" else grades[::-1]
        if a == b:
            return VoteRecord("tie")
        return VoteRecord("A" if a > b else "B", min(3, abs(a - b)))
'''


def test_the_words_of_pair_voting_cover_every_answer() -> None:
    words = question_type("pair").words()
    names = {option["name"] for option in words["choices"]} | {words["skip"]["name"]}
    assert {placed(answer, order) for answer in ANSWERS for order in ("AB", "BA")} == names
    keys = [option["key"] for option in (*words["choices"], words["skip"])]
    assert len(set(keys)) == len(keys)
    form = question_type("pair").form()
    assert form is not None
    assert set(dict(form.keys())) >= set(keys)
    assert set(QUESTION_TYPES.names()) == {"pair", "principles", *TASKS}


@pytest.mark.parametrize(
    ("submission", "order", "expected"),
    [
        (Submission(choice="first", strength=2), "AB", ("A", 2, None)),
        (Submission(choice="first", strength=2), "BA", ("B", 2, None)),
        (Submission(choice="both_bad"), "BA", ("both_bad", None, None)),
        (Submission(skip="broken", rationale="no text"), "AB", ("skip", None, "broken: no text")),
    ],
)
def test_pair_answers_become_judgments(
    submission: Submission, order: str, expected: tuple[str, int | None, str | None]
) -> None:
    vote = record_submission(submission, {"a": "x", "b": "y"}, order)  # type: ignore[arg-type]
    assert (vote.answer, vote.strength, vote.rationale) == expected


@pytest.mark.parametrize(
    ("submission", "message"),
    [
        (Submission(), "a choice or a reason"),
        (Submission(choice="first", skip="later"), "a choice or a reason"),
        (Submission(choice="third"), "unknown choice 'third'"),
        (Submission(skip="tired"), "unknown reason 'tired'"),
    ],
)
def test_wrong_submissions_are_refused(submission: Submission, message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        record_submission(submission, {}, "AB")


def test_a_question_type_of_ones_own_from_a_file(
    workspace: Workspace,
    fill_comparisons: Fill,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    fill_comparisons(2)
    (tmp_path / "grades.py").write_text(GRADES)
    monkeypatch.chdir(tmp_path)
    arguments = ["queue", "create", "graded", "--gold-checks", "0", "-w", str(workspace.root), "--json"]
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--question", "grades.py:Grades"])
    assert ended.value.code == 0, capsys.readouterr().err
    monkeypatch.chdir("/")  # the queue keeps the whole path
    with AnnotationService(workspace) as service:
        item = service.next("graded", "ann")
        assert item is not None
        assert item_reply(item).component == "Grades"  # the page asks types that no package registers, too
        with pytest.raises(BadInputError, match="a grade is 1 to 5"):
            service.cast(item.ticket, "ann", Submission(response={"first": 9, "second": 1}))
        receipt = service.cast(item.ticket, "ann", Submission(response={"first": 5, "second": 3}))
        assert receipt.answer == item.shown_order[0]
    fold(workspace)
    with workspace.store.unit() as db:
        assert db.execute("SELECT answer, strength FROM queue_votes").fetchall() == [(receipt.answer, 2)]
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(["annotate", "graded", "--as", "bob", "-w", str(workspace.root)])
    assert ended.value.code != 0
    assert "use the web page" in capsys.readouterr().err


def test_an_unknown_question_type_is_refused_when_the_queue_is_made(
    workspace: Workspace, fill_comparisons: Fill
) -> None:
    (comparison,) = fill_comparisons(1)
    with pytest.raises(BadInputError, match="did you mean pair"):
        create_queue(workspace, "q", [QueueItem(comparison, question="pairs")], gold_checks=0, run_id=None)


def test_items_without_a_question_type_are_pairs(workspace: Workspace, fill_comparisons: Fill) -> None:
    """The payload of a pair is as it always was, so that queues of older versions go on."""
    comparisons = fill_comparisons(2)
    assert "question" not in QueueItem(comparisons[0]).payload()
    create_queue(workspace, "q", [QueueItem(c) for c in comparisons], gold_checks=0, run_id=None)
    with workspace.store.unit() as db:
        payloads = [json.loads(row[0]) for row in db.execute("SELECT payload FROM queue_items").fetchall()]
    assert all("question" not in payload for payload in payloads)
    with AnnotationService(workspace) as service:
        first = service.next("q", "ann")
        assert first is not None
        assert first.content.question == "pair"
        assert vote(service, first, "tie").answer == "tie"
        second = service.next("q", "ann")
        assert second is not None
        assert skip(service, second, "later").answer == "skip"
