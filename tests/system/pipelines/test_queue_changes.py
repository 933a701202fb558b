"""Queues that are edited while people work: versions, who is asked, own answers, notes; all of it survives the loss of
the operational file, because it is in the journal and the store."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from annotating import skip, vote, vote_canonically

from assay.annotation.vote_journal import fold
from assay.errors import BadInputError, ConflictError, NotFoundError
from assay.store.records import Decision, insert_decisions
from assay.workspace import Workspace
from assay_pipelines.annotation.admission import admission_of
from assay_pipelines.annotation.assignment import BLOCK
from assay_pipelines.annotation.items import QueueItem, ShownOpinion
from assay_pipelines.annotation.ledger import FILE
from assay_pipelines.annotation.notes import add_note, queue_notes, resolve_note
from assay_pipelines.annotation.own_answers import own_answers, reopen_answer, standing_answer
from assay_pipelines.annotation.queue_edits import (
    admit,
    ask_people,
    change_items,
    edit_guideline,
    edit_options,
    read_guideline,
    rename_queue,
    turn_queue,
)
from assay_pipelines.annotation.queues import (
    add_items,
    close_queue,
    create_queue,
    get_queue,
    list_queues,
    queue_progress,
)
from assay_pipelines.annotation.recovery import open_ledger
from assay_pipelines.annotation.service import AnnotationService, queue_row
from assay_pipelines.annotation.votes import queue_votes

Fill = Callable[[int], list[str]]
OPINION = (ShownOpinion("judge-1", "A", "shorter"),)


def make(workspace: Workspace, comparisons: list[str], *, gold: int = 0, rate: float = 0.0, name: str = "q") -> None:
    """`gold` of the comparisons have a known answer, A."""
    if gold:
        with workspace.store.unit() as db:
            insert_decisions(db, [Decision(c, "gold", "A", "verifier", "checked") for c in comparisons[:gold]], None)
    items = [QueueItem(c, opinions=OPINION) for c in comparisons[gold:]]
    create_queue(workspace, name, items, gold_checks=rate, run_id=None, guideline="as made")


def test_a_vote_knows_its_guideline_and_two_editors_lose_nothing(workspace: Workspace, fill_comparisons: Fill) -> None:
    comparisons = fill_comparisons(3)
    make(workspace, comparisons[:2])
    with AnnotationService(workspace) as desk:
        given = desk.next("q", "ann")
        assert given is not None
        assert edit_guideline(desk, "q", "second text", "cora", version=1).version == 2
        vote(desk, given, "first")  # as it was given out
        given = desk.next("q", "ann")
        assert given is not None
        vote(desk, given, "first")
        with pytest.raises(ConflictError, match="cora has changed"):
            edit_guideline(desk, "q", "ben's text", "ben", version=1)
        assert edit_guideline(desk, "q", "second text", "ben", version=1).version == 2, "the same text is no change"
        assert edit_guideline(desk, "q", "ben's text", "ben", version=2).version == 3
        assert [(v.version, v.text, v.person) for v in read_guideline(desk, "q")] == [
            (3, "ben's text", "ben"),
            (2, "second text", "cora"),
            (1, "as made", None),
        ]
    make(workspace, comparisons[:2])  # made again with what it was made with: the same queue
    assert get_queue(workspace, "q").guideline == "ben's text"
    assert add_items(workspace, "q", [QueueItem(comparisons[2])], None) == 1
    fold(workspace)
    (workspace.root / FILE).unlink()
    with open_ledger(workspace) as ledger:
        assert [v.guideline for v in queue_votes(ledger, "q")] == [1, 2]
    with AnnotationService(workspace) as desk:
        assert [v.person for v in read_guideline(desk, "q")] == ["ben", "cora", None]


def test_names_pauses_and_deletion(workspace: Workspace, fill_comparisons: Fill) -> None:
    comparisons = fill_comparisons(4)
    make(workspace, comparisons[:2])
    make(workspace, comparisons[2:], name="other")
    with AnnotationService(workspace) as desk:
        rename_queue(desk, "q", "Tone,  first round", "cora")
        assert (get_queue(workspace, "Tone, first round").name, get_queue(workspace, "q").title) == (
            "q",
            "Tone, first round",
        )
        for taken in ("other", "q"):
            with pytest.raises(BadInputError, match="another queue"):
                rename_queue(desk, "other" if taken == "q" else "q", taken, "cora")
        edit_options(desk, "other", {"priority": 5}, "cora")
        assert [queue.name for queue in list_queues(workspace)] == ["other", "q"]
        given = desk.next("q", "ann")
        assert given is not None
        turn_queue(desk, "q", "paused", "cora")
        assert desk.next("q", "ben") is None
        held = desk.next("q", "ann")
        assert held is not None, "what is before somebody they may finish"
        vote(desk, held, "first")
        assert desk.next("q", "ann") is None
        turn_queue(desk, "q", "deleted", "cora")
        turn_queue(desk, "q", "resumed", "cora")
        assert [queue.name for queue in list_queues(workspace)] == ["other"]
        assert [queue.name for queue in list_queues(workspace, deleted=True)] == ["q"]
        assert desk.next("q", "ben") is None
    with pytest.raises(BadInputError, match="its votes keep the name"):
        make(workspace, comparisons[:2])
    fold(workspace)
    with workspace.store.unit() as db:
        assert db.execute("SELECT count(*) FROM queue_votes WHERE queue = 'q'").fetchone() == (1,)
        assert db.execute("SELECT list(change ORDER BY happened_at) FROM queue_changes").fetchone() == (
            ["renamed", "options", "paused", "deleted", "resumed"],
        )
    (workspace.root / FILE).unlink()
    with AnnotationService(workspace) as desk:
        turn_queue(desk, "q", "restored", "cora")
        assert get_queue(workspace, "q").title == "Tone, first round"
        assert desk.next("q", "ben") is not None


def test_an_own_answer_is_changed_and_the_first_stays_in_the_records(
    workspace: Workspace, fill_comparisons: Fill
) -> None:
    make(workspace, fill_comparisons(3))
    with AnnotationService(workspace) as desk:
        edit_options(desk, "q", {"suggestions": "after"}, "cora")
        tickets = []
        for _ in range(3):
            given = desk.next("q", "ann")
            assert given is not None
            tickets.append(given.ticket)
            vote_canonically(desk, given, "A")
        again = reopen_answer(desk, "q", tickets[0], "ann")
        assert own_answers(desk, "q", "ann")[1] == 3, "until another is cast the first stands"
        before = standing_answer(desk, again)
        assert before is not None
        assert before.vote.answer == "A"
        vote_canonically(desk, again, "B")
        assert vote_canonically(desk, again, "B").repeated
        answers, total = own_answers(desk, "q", "ann", most=2)
        assert (total, answers[0].vote.answer, answers[0].changes, answers[0].vote.suggestion) == (3, "B", 1, "after")
        assert [answer.vote.suggestion for answer in answers[1:]] == [None], "seen after the vote it did not change"
        with pytest.raises(ConflictError):
            reopen_answer(desk, "q", tickets[0], "ann")
        with pytest.raises(ConflictError):
            reopen_answer(desk, "q", tickets[1], "ben")
        assert queue_progress(workspace, "q").done == 3
        opened = reopen_answer(desk, "q", tickets[1], "ann")
        close_queue(workspace, "q")  # from now on others' agreement may be read
        with pytest.raises(ConflictError, match="closed"):
            vote_canonically(desk, opened, "B")
        assert own_answers(desk, "q", "ann")[1] == 3
    fold(workspace)
    with workspace.store.unit() as db:
        rows = db.execute(
            """SELECT answer, withdrawn_reason, suggestion FROM queue_votes JOIN vote_contexts USING (judgment_id)
               WHERE comparison_id = ? ORDER BY attempt""",
            [again.comparison_id],
        ).fetchall()
    assert rows == [("A", "changed by the annotator", None), ("B", None, "after")]


def test_notes_reach_those_who_run_the_queue_and_survive(workspace: Workspace, fill_comparisons: Fill) -> None:
    make(workspace, fill_comparisons(2))
    with AnnotationService(workspace) as desk:
        given = desk.next("q", "ann")
        assert given is not None
        first = add_note(desk, given, "flag", "", "request-1")
        assert add_note(desk, given, "flag", "", "request-1") == first, "the same request again is the same note"
        with pytest.raises(BadInputError, match="without text"):
            add_note(desk, given, "comment", "  ", "request-2")
        add_note(desk, given, "comment", "both are \U0001f600", "request-3")
        with pytest.raises(BadInputError, match="cannot be stored"):
            add_note(desk, given, "comment", "\ud800", "request-4")
        answered = resolve_note(desk, "q", first.id, "cora", resolved=True, reply="thanks")
        assert (answered.resolved_by, answered.reply) == ("cora", "thanks")
        with pytest.raises(NotFoundError):
            resolve_note(desk, "q", "c-nothing", "cora", resolved=True)
    fold(workspace)
    (workspace.root / FILE).unlink()
    with open_ledger(workspace) as ledger:
        notes = queue_notes(ledger, "q")
        assert [(n.kind, n.text, n.resolved_by) for n in notes] == [
            ("comment", "both are \U0001f600", None),
            ("flag", "", "cora"),
        ]
        assert notes[0].excerpt.startswith("Question ")
        assert queue_notes(ledger, "q", person="ben") == []


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.2, 0.5])
def test_progress_is_exact_and_tells_of_no_check(workspace: Workspace, fill_comparisons: Fill, rate: float) -> None:
    comparisons = fill_comparisons(52)
    make(workspace, comparisons, gold=12, rate=rate)
    with AnnotationService(workspace) as desk:
        told, answered = [desk.standing("q", "ann").expected], 0
        while (given := desk.next("q", "ann")) is not None:
            if answered % 7 == 3:
                skip(desk, given, "later")
            else:
                vote(desk, given, "first")
            answered += 1
            told.append(desk.standing("q", "ann").expected)
            if answered == 5:
                again = desk.undo("q", "ann")
                assert again is not None
                told.append(desk.standing("q", "ann").expected)
                vote(desk, again, "second")
        assert set(told) == {answered}, "the same number from the first item to the last"


def test_a_qualification_comes_first_and_decides(workspace: Workspace, fill_comparisons: Fill) -> None:
    comparisons = fill_comparisons(60)
    gold = comparisons[:20]
    make(workspace, comparisons, gold=20, rate=0.4)
    with AnnotationService(workspace) as desk:
        with pytest.raises(BadInputError, match="known answer"):
            edit_options(desk, "q", {"qualify_checks": 30}, "cora")
        edit_options(
            desk, "q", {"qualify_checks": 4, "qualify_share": 0.75, "gate_checks": 5, "gate_share": 0.5}, "cora"
        )
        with desk.ledger.reading() as db:
            numbers = db.execute("SELECT item_id, is_check FROM items ORDER BY item_id").fetchall()
        assert 2 < sum(is_check for _, is_check in numbers[:30]) < 18, "a number does not tell what is a check"
        for number, _ in numbers:  # by a link neither an item nor what is a check; curators too are admitted first
            for others in (False, True):
                with pytest.raises(ConflictError, match="not open to you"):
                    desk.next("q", "eve", number, others=others)
        for name, answers in (("ann", "AAAB"), ("ben", "ABBB")):
            for number, answer in enumerate(answers):
                given = desk.next("q", name)
                assert given is not None
                assert given.comparison_id in gold
                state = desk.standing("q", name)
                assert (state.admission.state, state.expected, state.votes) == ("pending", 4, number)
                vote_canonically(desk, given, answer)
        assert desk.next("q", "ben") is None
        failed = desk.standing("q", "ben").admission
        assert (failed.state, failed.reason) == (
            "failed",
            "1 of the first 4 items with a known answer right, 3 are needed",
        )
        admit(desk, "q", "ben", "admitted", "cora")
        ben = desk.next("q", "ben")
        assert ben is not None
        answered = 0
        while (given := desk.next("q", "ann")) is not None and answered < 3 * BLOCK:
            vote_canonically(desk, given, "B")
            answered += 1
        held = desk.standing("q", "ann").admission
        assert (held.state, given) == ("held", None)
        assert "right, at least 50% are asked for" in held.reason
        assert (answered + 4) % BLOCK == 0, "by whole blocks: nothing tells which answer was on a check"
    fold(workspace)
    (workspace.root / FILE).unlink()
    with AnnotationService(workspace) as desk, desk.ledger.reading() as db:
        states = {name: admission_of(db, queue_row(db, "q"), name, BLOCK) for name in ("ann", "ben", "dan")}
    assert {name: (a.state, a.person) for name, a in states.items()} == {
        "ann": ("held", None),
        "ben": ("admitted", "cora"),
        "dan": ("pending", None),
    }


def test_items_are_removed_returned_and_assigned(workspace: Workspace, fill_comparisons: Fill) -> None:
    make(workspace, fill_comparisons(4))
    with AnnotationService(workspace) as desk:
        with desk.ledger.reading() as db:
            numbers = [row[0] for row in db.execute("SELECT item_id FROM items ORDER BY item_id")]
        first = desk.next("q", "ann")
        assert first is not None
        change_items(desk, "q", "items_removed", numbers, "cora")
        assert (desk.next("q", "ben"), queue_progress(workspace, "q").items) == (None, 0)
        vote(desk, first, "first")  # what was before somebody counts
        change_items(desk, "q", "items_returned", numbers[:3], "cora")
        change_items(desk, "q", "items_assigned", numbers[:3], "cora", people=["ben"])
        assert desk.next("q", "ann") is None
        assert desk.standing("q", "ann").expected == 1
        number = numbers[0] if f"{numbers[0]}-1-vote" != first.ticket else numbers[1]
        with pytest.raises(ConflictError, match="not open to you"):
            desk.next("q", "ben", number)
        assert desk.next("q", "ben", number, others=True) is not None
        assert desk.next("q", "ben", number) is not None  # they have it now
        with pytest.raises(ConflictError):
            desk.next("q", "ann", numbers[2] if f"{numbers[2]}-1-vote" != first.ticket else numbers[1], others=True)
        with pytest.raises(NotFoundError):
            change_items(desk, "q", "items_removed", [10**6], "cora")
        ask_people(desk, "q", ["ben"], ["night shift"], "cora")
        assert (get_queue(workspace, "q").people, get_queue(workspace, "q").groups) == (("ben",), ("night shift",))
        ask_people(desk, "q", None, None, "cora")
        assert get_queue(workspace, "q").people is None
