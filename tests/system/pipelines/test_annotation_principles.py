"""Principles beside a vote: at the desk, through crashes and a lost file, on the command line."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest
from annotating import skip, vote, vote_canonically

from assay.annotation.vote_journal import JournalWriter, fold
from assay.cli.main import main
from assay.domain import Fulfilment, PrincipleAnswer
from assay.errors import BadInputError
from assay.store.records import Decision, insert_decisions
from assay.workspace import Workspace
from assay_pipelines.annotation.assignment import Assignment
from assay_pipelines.annotation.items import LONGEST_PRINCIPLE, MOST_PRINCIPLES, QueueItem, ShownItem
from assay_pipelines.annotation.ledger import FILE, VERSION
from assay_pipelines.annotation.quality.principle_agreement import principle_agreement
from assay_pipelines.annotation.question_types.question_type import PlacedAnswer
from assay_pipelines.annotation.queues import create_queue, get_queue
from assay_pipelines.annotation.recovery import open_ledger
from assay_pipelines.annotation.service import AnnotationService

Fill = Callable[[int], list[str]]
CLEAR, SHORT = "is clear", "is short"


def make(workspace: Workspace, comparisons: list[str], *, overlap: int = 1, gold_checks: float = 0.0) -> None:
    items = [QueueItem(comparison, principles=(f" {CLEAR}\n", SHORT, CLEAR)) for comparison in comparisons]
    create_queue(workspace, "q", items, overlap=overlap, gold_checks=gold_checks, run_id=None)


def next_of(desk: AnnotationService, who: str) -> Assignment:
    given = desk.next("q", who)
    assert given is not None
    return given


def standing(workspace: Workspace) -> list[tuple[str, str, str, str | None]]:
    fold(workspace)
    with workspace.store.unit() as db:
        return db.execute(
            """SELECT r.content, p.statement, v.answer, v.evidence FROM standing_principle_judgments v
               JOIN principles p USING (principle_id) JOIN responses r USING (response_id) ORDER BY ALL"""
        ).fetchall()


def test_answers_by_place_reach_the_response_they_are_about(workspace: Workspace, fill_comparisons: Fill) -> None:
    make(workspace, fill_comparisons(8))
    expected, orders = [], set()
    with AnnotationService(workspace) as desk:
        for _ in range(8):
            given = next_of(desk, "ann")
            orders.add(given.shown_order)
            assert given.content.principles == (CLEAR, SHORT), "white space made one, each once"
            evidence = str(given.content.second)[4:10]
            answers = [
                PlacedAnswer("first", SHORT, "partially"),
                PlacedAnswer("second", CLEAR, "yes", evidence),
            ]
            once = vote(desk, given, "second", principles=answers)
            again = vote(desk, given, "second", principles=answers[::-1])
            assert (once.judgment_id, again.repeated) == (again.judgment_id, True)
            for other in (answers[:1], [], [answers[0], PlacedAnswer("second", CLEAR, "yes")]):
                with pytest.raises(BadInputError, match="undo it first"):
                    vote(desk, given, "second", principles=other)
            expected += [
                (given.content.first, SHORT, "partially", None),
                (given.content.second, CLEAR, "yes", evidence),
            ]
    assert orders == {"AB", "BA"}
    assert standing(workspace) == sorted(expected)


def test_wrong_answers_are_one_clear_line(workspace: Workspace, fill_comparisons: Fill) -> None:
    make(workspace, fill_comparisons(1))
    with AnnotationService(workspace) as desk:
        given = next_of(desk, "ann")
        wrong: list[tuple[PlacedAnswer, str]] = [
            (PlacedAnswer("first", "is kind", "yes"), "does not ask about 'is kind'"),
            (PlacedAnswer("first", CLEAR, "maybe"), "yes, no, partially"),  # type: ignore[arg-type]
            (PlacedAnswer("third", CLEAR, "yes"), "first, second"),  # type: ignore[arg-type]
            (PlacedAnswer("first", CLEAR, "yes", "never said"), "not in the response"),
            (PlacedAnswer("first", CLEAR, "yes", str(given.content.second)), "not in the response"),
            (PlacedAnswer("first", CLEAR, "yes", " "), "evidence"),
        ]
        for answer, message in wrong:
            with pytest.raises(BadInputError, match=message):
                vote(desk, given, "first", principles=[answer])
        fine = PlacedAnswer("first", CLEAR, "yes")
        with pytest.raises(BadInputError, match="two answers"):
            vote(desk, given, "first", principles=[fine, PlacedAnswer("first", CLEAR, "no")])
        with pytest.raises(BadInputError, match="passed on"):
            skip(desk, given, "later", principles=[fine])
        assert desk.progress("q").votes == 0
        skip(desk, given, "cannot_decide", principles=[fine])
    assert standing(workspace) == [(given.content.first, CLEAR, "yes", None)]
    for too_much in (["x" * (LONGEST_PRINCIPLE + 1)], [str(n) for n in range(MOST_PRINCIPLES + 1)], [" "]):
        with pytest.raises(BadInputError, match="principle"):
            QueueItem("c-1", principles=tuple(too_much)).payload()


def test_undo_takes_them_back(workspace: Workspace, fill_comparisons: Fill) -> None:
    make(workspace, fill_comparisons(1))
    with AnnotationService(workspace) as desk:
        vote(desk, next_of(desk, "ann"), "tie", principles=[PlacedAnswer("first", CLEAR, "yes")])
        again = desk.undo("q", "ann")
        assert again is not None
        assert standing(workspace) == []
        vote(desk, again, "tie", principles=[PlacedAnswer("first", CLEAR, "no")])
    assert standing(workspace) == [(again.content.first, CLEAR, "no", None)]


def test_a_lost_file_has_them_again(workspace: Workspace, fill_comparisons: Fill) -> None:
    make(workspace, fill_comparisons(2))
    answers = [PlacedAnswer("first", CLEAR, "yes", "answer"), PlacedAnswer("second", CLEAR, "no")]
    with AnnotationService(workspace) as desk:
        given = next_of(desk, "ann")
        cast = vote(desk, given, "tie", principles=answers)
    for file in workspace.root.glob(f"{FILE}*"):
        file.unlink()
    with AnnotationService(workspace) as desk:
        ticket = desk.standing("q", "ann").last
        assert ticket is not None
        same = desk.assignment(ticket, "ann")
        again = vote(desk, same, "tie", principles=answers)
        assert (again.judgment_id, again.repeated) == (cast.judgment_id, True)
    assert len(standing(workspace)) == 2


@pytest.mark.slow
def test_a_crash_before_the_journal_keeps_them(
    workspace: Workspace, fill_comparisons: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(workspace, fill_comparisons(1))

    def fail(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with AnnotationService(workspace) as desk:
        given = next_of(desk, "ann")
        with monkeypatch.context() as patched:
            patched.setattr(JournalWriter, "append", fail)
            with pytest.raises(KeyboardInterrupt):
                vote(desk, given, "first", principles=[PlacedAnswer("second", SHORT, "no")])
    assert standing(workspace) == []
    with AnnotationService(workspace):
        pass
    assert standing(workspace) == [(given.content.second, SHORT, "no", None)]


def test_a_file_of_the_version_before_is_upgraded(workspace: Workspace, fill_comparisons: Fill) -> None:
    make(workspace, fill_comparisons(2))
    with AnnotationService(workspace) as desk:
        vote(desk, next_of(desk, "ann"), "tie")
    with sqlite3.connect(workspace.root / FILE) as db:
        db.execute("DROP TABLE vote_principles")
        db.execute("UPDATE payloads SET payload = json_remove(payload, '$.principles')")
        db.execute("PRAGMA user_version = 1")
    db.close()
    with AnnotationService(workspace) as desk:
        given = next_of(desk, "ann")
        assert given.content.principles == ()
        vote(desk, given, "tie")
    with sqlite3.connect(workspace.root / FILE) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (VERSION,)
        assert db.execute("SELECT count(*) FROM vote_principles").fetchone() == (0,)
    db.close()


def test_nothing_tells_a_gold_check(workspace: Workspace, fill_comparisons: Fill) -> None:
    comparisons = fill_comparisons(20)
    with workspace.store.unit() as db:
        insert_decisions(db, [Decision(c, "gold", "A", "verifier", "checked") for c in comparisons[10:]], None)
    make(workspace, comparisons[:10], gold_checks=0.2)
    assert get_queue(workspace, "q").checks
    with open_ledger(workspace) as ledger, ledger.reading() as db:
        payloads = [row[0] for row in db.execute("SELECT payload FROM payloads")]
    assert {ShownItem.of(json.loads(payload), "AB").principles for payload in payloads} == {(CLEAR, SHORT)}


def test_agreement_by_principle(
    workspace: Workspace, fill_comparisons: Fill, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two people on four responses: yes-yes, no-no, yes-no, partially-partially."""

    def assay(*arguments: object) -> dict[str, Any]:
        with pytest.raises(SystemExit) as ended:
            main([*map(str, arguments), "-w", str(workspace.root), "--json"])
        printed = capsys.readouterr()
        assert ended.value.code == 0, printed.err
        found: dict[str, Any] = json.loads(printed.out)
        return found

    one, two = fill_comparisons(2)
    names = workspace.root / "ids"
    names.write_text(f"{one}\n{two}\n")
    asked = ("--principle", CLEAR, "--principle", f" {SHORT} ")
    assert assay("queue", "create", "q", "--ids", names, "--overlap", 2, "--gold-checks", 0, *asked)["items"] == 2
    said: dict[tuple[str, str], tuple[Fulfilment, Fulfilment]] = {
        ("ann", one): ("yes", "no"),
        ("bob", one): ("yes", "no"),
        ("ann", two): ("yes", "partially"),
        ("bob", two): ("no", "partially"),
    }
    with AnnotationService(workspace) as desk:
        for who in ("ann", "bob", "ann", "bob"):
            given = next_of(desk, who)
            a, b = said[who, given.comparison_id]
            answers = [PrincipleAnswer("A", CLEAR, a), PrincipleAnswer("B", CLEAR, b)]
            vote_canonically(desk, given, "tie", principles=answers)
    with open_ledger(workspace) as ledger:
        (found,) = principle_agreement(ledger, "q")
    assert (found.principle, found.answers, found.items, found.yes, found.percent) == (CLEAR, 8, 4, 3 / 8, 3 / 4)
    # margins no 3, partially 2, yes 3; ordinal distances: no to yes (8 - 3)^2 = 25, to partially 2.5^2 = 6.25.
    # Observed 2 * 25; expected 2 * (3 * 3 * 25 + 2 * 3 * 2 * 6.25) = 600
    assert found.alpha == pytest.approx(1 - 7 * 50 / 600)
    assert assay("queue", "agreement", "q")["principles"] == [asdict(found)]
    with workspace.store.unit() as db:
        ((config,),) = db.execute("SELECT config::VARCHAR FROM runs WHERE kind = 'queue-create'").fetchall()
    assert json.loads(config)["principles"] == [CLEAR, SHORT]
