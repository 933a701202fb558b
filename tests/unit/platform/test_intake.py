"""The normaliser: one intermediate batch fills every table, idempotently and independent of how sides are ordered."""

from __future__ import annotations

import pyarrow as pa

from assay import ids
from assay.domain import Comparison, Judgment, Message
from assay.score import Score, ScoreFailure
from assay.store import records
from assay.store.intake import IntakeCounts, pair_schema, store_pairs
from assay.store.records import Decision
from assay.workspace import Workspace

PROMPT = (Message("user", "Why is the sky blue?"),)


def row(first: str, second: str, label: str | None, **more: object) -> dict[str, object]:
    return {
        "row": 1,
        "messages": [m.to_dict() for m in PROMPT],
        "first": first,
        "second": second,
        "label": label,
        "source": "test",
        "record_id": "x#1",
        **more,
    }


def put(workspace: Workspace, *rows: dict[str, object]) -> IntakeCounts:
    with workspace.store.unit() as db:
        return store_pairs(db, pa.Table.from_pylist(list(rows), schema=pair_schema()), "run-1")


def test_a_batch_twice_writes_once(workspace: Workspace) -> None:
    rows = [row("Rayleigh", "Paint", "first", strength=2, rationale="true")]
    assert put(workspace, *rows) == IntakeCounts(1, 2, 1, 1, 1)
    assert put(workspace, *rows) == IntakeCounts()


def test_swapped_rows_say_the_same(workspace: Workspace) -> None:
    put(workspace, row("Rayleigh", "Paint", "first"), row("Paint", "Rayleigh", "second", row=2, record_id="x#2"))
    comparison, swapped = Comparison.of(PROMPT, "Rayleigh", "Paint")
    with workspace.store.unit() as db:
        assert db.execute("SELECT comparison_id FROM comparisons").fetchall() == [(comparison.id,)]
        assert db.execute("SELECT count(*) FROM origins").fetchone() == (2,)
        found = db.execute("SELECT judgment_id, answer FROM judgments").fetchall()
        label = db.execute("SELECT pool, label FROM pools").fetchall()
    answer = "B" if swapped else "A"
    annotator = ids.annotator_id("source", "test")
    assert found == [(ids.judgment_id(comparison.id, annotator, answer, None, ""), answer)]
    assert label == [("unverified", answer)]


def test_votes_become_judgments_of_their_annotators(workspace: Workspace) -> None:
    votes = [
        {"kind": "human", "voter": "w1", "label": "first", "rationale": "better"},
        {"kind": "human", "voter": "w2", "label": "tie"},
    ]
    counts = put(workspace, row("Rayleigh", "Paint", None, votes=votes))
    assert counts.judgments == 2
    _, swapped = Comparison.of(PROMPT, "Rayleigh", "Paint")
    with workspace.store.unit() as db:
        found = db.execute(
            "SELECT kind, name, answer FROM judgments JOIN annotators USING (annotator_id) ORDER BY name"
        ).fetchall()
        assert db.execute("SELECT label FROM pools").fetchone() == (None,)
    assert found == [("human", "test/w1", "B" if swapped else "A"), ("human", "test/w2", "tie")]


def test_the_first_row_wins_within_a_batch(workspace: Workspace) -> None:
    put(workspace, *(row("a", "b", "first", rationale=f"reason {n}", row=n) for n in (3, 1, 2)))
    with workspace.store.unit() as db:
        assert db.execute("SELECT rationale FROM judgments").fetchall() == [("reason 1",)]


def test_decisions_are_appended_once_and_in_order(workspace: Workspace) -> None:
    put(workspace, row("a", "b", "first"))
    comparison, _ = Comparison.of(PROMPT, "a", "b")
    first = Decision(comparison.id, "pending", None, "queue", "asked for votes")
    second = Decision(comparison.id, "gold", "A", "majority", "three of three", margin=1.0)
    with workspace.store.unit() as db:
        assert records.insert_decisions(db, [first, second, second], "run-1") == 2
        assert records.insert_decisions(db, [second], "run-2") == 0
        assert db.execute("SELECT pool, label, margin FROM pools").fetchall() == [("gold", "A", 1.0)]
        assert records.insert_decisions(db, [first], "run-3") == 1
        assert db.execute("SELECT pool, label FROM pools").fetchall() == [("pending", None)]


def test_judgments_by_an_annotator(workspace: Workspace) -> None:
    with workspace.store.unit() as db:
        annotator = records.insert_annotator(db, "llm", "judge-1", {"model": "m"})
        judgment = Judgment("c-1", annotator, "A", strength=1, confidence=0.5, shown_order="BA", origin="1")
        assert records.insert_judgments(db, [judgment, judgment], "run-1") == 1
        assert records.insert_judgments(db, [judgment], "run-1") == 0
        assert db.execute("SELECT judgment_id, shown_order FROM judgments").fetchall() == [(judgment.id, "BA")]


def test_a_failed_score_is_kept_as_a_failure_until_a_score_comes(workspace: Workspace) -> None:
    keys = {"model": "rm", "version": "v", "template_hash": "t", "run_id": "run-1"}
    good = Score(1.5, "rm", "v", "t", tokens=7, truncated=False)
    with workspace.store.unit() as db:
        (response,) = records.insert_responses(db, [(PROMPT, "because")], "run-1")
        assert response == ids.response_id(ids.prompt_id(PROMPT), "because")
        records.insert_scores(db, [(response, ScoreFailure("timeout", "no answer"))], **keys)
        assert db.execute("SELECT reward, error FROM scores").fetchall() == [(None, "timeout: no answer")]
        records.insert_scores(db, [(response, good)], **keys)
        records.insert_scores(db, [(response, ScoreFailure("timeout", "again"))], **keys)
        assert db.execute("SELECT reward, error FROM scores").fetchall() == [(1.5, None)]


def test_failures_under_two_principles_are_two(workspace: Workspace) -> None:
    keys = {"model": "rm", "version": "v", "template_hash": "t", "run_id": "run-1"}
    failed = ScoreFailure("timeout", "no answer")
    with workspace.store.unit() as db:
        (response,) = records.insert_responses(db, [(PROMPT, "because")], "run-1")
        records.insert_scores(db, [(response, failed)] * 2, **keys, principles=["brief", "clear"])
        good = Score(1.5, "rm", "v", "t", tokens=7, truncated=False, principle="clear")
        records.insert_scores(db, [(response, good)], **keys, principles=["clear"])
        found = db.execute("SELECT principle, reward, error FROM scores ORDER BY principle").fetchall()
    assert found == [("brief", None, "timeout: no answer"), ("clear", 1.5, None)]
