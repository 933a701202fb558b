"""Many people at one queue, killed processes, a store that is held: no vote is lost, doubled or one too many."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from annotating import skip, vote

from assay.annotation.vote_journal import fold
from assay.data.pair_attributes import PairAttributes, store_attributes
from assay.domain import TIES, Judgment
from assay.errors import BadInputError, BusyError
from assay.store.records import Decision, insert_annotator, insert_decisions, insert_judgments
from assay.workspace import Workspace
from assay_pipelines.annotation.items import QueueItem, ShownOpinion
from assay_pipelines.annotation.ledger import FILE
from assay_pipelines.annotation.question_types.pair import Choice
from assay_pipelines.annotation.queues import (
    add_items,
    close_queue,
    collected,
    create_queue,
    get_queue,
    list_queues,
    queue_progress,
    reopen_queue,
)
from assay_pipelines.annotation.recording import Overlap
from assay_pipelines.annotation.recovery import open_ledger, recover
from assay_pipelines.annotation.service import AnnotationService
from assay_pipelines.annotation.votes import queue_votes, result_of

Fill = Callable[[int], list[str]]
CHOICES: tuple[Choice, ...] = ("first", "second", "tie", "both_good", "both_bad")


def make(workspace: Workspace, comparisons: list[str], *, overlap: Overlap = 1, gold_checks: float = 0.0) -> None:
    create_queue(
        workspace,
        "q",
        [QueueItem(c, reason="models disagree") for c in comparisons],
        overlap=overlap,
        gold_checks=gold_checks,
        run_id=None,
    )


def work(desk: AnnotationService, name: str, failures: list[BaseException], *, seed: int = 0) -> None:
    try:
        random_ = random.Random(f"{name}{seed}")
        while (given := desk.next("q", name)) is not None:
            if random_.random() < 0.05:
                skip(desk, given, "later")
                continue
            if random_.random() < 0.05:
                desk.release(given)
                continue
            vote(desk, given, random_.choice(CHOICES), strength=random_.randrange(4))
            if random_.random() < 0.1:
                again = desk.undo("q", name)
                assert again is not None
                assert again.ticket != given.ticket
                vote(desk, again, random_.choice(CHOICES))
    except BaseException as error:
        failures.append(error)
        raise


def check_whole(workspace: Workspace, overlap: int, *, complete: bool = True) -> None:
    """Ledger and store tell the same, no item has too many votes, nobody two."""
    fold(workspace)
    with open_ledger(workspace) as ledger:
        votes = queue_votes(ledger, "q")
        with ledger.reading() as db:
            assert db.execute("SELECT count(*) FROM outbox").fetchone()[0] == 0
            everything = {row[0] for row in db.execute("SELECT judgment_id FROM votes")}
    with workspace.store.unit() as db:
        told = db.execute(
            """SELECT judgment_id, answer, annotator, strength, shown_order FROM queue_votes
               WHERE queue = 'q' AND withdrawn_at IS NULL"""
        ).fetchall()
    assert sorted(told) == sorted((v.judgment_id, v.answer, v.annotator, v.strength, v.shown_order) for v in votes)
    with workspace.store.unit() as db:
        rows = db.execute("SELECT judgment_id FROM queue_votes WHERE queue = 'q'").fetchall()
    assert {row[0] for row in rows} == everything
    assert len(rows) == len(everything)
    said = [v for v in votes if v.outcome is not None]
    per_item = Counter(v.comparison_id for v in said)
    assert max(per_item.values()) <= overlap
    assert max(Counter((v.comparison_id, v.annotator) for v in votes).values()) == 1
    if complete:
        assert set(per_item.values()) == {overlap}
        assert queue_progress(workspace, "q").open == 0


@pytest.mark.slow
def test_twenty_people_in_threads(workspace: Workspace, fill_comparisons: Fill) -> None:
    make(workspace, fill_comparisons(60), overlap=3)
    failures: list[BaseException] = []
    with AnnotationService(workspace) as desk:
        people = [threading.Thread(target=work, args=(desk, f"person {n}", failures)) for n in range(20)]
        for person in people:
            person.start()
        for person in people:
            person.join()
        assert not failures
    check_whole(workspace, 3)


WORKER = """
import random, sys, threading, time
from assay.workspace import Workspace
from assay_pipelines.annotation.question_types.question_type import Submission
from assay_pipelines.annotation.service import AnnotationService

def work(name):
    for _ in range(12):
        given = desk.next("q", name)
        receipt = desk.cast(given.ticket, name, Submission(choice=random.choice(("first", "second", "tie"))))
        with line:
            print(receipt.judgment_id, flush=True)
        time.sleep(random.uniform(0.02, 0.1))  # a person thinks; else one process keeps the others out
    time.sleep(600)  # all of them together do not come to the end of the queue before they are killed

line = threading.Lock()
with AnnotationService(Workspace.open(sys.argv[1])) as desk:
    print("ready", flush=True)
    sys.stdin.readline()
    people = [threading.Thread(target=work, args=(name,)) for name in sys.argv[2:]]
    for person in people:
        person.start()
    for person in people:
        person.join()
"""


def test_twenty_people_in_processes_killed_in_the_middle(workspace: Workspace, fill_comparisons: Fill) -> None:
    make(workspace, fill_comparisons(300), overlap=2)
    names = [f"person {n}" for n in range(20)]
    acknowledged: set[str] = set()
    for round_ in range(2):
        workers = [
            subprocess.Popen(
                [sys.executable, "-c", WORKER, str(workspace.root), *names[part::4]],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for part in range(4)
        ]
        for worker in workers:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "ready\n"
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write("go\n")
            worker.stdin.close()
        for worker in workers:
            assert worker.stdout is not None
            for _ in range(5 + 2 * round_):
                if line := worker.stdout.readline():
                    acknowledged.add(line.strip())
        for worker in workers:
            os.kill(worker.pid, signal.SIGKILL)
        for worker in workers:
            assert worker.stdout is not None
            acknowledged |= {line.strip() for line in worker.stdout.read().splitlines(keepends=True) if "\n" in line}
            worker.wait()
            worker.stdout.close()
        with AnnotationService(workspace) as desk:  # whoever opens next delivers what was on its way
            assert desk.progress("q").open, "they were killed in the middle"
        check_whole(workspace, 2, complete=False)
    with workspace.store.unit() as db:
        stored = db.execute("SELECT judgment_id FROM queue_votes WHERE queue = 'q' AND withdrawn_at IS NULL").fetchall()
    assert acknowledged <= {judgment for (judgment,) in stored}
    failures: list[BaseException] = []
    with AnnotationService(workspace) as desk:
        for name in names:
            work(desk, name, failures)
    check_whole(workspace, 2)


HOLDER = """
import sys, duckdb
connection = duckdb.connect(sys.argv[1])
print("held", flush=True)
sys.stdin.readline()
"""


def test_people_continue_while_another_process_holds_the_store(workspace: Workspace, fill_comparisons: Fill) -> None:
    make(workspace, fill_comparisons(10))
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(workspace.store.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with AnnotationService(workspace) as desk:
        failures: list[BaseException] = []
        work(desk, "ann", failures)
        assert not desk.fold()
    close_queue(workspace, "q")
    assert get_queue(workspace, "q").closed
    assert holder.poll() is None, "the store was held all the time"
    holder.communicate("let go\n")
    with AnnotationService(workspace) as desk:
        work(desk, "bob", failures)
        assert desk.fold()
    with workspace.store.unit() as db:
        events = db.execute("SELECT event FROM queue_events ORDER BY happened_at").fetchall()
    assert events == [("created",), ("closed",)]
    reopen_queue(workspace, "q")
    with AnnotationService(workspace) as desk:
        work(desk, "bob", failures)
    check_whole(workspace, 1)


def test_a_reload_shows_the_same_item_in_the_same_order(workspace: Workspace, fill_comparisons: Fill) -> None:
    make(workspace, fill_comparisons(5))
    with AnnotationService(workspace) as desk:
        first = desk.next("q", "ann")
    with AnnotationService(workspace) as desk:
        second = desk.next("q", "ann")
        assert first is not None
        assert second is not None
        assert (second.ticket, second.content) == (first.ticket, first.content)
        other = desk.next("q", "bob")
        assert other is not None
        assert other.comparison_id != first.comparison_id


def test_the_same_vote_again_is_acknowledged_and_counted_once(workspace: Workspace, fill_comparisons: Fill) -> None:
    make(workspace, fill_comparisons(3))
    with AnnotationService(workspace) as desk:
        given = desk.next("q", "ann")
        assert given is not None
        once = vote(desk, given, "first", strength=2, rationale="more exact")
        again = vote(desk, given, "first", strength=2, rationale="more exact")
        assert (once.repeated, again.repeated) == (False, True)
        assert once.judgment_id == again.judgment_id
        with pytest.raises(BadInputError, match="undo it first"):
            vote(desk, given, "second")
        assert desk.progress("q").votes == 1
        back = desk.undo("q", "ann")
        assert back is not None
        assert back.comparison_id == given.comparison_id
        assert back.shown_order == given.shown_order
        with pytest.raises(BadInputError, match="taken back"):
            vote(desk, given, "first", strength=2, rationale="more exact")
        redone = vote(desk, back, "first", strength=2, rationale="more exact")
        assert redone.judgment_id != once.judgment_id, "the withdrawn vote and the new one are two records"
        assert desk.progress("q").withdrawn == 1
    check_whole(workspace, 1, complete=False)
    with workspace.store.unit() as db:
        rows = db.execute("SELECT attempt, withdrawn_at IS NULL FROM queue_votes ORDER BY attempt").fetchall()
        assert rows == [(1, False), (2, True)]
        assert db.execute("SELECT count(*) FROM standing_judgments WHERE origin <> ''").fetchone() == (1,)


def test_answers_are_kept_in_canonical_order(workspace: Workspace, fill_comparisons: Fill) -> None:
    comparisons = fill_comparisons(30)
    make(workspace, comparisons)
    chosen = {}
    with AnnotationService(workspace) as desk:
        while (given := desk.next("q", "ann")) is not None:
            vote(desk, given, "second")
            chosen[given.comparison_id] = given.content.second
    fold(workspace)
    with workspace.store.unit() as db:
        rows = db.execute(
            """SELECT v.comparison_id, r.content, v.shown_order
               FROM queue_votes v JOIN comparisons c USING (comparison_id)
               JOIN responses r ON r.response_id = if(v.answer = 'A', c.response_a, c.response_b)"""
        ).fetchall()
    assert {comparison: content for comparison, content, _ in rows} == chosen
    assert {order for *_, order in rows} == {"AB", "BA"}


def test_a_lease_that_ran_out_is_given_away_and_its_vote_refused(
    workspace: Workspace, fill_comparisons: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, clock = 0.0, time.time
    monkeypatch.setattr(time, "time", lambda: clock() + now)
    (only,) = fill_comparisons(1)
    create_queue(workspace, "q", [QueueItem(only)], gold_checks=0, run_id=None, lease_seconds=600)
    with AnnotationService(workspace) as desk:
        slow = desk.next("q", "ann")
        assert slow is not None
        now += 601
        late = desk.next("q", "ann")
        assert late is not None, "nobody wanted it: it is still hers"
        now += 601
        quick = desk.next("q", "bob")
        assert quick is not None
        vote(desk, quick, "tie")
        with pytest.raises(BusyError, match="ran out"):
            vote(desk, late, "first")
        with pytest.raises(BusyError, match="ran out"):
            desk.renew(late)
        assert desk.next("q", "ann") is None
    check_whole(workspace, 1)


def test_everyone_labels_everything(workspace: Workspace, fill_comparisons: Fill) -> None:
    make(workspace, fill_comparisons(6), overlap="all")
    with AnnotationService(workspace) as desk:
        for name in ("ann", "bob", "cy"):
            work(desk, name, [], seed=1)
        votes = collected(workspace, "q")
        progress = desk.progress("q")
    assert progress.votes == sum(len(v) for v in votes.values())
    assert progress.votes + progress.passed == 18
    assert sum(result_of(v, least=3) is not None for v in votes.values()) == progress.done


def test_items_passed_on_are_counted_beside_the_votes(workspace: Workspace, fill_comparisons: Fill) -> None:
    comparisons = fill_comparisons(30)
    with workspace.store.unit() as db:
        insert_decisions(db, [Decision(c, "gold", "A", "verifier", "checked") for c in comparisons[20:]], None)
    make(workspace, comparisons[:20], gold_checks=0.3)
    with AnnotationService(workspace) as desk:
        for number in range(12):
            given = desk.next("q", "ann")
            assert given is not None
            if number < 8:
                skip(desk, given, "not_for_me")
            else:
                vote(desk, given, "first")
        given = desk.next("q", "bob")
        assert given is not None
        skip(desk, given, "later")
        progress, ann = desk.progress("q"), desk.standing("q", "ann")
    with open_ledger(workspace) as ledger, ledger.reading() as db:
        checks = db.execute(
            "SELECT sum(v.answer = 'skip') AS skipped, count(*) FROM votes v JOIN items i USING (item_id) "
            "WHERE i.is_check"
        ).fetchone()
    assert checks[0] > 0, "a gold check is passed on, too"
    assert (ann.votes, ann.passed) == (4, 8)
    assert (progress.annotators, progress.passed_by) == ({"ann": 4, "bob": 0}, {"ann": 8, "bob": 1})
    assert progress.votes + progress.checked == 4
    assert progress.checked == checks[1] - checks[0]


def test_a_queue_without_opinions_has_gold_checks_without_them(workspace: Workspace, fill_comparisons: Fill) -> None:
    comparisons = fill_comparisons(12)
    with workspace.store.unit() as db:
        insert_decisions(db, [Decision(c, "gold", "A", "verifier", "checked") for c in comparisons[6:]], None)
        model = insert_annotator(db, "reward_model", "the attacked model")
        insert_judgments(db, [Judgment(c, model, "B") for c in comparisons], None)
    for name, opinions in (("shown", None), ("hidden", ())):
        items = [QueueItem(c, opinions=opinions) for c in comparisons[:6]]
        create_queue(workspace, name, items, gold_checks=0.5, run_id=None)
        with AnnotationService(workspace) as desk:
            receipts = []
            while (given := desk.next(name, "ann")) is not None:
                receipts.append(vote(desk, given, "first"))
        assert len(receipts) > 6, "gold checks are among them"
        assert {len(receipt.opinions) for receipt in receipts} == {0 if opinions == () else 1}


def test_gold_checks_come_at_the_rate_and_look_like_the_rest(workspace: Workspace, fill_comparisons: Fill) -> None:
    comparisons = fill_comparisons(70)
    asked, gold = comparisons[:40], comparisons[40:]
    with workspace.store.unit() as db:
        insert_decisions(db, [Decision(c, "gold", "A", "verifier", "checked") for c in gold], None)
    make(workspace, asked, gold_checks=0.2)
    assert get_queue(workspace, "q").checks == 10
    with AnnotationService(workspace) as desk:
        seen = []
        while (given := desk.next("q", "ann")) is not None:
            seen.append((given.comparison_id, given.content.reason))
            vote(desk, given, "first" if given.shown_order == "AB" else "second")  # always A: always right
        progress = desk.progress("q")
    assert {reason for _, reason in seen} == {"models disagree"}
    checks = [c for c, _ in seen if c in set(gold)]
    assert len(checks) == len(set(checks)) == progress.checked
    assert 8 <= len(checks) <= 10
    assert any(c in set(gold) for c, _ in seen[:20])
    assert set(collected(workspace, "q")) == set(asked), "checks are no answers of the queue"
    fold(workspace)
    with workspace.store.unit() as db:
        results = db.execute("SELECT expected, answer, passed FROM gold_check_results").fetchall()
    assert results == [("A", "A", True)] * len(checks)


def test_a_gold_check_carries_what_the_store_knows_of_it(workspace: Workspace, fill_comparisons: Fill) -> None:
    comparisons = fill_comparisons(30)
    described = PairAttributes("arithmetic", "objective", "low", "the right number", "compute it")
    with workspace.store.unit() as db:
        machine = insert_annotator(db, "llm", "a model")
        insert_decisions(db, [Decision(c, "gold", "A", "verifier", "checked") for c in comparisons[20:]], None)
        db.execute(
            """INSERT INTO response_checks (response_id, annotator_id, verdict, reason, created_at)
               SELECT response_a, ?, 'correct', 'adds up', now() FROM comparisons""",
            [machine],
        )
        person = insert_annotator(db, "human", "an earlier person")
        skips = insert_annotator(db, "verifier", "one without an answer")
        said = [Judgment(c, machine, "A", rationale="it adds up") for c in comparisons]
        said += [Judgment(c, person, "B", rationale="no") for c in comparisons]
        insert_judgments(db, said + [Judgment(c, skips, "skip") for c in comparisons], None)
    store_attributes(workspace, machine, dict.fromkeys(comparisons, described), None)
    make(workspace, comparisons[:20], gold_checks=0.2)
    with AnnotationService(workspace) as desk:
        seen = set()
        while (given := desk.next("q", "ann")) is not None:
            receipt = vote(desk, given, "tie")
            assert receipt.opinions == (ShownOpinion("a model", "A", "it adds up"),)
            checked = given.content.pre_verification
            assert checked is not None
            seen.add((given.content.attributes, tuple(sorted(checked))))
        assert desk.progress("q").checked >= 4
    assert len(seen) == 1, "checks and others show the same"


def test_priority_first_then_an_order_by_hash(workspace: Workspace, fill_comparisons: Fill) -> None:
    comparisons = fill_comparisons(20)
    items = [QueueItem(c, priority=float(n % 2)) for n, c in enumerate(comparisons)]
    create_queue(workspace, "q", items, gold_checks=0, run_id=None)
    with AnnotationService(workspace) as desk:
        order = []
        while (given := desk.next("q", "ann")) is not None:
            order.append(given.comparison_id)
            vote(desk, given, "tie")
    urgent = set(comparisons[1::2])
    assert set(order[:10]) == urgent
    assert order[:10] != comparisons[1::2]


def test_a_lost_file_is_made_anew_from_store_and_journal(workspace: Workspace, fill_comparisons: Fill) -> None:
    comparisons = fill_comparisons(12)
    make(workspace, comparisons[:10], overlap=2)
    with AnnotationService(workspace) as desk:
        work(desk, "ann", [])
        desk.fold()
        work(desk, "bob", [])  # only in the journal
    add_items(workspace, "q", [QueueItem(c) for c in comparisons], run_id=None)
    close_queue(workspace, "q")
    before = (get_queue(workspace, "q"), queue_progress(workspace, "q"), state(workspace))
    for path in workspace.root.glob(f"{FILE}*"):
        path.unlink()
    assert (get_queue(workspace, "q"), queue_progress(workspace, "q"), state(workspace)) == before
    with open_ledger(workspace) as ledger:
        again = recover(workspace, ledger)
    assert (again.queues, again.items, again.votes, again.withdrawn) == (0, 0, 0, 0)


def test_a_recovery_that_the_store_s_holder_stops_is_made_up_for(workspace: Workspace, fill_comparisons: Fill) -> None:
    make(workspace, fill_comparisons(3))
    for path in workspace.root.glob(f"{FILE}*"):
        path.unlink()
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(workspace.store.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(BusyError):
        list_queues(Workspace(workspace.root, wait=0.0))
    holder.communicate("let go\n")
    assert [queue.items for queue in list_queues(workspace)] == [3]


def state(workspace: Workspace) -> list[tuple[object, ...]]:
    with open_ledger(workspace) as ledger, ledger.reading() as db:
        rows = db.execute(
            """SELECT comparison_id, taken, done, conflict, annotator, attempt, answer, withdrawn_at IS NULL AS stands
               FROM items LEFT JOIN votes USING (item_id) ORDER BY 1, 5, 6"""
        )
        return [tuple(row) for row in rows]


def test_a_crash_between_the_two_files_neither_asks_again_nor_doubles(
    workspace: Workspace, fill_comparisons: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(workspace, fill_comparisons(4))
    with AnnotationService(workspace) as desk:
        given = desk.next("q", "ann")
        assert given is not None
        with monkeypatch.context() as patched:
            patched.setattr(desk.outbox, "_deliver", crash)
            with pytest.raises(KeyboardInterrupt):
                vote(desk, given, "tie")
    assert fold(workspace).votes == 0
    with AnnotationService(workspace) as desk:  # delivered at opening
        following = desk.next("q", "ann")
        assert following is not None
        assert following.comparison_id != given.comparison_id
        assert vote(desk, given, "tie").repeated
    check_whole(workspace, 1, complete=False)


def crash(*_: object) -> None:
    raise KeyboardInterrupt


def test_opinions_are_shown_after_the_vote_only(workspace: Workspace, fill_comparisons: Fill) -> None:
    (only,) = fill_comparisons(1)
    opinion = ShownOpinion("judge-1", "A", "shorter")
    item = QueueItem(only, pre_verification={"A": "correct", "B": "incorrect"}, opinions=(opinion,))
    create_queue(workspace, "q", [item], gold_checks=0, run_id=None)
    with AnnotationService(workspace) as desk:
        given = desk.next("q", "ann")
        assert given is not None
        assert "judge-1" not in repr(given)
        expected = ("correct", "incorrect") if given.shown_order == "AB" else ("incorrect", "correct")
        assert given.content.pre_verification == expected
        assert vote(desk, given, "both_bad").opinions == (opinion,)


def test_wrong_calls_are_one_clear_line(workspace: Workspace, fill_comparisons: Fill) -> None:
    comparisons = fill_comparisons(2)
    make(workspace, comparisons)
    with pytest.raises(BadInputError, match="another overlap"):
        make(workspace, comparisons, overlap=2)
    with pytest.raises(BadInputError, match="no comparison c-nowhere"):
        create_queue(workspace, "other", [QueueItem("c-nowhere")], run_id=None)
    with pytest.raises(BadInputError, match="not a queue name"):
        create_queue(workspace, "a/b", [], run_id=None)
    assert [queue.name for queue in list_queues(workspace)] == ["q"]
    with AnnotationService(workspace) as desk:
        with pytest.raises(BadInputError, match="annotator"):
            desk.next("q", "a\nb")
        given = desk.next("q", "ann")
        assert given is not None
        with pytest.raises(BadInputError, match="strength"):
            vote(desk, given, "first", strength=9)
        with pytest.raises(BadInputError, match="rationale"):
            vote(desk, given, "first", rationale="\ud800")
        with pytest.raises(BadInputError, match="reason"):
            skip(desk, given, "tired")
        assert vote(desk, given, "both_good").answer in TIES
    with pytest.raises(BadInputError, match="known as human"), AnnotationService(workspace, kind="simulated") as desk:
        desk.next("q", "ann")
    close_queue(workspace, "q")
    make(workspace, comparisons)  # nothing new
    assert get_queue(workspace, "q").closed
    with pytest.raises(BadInputError, match="closed"):
        make(workspace, fill_comparisons(3))


def test_a_damaged_file_is_said_and_the_way_out_works(workspace: Workspace, fill_comparisons: Fill) -> None:
    make(workspace, fill_comparisons(2))
    path: Path = workspace.root / FILE
    for other in workspace.root.glob(f"{FILE}-*"):
        other.unlink()
    path.write_bytes(b"no data base at all" * 100)
    from assay.errors import BackendError

    with pytest.raises(BackendError, match="assay queue recover"):
        get_queue(workspace, "q")
    path.unlink()
    assert get_queue(workspace, "q").items == 2
