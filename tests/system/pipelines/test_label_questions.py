"""Ratings, step labels, spans and rankings by people: asked in a terminal, journalled, counted, taken back,
recovered."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.annotation.vote_journal import fold
from assay.backups.rebuild import rebuild
from assay.cli.main import main
from assay.errors import BadInputError
from assay.workspace import Workspace
from assay_pipelines.annotation.ledger import FILE
from assay_pipelines.annotation.question_types.question_type import Submission
from assay_pipelines.annotation.queues import queue_progress
from assay_pipelines.annotation.service import AnnotationService
from assay_pipelines.importers.run import open_import, run_import
from assay_pipelines.importers.source import ImportConfig

Command = Callable[..., str]
STEPS = "First, 2 + 2 = 4.\n\nThen 4 + 1 = 6.\n\nSo it is 6."


@pytest.fixture
def assay(workspace: Workspace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    def run(*arguments: str, keys: str = "", code: int = 0) -> str:
        monkeypatch.setattr(sys, "stdin", io.StringIO(keys))
        with pytest.raises(SystemExit) as ended:
            main([*arguments, "--workspace", str(workspace.root)])
        printed = capsys.readouterr()
        assert int(ended.value.code or 0) == code, printed.err
        return printed.out + printed.err

    return run


@pytest.fixture
def responses(workspace: Workspace, tmp_path: Path) -> list[str]:
    """Three answers to one prompt, of which nothing is said but a score."""
    path = tmp_path / "answers.jsonl"
    texts = [STEPS, "Five, I think.", "It is 5."]
    path.write_text(json.dumps({"prompt": "2 + 2 + 1?", "responses": texts, "scores": [1, 2, 3], "id": "a-1"}) + "\n")
    run_import(workspace, open_import(workspace, ImportConfig(str(path))))
    return texts


def rows(workspace: Workspace, query: str) -> list[tuple[Any, ...]]:
    with workspace.store.unit() as db:
        return db.execute(query).fetchall()


RATED = """SELECT content, split_part(name, '/', -1), aspect, value, low, high FROM standing_response_judgments
           JOIN responses USING (response_id) JOIN annotators USING (annotator_id) WHERE kind = 'human' ORDER BY ALL"""
MARKED = """SELECT name, step, substring(content, start + 1, "end" - start), label, value FROM standing_step_judgments
            JOIN responses USING (response_id) JOIN annotators USING (annotator_id) WHERE kind = 'human' ORDER BY 1,
            start"""


def test_ratings_from_the_keys_to_agreement(workspace: Workspace, assay: Command, responses: list[str]) -> None:
    assay(
        "queue",
        "create",
        "rate",
        "--question",
        "rating",
        "--rate",
        "helpfulness",
        "--rate",
        "truth:0-3",
        "--overlap",
        "2",
    )
    assert "3 votes" in assay("annotate", "rate", "--as", "ann", keys="5 3 9 4 z 4 2 1 - q")
    said = rows(workspace, RATED)
    assert len(said) == 6
    assert {row[1:] for row in said} >= {("ann", "helpfulness", 5.0, 1.0, 5.0), ("ann", "truth", 3.0, 0.0, 3.0)}
    assert [row[3] for row in said].count(None) == 1
    assay("annotate", "rate", "--as", "ben", keys="5 3 4 2 2 1")
    assert queue_progress(workspace, "rate").done == 3
    agreement = json.loads(assay("queue", "agreement", "rate", "--json").splitlines()[0])["labels"]
    figures = {a["what"]: (a["metric"], a["items"], a["labels"], a["percent"]) for a in agreement}
    assert figures == {"helpfulness": ("interval", 3, 6, 2 / 3), "truth": ("interval", 2, 5, 1.0)}
    assert "nothing to resolve" in assay("queue", "resolve", "rate", code=2)
    with workspace.store.unit() as db:
        (judgment,) = db.execute(
            "SELECT judgment_id FROM standing_response_judgments WHERE origin LIKE 'queue/%'"
        ).fetchall()[0]
    assert "queue rate" in assay("lineage", judgment)
    counts = json.loads(assay("data", "stats", "--json").splitlines()[0])
    assert counts["ratings"]["helpfulness by human"] == 6


def test_a_first_wrong_step_and_a_span(
    workspace: Workspace, assay: Command, responses: list[str], tmp_path: Path
) -> None:
    (response,) = rows(workspace, "SELECT response_id FROM responses WHERE contains(content, 'First')")
    (tmp_path / "ids.txt").write_text(response[0] + "\n")
    ids = ("--ids", str(tmp_path / "ids.txt"))
    assay("queue", "create", "steps", "--question", "steps", *ids)
    assay("annotate", "steps", "--as", "ann", keys="y n d")
    assert rows(workspace, MARKED) == [
        ("ann", 0, "First, 2 + 2 = 4.", None, 1.0),
        ("ann", 1, "Then 4 + 1 = 6.", None, -1.0),
    ]
    assay("queue", "create", "spans", "--question", "spans", "--span-label", "slip", "--span-label", "style", *ids)
    assay("annotate", "spans", "--as", "ben", keys="1\n5 is right\n1= 6\n2So it is\nd")
    assay("queue", "create", "unmarked", "--question", "spans", *ids)
    assay("annotate", "unmarked", "--as", "ben", keys="d")
    assert "nothing was labelled" in assay("queue", "agreement", "unmarked")
    problem = assay("queue", "create", "other", "--question", "steps", "--source", "answer", code=2)
    assert "no source 'answer'; there are: 'answers'" in problem
    assert [row[2:4] for row in rows(workspace, MARKED) if row[0] == "ben"] == [("= 6", "slip"), ("So it is", "style")]


def test_a_ranking_is_the_judgments_of_all_its_pairs(
    workspace: Workspace, assay: Command, responses: list[str]
) -> None:
    assay("queue", "create", "rank", "--question", "ranking", "--overlap", "2")
    with AnnotationService(workspace) as service:
        for name in ("ann", "ben"):
            given = service.next("rank", name)
            assert given is not None
            shown = given.content.responses
            ranks = [1 if text == "It is 5." else 2 for text in shown]
            service.cast(given.ticket, name, Submission(response={"ranks": ranks}))
    fold(workspace)
    pairs = rows(
        workspace,
        """SELECT n.name, a.content, b.content, j.answer FROM standing_judgments j JOIN annotators n USING
        (annotator_id)
           JOIN comparisons c USING (comparison_id) JOIN responses a ON a.response_id = c.response_a
           JOIN responses b ON b.response_id = c.response_b WHERE n.kind = 'human'""",
    )
    assert len(pairs) == 6
    for _, a, b, answer in pairs:
        expected = "A" if a == "It is 5." else "B" if b == "It is 5." else "tie"
        assert answer == expected
    (order,) = json.loads(assay("queue", "agreement", "rank", "--json").splitlines()[0])["labels"]
    assert (order["what"], order["items"], order["percent"]) == ("order", 3, 1.0)


@pytest.mark.slow
def test_an_answer_that_is_taken_back_takes_its_labels_back(
    workspace: Workspace, assay: Command, responses: list[str]
) -> None:
    assay("queue", "create", "rate", "--question", "rating")
    with AnnotationService(workspace) as service:
        given = service.next("rate", "ann")
        assert given is not None
        submission = Submission(response={"ratings": {"overall": 2}}, rationale="short")
        receipt = service.cast(given.ticket, "ann", submission)
        assert service.cast(given.ticket, "ann", submission).repeated
        with pytest.raises(BadInputError, match="another vote of yours"):
            service.cast(given.ticket, "ann", Submission(response={"ratings": {"overall": 3}}, rationale="short"))
        fold(workspace)
        again = service.undo("rate", "ann")
        assert again is not None
        service.cast(again.ticket, "ann", Submission(response={"ratings": {"overall": 4}}))
        other = service.next("rate", "ann")
        assert other is not None
        service.cast(other.ticket, "ann", Submission(skip="not_for_me"))
    assert receipt.answer == "answered"
    fold(workspace)
    assert [row[3] for row in rows(workspace, RATED)] == [4.0]
    assert rows(workspace, "SELECT count(*) FROM response_judgments WHERE origin LIKE 'queue/%'") == [(2,)]
    assert queue_progress(workspace, "rate").done == 1
    progress = queue_progress(workspace, "rate")

    for name in (FILE, f"{FILE}-wal", f"{FILE}-shm"):  # the operational file is lost, and the store with it
        (workspace.root / name).unlink(missing_ok=True)
    workspace.store.path.unlink()
    rebuild(workspace)
    assert [row[3] for row in rows(workspace, RATED)] == [4.0]
    assert queue_progress(workspace, "rate") == progress


@pytest.mark.parametrize(
    ("question", "response", "message"),
    [
        ("rating", {"ratings": {"overall": 6}}, "is not from 1 to 5"),
        ("rating", {"ratings": {"overall": float("nan")}}, "is not from 1 to 5"),
        ("rating", {}, "ratings are of overall"),
        ("steps", {"steps": [1]}, "labels for"),
        ("steps", {"steps": [2]}, "a step is 1"),
        ("spans", {"spans": [{"start": 3, "end": 9999, "label": "error"}]}, "from one character"),
        ("spans", {"spans": [{"start": 0, "end": 1, "label": "other"}]}, "a span is one of error"),
        ("ranking", {"ranks": [1, 2]}, "a rank from 1 for each of the 3"),
    ],
)
def test_an_answer_that_makes_no_sense_is_refused(
    workspace: Workspace, assay: Command, responses: list[str], question: str, response: dict[str, Any], message: str
) -> None:
    ids = rows(workspace, "SELECT response_id FROM responses WHERE contains(content, 'First')")
    path = workspace.root / "ids.txt"
    path.write_text(ids[0][0] + "\n")
    named = () if question == "ranking" else ("--ids", str(path))
    assay("queue", "create", "q", "--question", question, *named)
    with AnnotationService(workspace) as service:
        given = service.next("q", "ann")
        assert given is not None
        with pytest.raises(BadInputError, match=message):
            service.cast(given.ticket, "ann", Submission(response=response))
