"""Feedback and principle judgments: written once, with their responses, annotators and origins."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay import ids
from assay.annotation.vote_journal import JournalWriter, fold
from assay.backups.rebuild import rebuild
from assay.data.json_lines import RowError
from assay.domain import Message, ResponseJudgment, StepJudgment
from assay.runs.lineage import lineage
from assay.runs.record import start_run
from assay.store import identity
from assay.store.feedback_intake import (
    FeedbackCounts,
    feedback_schema,
    principle_schema,
    rated_schema,
    store_feedback,
    store_principle_judgments,
    store_rated,
)
from assay.store.integrity import dangling, repeated
from assay.workspace import Workspace
from assay_pipelines.importers.rows import mark, rating

PROMPT = (Message("user", "Why is the sky blue?"),)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)


def row(**changes: Any) -> dict[str, Any]:
    base = {"row": 1, "messages": [m.to_dict() for m in PROMPT], "response": "Rayleigh.", "kind": "human"}
    return {**base, "voter": "w1", "source": "set", "record_id": "f#1", "category": "physics", **changes}


def test_feedback_twice_is_written_once(workspace: Workspace) -> None:
    rows = [row(content="True."), row(content="True.", row=2), row(content="Short.", voter=None, kind="source")]
    batch = pa.Table.from_pylist(rows, schema=feedback_schema())
    with workspace.store.unit() as db:
        assert store_feedback(db, batch, "run-1") == FeedbackCounts(prompts=1, responses=1, feedback=2)
        assert store_feedback(db, batch, "run-2") == FeedbackCounts()
        found = db.execute(
            "SELECT kind, name, content FROM feedback JOIN annotators USING (annotator_id) ORDER BY 1"
        ).fetchall()
        origins = db.execute("SELECT source, record_id, category FROM response_origins").fetchall()
    assert found == [("human", "set/w1", "True."), ("source", "set", "Short.")]
    assert origins == [("set", "f#1", "physics")]


def test_principle_judgments_share_responses_and_principles(workspace: Workspace) -> None:
    rows = [
        row(principle="clear", answer="yes", evidence="It is clear."),
        row(principle="clear", answer="no", voter="w2"),
        row(principle="clear", answer="yes", response="Paint."),
    ]
    batch = pa.Table.from_pylist(rows, schema=principle_schema())
    with workspace.store.unit() as db:
        counts = store_principle_judgments(db, batch, None)
        assert counts == FeedbackCounts(prompts=1, responses=2, principles=1, principle_judgments=3)
        assert store_principle_judgments(db, batch, None) == FeedbackCounts()
        evidence = db.execute("SELECT evidence FROM principle_judgments WHERE evidence IS NOT NULL").fetchall()
    assert evidence == [("It is clear.",)]


def rated(number: int = 1, **changes: Any) -> dict[str, Any]:
    ratings = [rating("helpfulness", 4, scale=(1, 5), voter="w1", kind="human"), rating("score", -3.25)]
    marks = [mark(0, 4, step=0, value=-1, scale=(-1, 1)), mark(5, 9, label="irrelevant", voter="w1", kind="human")]
    return row(row=number, ratings=ratings, marks=marks, meta='{"model": "m"}', **changes)


def test_ratings_and_marks_twice_are_written_once(workspace: Workspace) -> None:
    batch = pa.Table.from_pylist([rated(), rated(2), rated(3, response="Paint.")], schema=rated_schema())
    with workspace.store.unit() as db:
        counts = store_rated(db, batch, "run-1")
        assert counts == FeedbackCounts(prompts=1, responses=2, response_judgments=4, step_judgments=4)
        assert store_rated(db, batch, "run-2") == FeedbackCounts()
        ratings = db.execute(
            """SELECT kind, name, aspect, value, low, high FROM response_judgments JOIN annotators USING (annotator_id)
               JOIN responses USING (response_id) WHERE content = 'Paint.' ORDER BY 1"""
        ).fetchall()
        marks = db.execute(
            """SELECT kind, name, step, start, "end", label, value, low, high
               FROM step_judgments JOIN annotators USING (annotator_id) JOIN responses USING (response_id)
               WHERE content = 'Paint.' ORDER BY start"""
        ).fetchall()
        assert db.execute("SELECT DISTINCT meta FROM response_origins").fetchall() == [('{"model": "m"}',)]
        assert (dangling(db), repeated(db)) == ({"response_judgments.run_id": 4, **MISSING_RUN}, {})
    assert ratings == [("human", "set/w1", "helpfulness", 4.0, 1.0, 5.0), ("source", "set", "score", -3.25, None, None)]
    assert marks == [
        ("source", "set", 0, 0, 4, None, -1.0, -1.0, 1.0),
        ("human", "set/w1", None, 5, 9, "irrelevant", None, None, None),
    ]


#: The run that the test's rows name is in no store.
MISSING_RUN = {"step_judgments.run_id": 4, "prompts.run_id": 1, "responses.run_id": 2}


def test_a_rating_that_is_taken_back_stands_no_more(workspace: Workspace) -> None:
    with workspace.store.unit() as db:
        store_rated(db, pa.Table.from_pylist([rated()], schema=rated_schema()), None)
        gone = db.execute("SELECT judgment_id FROM response_judgments WHERE aspect = 'score'").fetchall()
        gone += db.execute("SELECT judgment_id FROM step_judgments WHERE step IS NULL").fetchall()
    with JournalWriter(workspace.journal) as journal:
        for (judgment_id,) in gone:
            journal.withdraw(judgment_id, "by its annotator")
    fold(workspace)
    with workspace.store.unit() as db:
        assert db.execute("SELECT aspect FROM standing_response_judgments").fetchall() == [("helpfulness",)]
        assert db.execute("SELECT step FROM standing_step_judgments").fetchall() == [(0,)]


@pytest.mark.slow
def test_labels_of_responses_come_back_from_the_log_alone_and_have_a_lineage(workspace: Workspace) -> None:
    batch = pa.Table.from_pylist([rated(), rated(2, response="Paint.")], schema=rated_schema())
    with start_run(workspace, "import", {}) as run, workspace.store.unit() as db:
        store_rated(db, batch, run.id)
    tables = ("response_judgments", "step_judgments")
    queries = [f"SELECT COLUMNS(*)::VARCHAR FROM {table} ORDER BY judgment_id" for table in tables]
    with workspace.store.unit() as db:
        before = [db.execute(query).fetchall() for query in queries]
    workspace.store.path.unlink()
    rebuild(workspace)
    with workspace.store.unit() as db:
        assert [db.execute(query).fetchall() for query in queries] == before
    assert [len(rows) for rows in before] == [4, 4]
    for rows, about in zip(before, ("rating of ", "characters "), strict=True):
        judgment, response, annotator = rows[0][:3]
        up = lineage(workspace, judgment, "up", depth=1)
        assert about in up.about
        assert {node.id for node in up.walk()} == {judgment, response, annotator, run.id}
        for origin in (response, annotator, run.id):
            assert judgment in {node.id for node in lineage(workspace, origin, "down", depth=1, width=9).walk()}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 6, 0.5])
def test_what_is_no_number_on_its_scale_is_refused_by_name(value: float) -> None:
    with pytest.raises(RowError) as refused:
        rating("helpfulness", value, scale=(1, 5))
    assert refused.value.field == "helpfulness"


@pytest.mark.slow
@given(TEXT, st.none() | st.floats(allow_nan=False, allow_infinity=False), st.none() | st.integers(0, 99), TEXT)
def test_ids_of_ratings_and_marks_in_sql_are_those_of_python(
    text: str, value: float | None, step: int | None, origin: str
) -> None:
    import duckdb

    expressions = (
        identity.response_judgment_id("'r-1'", "'a-1'", "$t", "$v::DOUBLE", "$o"),
        identity.step_judgment_id("'r-1'", "'a-1'", "$s::INTEGER", "3", "7", "nullif($t, 'x')", "$v::DOUBLE", "$o"),
    )
    with duckdb.connect() as db:
        values = {"t": text, "v": value, "o": origin, "s": step}
        found = db.execute(f"SELECT {', '.join(expressions)}", values).fetchone()
    label = None if text == "x" else text
    assert found == (
        ResponseJudgment("r-1", "a-1", text, value, origin=origin).id,
        StepJudgment("r-1", "a-1", 3, 7, step, label, value, origin=origin).id,
    )


@pytest.mark.slow
@given(TEXT, TEXT, TEXT)
def test_ids_in_sql_are_the_ids_of_python(response: str, annotator: str, text: str) -> None:
    import duckdb

    expressions = (
        identity.feedback_id("$r", "$a", "$t"),
        identity.principle_id("$t"),
        identity.principle_judgment_id("$r", "$t", "$a", "'yes'"),
    )
    with duckdb.connect() as db:
        found = db.execute(f"SELECT {', '.join(expressions)}", {"r": response, "a": annotator, "t": text}).fetchone()
    assert found == (
        ids.feedback_id(response, annotator, text),
        ids.principle_id(text),
        ids.principle_judgment_id(response, text, annotator, "yes"),
    )
