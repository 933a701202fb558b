"""Cleaning and deduplication decide with reasons, once; statistics count what is there."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from assay.errors import BadInputError
from assay.store.intake import pair_schema, store_pairs
from assay.store.records import Decision, insert_decisions
from assay.workspace import Workspace
from assay_pipelines.cleaning import CleanConfig, clean
from assay_pipelines.deduplication import dedup
from assay_pipelines.statistics import statistics


def put(workspace: Workspace, *pairs: tuple[Any, str, str, str], source: str = "test") -> None:
    """(prompt text or messages, first, second, label)"""
    rows = [
        {
            "row": number,
            "messages": prompt if isinstance(prompt, list) else [{"role": "user", "content": prompt}],
            "first": first,
            "second": second,
            "label": label,
            "source": source,
            "record_id": str(number),
        }
        for number, (prompt, first, second, label) in enumerate(pairs)
    ]
    with workspace.store.unit() as db:
        store_pairs(db, pa.Table.from_pylist(rows, schema=pair_schema()), None)


def apply(workspace: Workspace, config: CleanConfig | None = None) -> dict[str, int]:
    with workspace.store.unit() as db:
        return clean(db, config or CleanConfig(), None)


def rules(workspace: Workspace) -> dict[str, str]:
    """A response's text -> the rule that discarded its comparison."""
    with workspace.store.unit() as db:
        return dict(
            db.execute(
                """SELECT content, rule FROM pools p JOIN responses r ON r.response_id IN (p.response_a, p.response_b)
                   WHERE pool = 'discarded'"""
            ).fetchall()
        )


def test_rules_discard_with_a_reason_and_only_once(workspace: Workspace) -> None:
    put(
        workspace,
        ("p", "fine", "also fine", "first"),
        ("p", "blank", " \u00a0\u200b\n", "first"),
        ("p", "Same  Text", "same text\n", "first"),
        ([{"role": "user", "content": "p"}, {"role": "assistant", "content": "hm"}], "after assistant", "x", "first"),
        ("  ", "no prompt", "x", "first"),
        ("p", "bell \x07", "x", "first"),
        ("p", "l" * 50, "x", "first"),
    )
    counts = apply(workspace, CleanConfig(max_characters=49))
    assert counts == {
        "empty_prompt": 1,
        "prompt_end": 1,
        "empty_response": 1,
        "identical_responses": 1,
        "long_response": 1,
        "control_characters": 1,
    }
    found = rules(workspace)
    assert found["blank"] == "empty_response"
    assert found["Same  Text"] == "identical_responses"
    assert found["after assistant"] == "prompt_end"
    assert "fine" not in found
    assert set(apply(workspace, CleanConfig(max_characters=49)).values()) == {0}
    with pytest.raises(BadInputError, match="must not be negative"):
        CleanConfig(max_characters=-1)


def test_what_a_person_put_back_stays(workspace: Workspace) -> None:
    put(workspace, ("p", "bell \x07", "x", "first"))
    apply(workspace)
    with workspace.store.unit() as db:
        row = db.execute("SELECT comparison_id FROM comparisons").fetchone()
        assert row is not None
        insert_decisions(db, [Decision(row[0], "silver", "A", "review", "the bell belongs there")], None)
    assert sum(apply(workspace).values()) == 0
    with workspace.store.unit() as db:
        assert db.execute("SELECT pool FROM pools").fetchone() == ("silver",)


def test_duplicates_keep_one_and_name_it(workspace: Workspace) -> None:
    put(
        workspace,
        ("What?", "Yes it is", "no", "first"),
        ("what? ", "NO", "yes  it is", "second"),
        ("Else?", "a", "b", "first"),
    )
    with workspace.store.unit() as db:
        counts = dedup(db, None)
        again = dedup(db, None)
        rows = db.execute("SELECT comparison_id, pool, reason FROM pools ORDER BY pool").fetchall()
    assert (counts.duplicates, counts.contradictions) == (1, 0)
    assert (again.duplicates, again.contradictions) == (0, 0)
    (gone, _, reason), *kept = rows
    assert [pool for _, pool, _ in rows] == ["discarded", "unverified", "unverified"]
    assert gone not in reason
    assert any(comparison in reason for comparison, _, _ in kept)


def test_contradictions_are_set_aside_with_evidence(workspace: Workspace) -> None:
    put(workspace, ("p", "left", "right", "first"), ("q", "left", "right", "first"), ("r", "one", "two", "first"))
    put(
        workspace,
        ("p", "left", "right", "second"),
        ("q", "Left", "RIGHT", "second"),
        ("r", "one", "two", "tie"),
        source="other",
    )
    with workspace.store.unit() as db:
        counts = dedup(db, None)
        reasons = [r for (r,) in db.execute("SELECT reason FROM pools WHERE pool = 'discarded'").fetchall()]
        left = db.execute("SELECT count(*) FROM pools WHERE pool = 'unverified'").fetchone()
    assert counts.contradictions == 3, "one pair judged twice, and two spellings of another"
    assert counts.exact_repeats == 2
    assert left == (1,)
    assert all("test prefers" in reason and "other prefers" in reason for reason in reasons)


def test_a_gold_decision_outranks_duplicates_and_contradictions(workspace: Workspace) -> None:
    put(workspace, ("p", "left", "right", "first"), ("p", "LEFT", "right", "second"))
    with workspace.store.unit() as db:
        ids = [c for (c,) in db.execute("SELECT comparison_id FROM comparisons ORDER BY 1 DESC").fetchall()]
        insert_decisions(db, [Decision(ids[0], "gold", "A", "vote", "unanimous")], None)
        dedup(db, None)
        pools = dict(db.execute("SELECT comparison_id, pool FROM pools").fetchall())
    assert pools == {ids[0]: "gold", ids[1]: "discarded"}


def test_statistics_count_by_hand(workspace: Workspace) -> None:
    put(workspace, ("p", "long answer", "no", "first"), ("q", "abc", "long answer", "first"), ("r", "ab", "cd", "tie"))
    with workspace.store.unit() as db:
        found = statistics(db)
    assert found["pools"] == {"unverified": 3}
    assert found["sources"] == {"test": 3}
    assert found["longer_is_chosen"] == 0.5
    assert found["labels"]["tie"] == 1
    assert found["labels"]["a"] + found["labels"]["b"] == 2
    assert found["lengths"]["longest"] == len("long answer")
    assert found["judgments"] == {"source": 3}


def test_statistics_of_nothing(workspace: Workspace) -> None:
    with workspace.store.unit() as db:
        found = statistics(db)
    assert found["longer_is_chosen"] is None
    assert found["tables"]["comparisons"] == 0
