"""The assignment rule under any order of what people may do, with time running out at any moment."""

from __future__ import annotations

from collections import Counter
from itertools import count
from pathlib import Path

import pytest
from annotating import skip, vote
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from assay.annotation.vote_journal import fold
from assay.errors import BadInputError, BusyError
from assay.workspace import Workspace
from assay_pipelines.annotation import assignment as assignment_module
from assay_pipelines.annotation import service as desk_module
from assay_pipelines.annotation.assignment import Assignment, Ticket, check_is_due, draw, share, shown_order
from assay_pipelines.annotation.items import QueueItem
from assay_pipelines.annotation.queues import create_queue
from assay_pipelines.annotation.recovery import open_ledger
from assay_pipelines.annotation.service import AnnotationService
from assay_pipelines.annotation.votes import queue_votes

PEOPLE = ("ann", "bob", "cy", "dora")
ACTIONS = ("next", "vote", "vote", "vote again", "pass", "undecided", "undo", "release", "wait", "reopen")
STEPS = st.lists(st.tuples(st.sampled_from(PEOPLE), st.sampled_from(ACTIONS)), max_size=40)
NAMES = count()


class Clock:
    """Stands in for the machine's clock, so that leases run out at once and not in half an hour."""

    now = 1_000_000.0

    def time(self) -> float:
        self.now += 0.001
        return self.now


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workspace, list[str]]:
    import pyarrow as pa

    from assay.store.intake import pair_schema, store_pairs

    folder: Path = tmp_path_factory.mktemp("rules")
    workspace = Workspace.create(folder)
    rows = [
        {
            "row": n + 1,
            "messages": [{"role": "user", "content": f"q{n}"}],
            "first": "yes",
            "second": "no",
            "source": "s",
            "record_id": str(n),
        }
        for n in range(4)
    ]
    with workspace.store.unit() as db:
        store_pairs(db, pa.Table.from_pylist(rows, schema=pair_schema()), None)
        return workspace, [row[0] for row in db.execute("SELECT comparison_id FROM comparisons ORDER BY 1").fetchall()]


@pytest.mark.slow
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS, st.integers(1, 3))
@example([("ann", "next"), ("ann", "pass"), ("bob", "next"), ("bob", "vote"), ("ann", "undo"), ("ann", "vote")], 1)
def test_the_rule_holds_whatever_people_do(
    filled: tuple[Workspace, list[str]], monkeypatch: pytest.MonkeyPatch, steps: list[tuple[str, str]], overlap: int
) -> None:
    workspace, comparisons = filled
    name = f"queue-{next(NAMES)}"
    clock = Clock()
    for module in (assignment_module, desk_module):
        monkeypatch.setattr(module, "time", clock)
    create_queue(workspace, name, [QueueItem(c) for c in comparisons], overlap=overlap, gold_checks=0, run_id=None)
    held: dict[str, Assignment] = {}
    last: dict[str, Assignment] = {}
    desk = AnnotationService(workspace)
    for who, action in steps:
        if action == "wait":
            clock.now += 2_000.0
        elif action == "reopen":
            desk.close()
            desk = AnnotationService(workspace)
        elif action == "undo":
            if (back := desk.undo(name, who)) is not None:
                held[who] = back
        elif action == "next" or who not in held:
            given_ = desk.next(name, who)
            if given_ is not None:
                held[who] = given_
        elif action == "release":
            desk.release(held.pop(who))
        elif action == "vote again" and who in last:
            try:
                assert vote(desk, last[who], "tie").repeated
            except BadInputError as error:
                if "taken back" not in str(error) and "undo it first" not in str(error):
                    raise
        else:
            mine = held.pop(who)
            try:
                if action == "pass":
                    skip(desk, mine, "later")
                elif action == "undecided":
                    skip(desk, mine, "cannot_decide")
                else:
                    vote(desk, mine, "tie")
                    last[who] = mine
            except BusyError as error:
                if "ran out" not in str(error):
                    raise
        check(workspace, name, overlap)
    desk.close()
    fold(workspace)
    with open_ledger(workspace) as ledger:
        votes = {v.judgment_id for v in queue_votes(ledger, name)}
    with workspace.store.unit() as db:
        stored = db.execute(
            "SELECT judgment_id FROM queue_votes WHERE queue = ? AND withdrawn_at IS NULL", [name]
        ).fetchall()
    assert {judgment for (judgment,) in stored} == votes


def check(workspace: Workspace, name: str, overlap: int) -> None:
    with open_ledger(workspace) as ledger:
        votes = queue_votes(ledger, name)
        with ledger.reading() as db:
            items = db.execute(
                "SELECT comparison_id, taken, done FROM items WHERE queue = ?",
                (name,),
            ).fetchall()
            both = db.execute(
                """SELECT count(*) FROM leases l JOIN votes v USING (item_id, annotator, role)
                   WHERE v.withdrawn_at IS NULL"""
            ).fetchone()
    assert both[0] == 0, "nobody holds what they have voted on"
    said = Counter(v.comparison_id for v in votes if v.outcome is not None)
    for item in items:
        assert item["taken"] == said[item["comparison_id"]] <= overlap
        assert bool(item["done"]) == (item["taken"] >= overlap)
    assert max(Counter((v.comparison_id, v.annotator) for v in votes).values(), default=1) == 1


@given(st.text(max_size=20), st.text(max_size=20), st.integers())
def test_orders_are_drawn_evenly_and_repeatably(comparison: str, who: str, seed: int) -> None:
    comparison, who = (text.encode("utf-8", "ignore").decode() for text in (comparison, who))
    assert shown_order(comparison, who, seed) == shown_order(comparison, who, seed)
    assert 0 <= share(draw(comparison, who, seed)) < 1


def test_each_order_is_shown_about_half_of_the_time() -> None:
    orders = Counter(shown_order(f"c-{n}", who, 0) for n in range(1000) for who in ("ann", "bob"))
    assert 0.45 < orders["AB"] / 2000 < 0.55
    both = sum(shown_order(f"c-{n}", "ann", 0) == shown_order(f"c-{n}", "bob", 0) for n in range(1000))
    assert 0.4 < both / 1000 < 0.6, "one person's order tells nothing of another's"


@settings(max_examples=20, deadline=None)
@given(st.floats(0.01, 0.5), st.text(max_size=5).map(lambda t: t.encode("utf-8", "ignore").decode()))
def test_gold_checks_keep_their_share(rate: float, who: str) -> None:
    shown = 400
    checks = sum(check_is_due(rate, 0, who, n) for n in range(shown))
    assert abs(checks / shown - rate) < 0.04


def test_tickets_are_words() -> None:
    ticket = Ticket(12, 3, "blind")
    assert Ticket.parse(str(ticket)) == ticket
    for wrong in ("", "1-2", "a-1-vote", "1-1-other", "1-1-vote-"):
        assert Ticket.parse(wrong) is None
