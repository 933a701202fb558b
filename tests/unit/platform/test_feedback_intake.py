"""Feedback and principle judgments: written once, with their responses, annotators and origins."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from assay import ids
from assay.domain import Message
from assay.store import identity
from assay.store.feedback_intake import (
    FeedbackCounts,
    feedback_schema,
    principle_schema,
    store_feedback,
    store_principle_judgments,
)
from assay.workspace import Workspace

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
