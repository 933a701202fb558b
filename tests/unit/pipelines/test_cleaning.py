"""Cleaning and deduplication decide with reasons, once; statistics count what is there."""

from __future__ import annotations

import unicodedata
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.domain import Judgment, swap_answer
from assay.errors import BadInputError
from assay.store.database import registered
from assay.store.intake import pair_schema, store_pairs
from assay.store.records import Decision, insert_annotator, insert_decisions, insert_judgments
from assay.workspace import Workspace
from assay_pipelines.hygiene.cleaning import CleanConfig, clean
from assay_pipelines.hygiene.dataset_statistics import statistics
from assay_pipelines.hygiene.deduplication import dedup, find_contradictions
from assay_pipelines.hygiene.pair_keys import blank, same_text
from assay_pipelines.hygiene.text_statistics import languages, text_statistics


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
    return clean(workspace, config or CleanConfig(), None)


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
    with pytest.raises(BadInputError, match="must be at least 0, not -1"):
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
    counts = dedup(workspace, None)
    again = dedup(workspace, None)
    with workspace.store.unit() as db:
        rows = db.execute("SELECT comparison_id, pool, reason FROM pools ORDER BY pool").fetchall()
        basis = db.execute("SELECT unnest(basis) FROM decisions").fetchall()
    assert (counts.duplicates, counts.contradictions) == (1, 0)
    assert (again.duplicates, again.contradictions) == (0, 0)
    (gone, _, reason), *kept = rows
    assert [pool for _, pool, _ in rows] == ["discarded", "unverified", "unverified"]
    assert gone not in reason
    (twin,) = [comparison for comparison, _, _ in kept if comparison in reason]
    assert basis == [({"relation": "duplicate of", "ref": twin},)]


def test_contradictions_are_set_aside_with_evidence(workspace: Workspace) -> None:
    put(workspace, ("p", "left", "right", "first"), ("q", "left", "right", "first"), ("r", "one", "two", "first"))
    put(
        workspace,
        ("p", "left", "right", "second"),
        ("q", "Left", "RIGHT", "second"),
        ("r", "one", "two", "tie"),
        source="other",
    )
    counts = dedup(workspace, None)
    with workspace.store.unit() as db:
        reasons = [r for (r,) in db.execute("SELECT reason FROM pools WHERE pool = 'discarded'").fetchall()]
        left = db.execute("SELECT count(*) FROM pools WHERE pool = 'unverified'").fetchone()
        checked = db.execute(
            """SELECT list_sort(list(DISTINCT n.name)), any_value(len(d.basis))
               FROM (SELECT *, unnest(basis) AS e FROM decisions) d JOIN judgments j ON j.judgment_id = e.ref
               JOIN annotators n USING (annotator_id) WHERE e.relation = 'checked' GROUP BY d.comparison_id"""
        ).fetchall()
    assert checked == [(["other", "test"], 2)] * 3, "the two labels that are opposite"
    assert counts.contradictions == 3, "one pair judged twice, and two spellings of another"
    assert counts.exact_repeats == 2
    assert left == (1,)
    assert all("test prefers" in reason and "other prefers" in reason for reason in reasons)


def test_a_gold_decision_outranks_duplicates_and_contradictions(workspace: Workspace) -> None:
    put(workspace, ("p", "left", "right", "first"), ("p", "LEFT", "right", "second"))
    with workspace.store.unit() as db:
        ids = [c for (c,) in db.execute("SELECT comparison_id FROM comparisons ORDER BY 1 DESC").fetchall()]
        insert_decisions(db, [Decision(ids[0], "gold", "A", "vote", "unanimous")], None)
    dedup(workspace, None)
    with workspace.store.unit() as db:
        pools = dict(db.execute("SELECT comparison_id, pool FROM pools").fetchall())
    assert pools == {ids[0]: "gold", ids[1]: "discarded"}


def test_statistics_count_by_hand(workspace: Workspace) -> None:
    put(workspace, ("p", "long answer", "no", "first"), ("q", "abc", "long answer", "first"), ("r", "ab", "cd", "tie"))
    with workspace.store.unit() as db:
        found = statistics(db)
    texts = text_statistics(workspace)
    assert found["pools"] == {"unverified": 3}
    assert found["sources"] == {"test": 3}
    assert found["labels"]["tie"] == 1
    assert found["labels"]["a"] + found["labels"]["b"] == 2
    assert found["judgments"] == {"source": 3}
    assert texts["longer_is_chosen"] == 0.5
    assert texts["lengths"]["longest"] == len("long answer")
    assert texts["tokens"]["longest"] == 3
    assert (texts["chosen_lengths"]["responses"], texts["chosen_lengths"]["mean"]) == (2, 7.0)
    assert texts["longer_is_chosen_by_source"]["test"]["longer_is_chosen"] == 0.5
    assert texts["languages"] == {"prompts": 3, "counts": {"unknown": 3}}


def test_statistics_of_nothing(workspace: Workspace) -> None:
    with workspace.store.unit() as db:
        found = statistics(db)
    texts = text_statistics(workspace)
    assert texts["longer_is_chosen"] is None
    assert texts["languages"] == {"prompts": 0, "counts": {}}
    assert found["tables"]["comparisons"] == 0


def test_length_bias_is_told_by_source(workspace: Workspace) -> None:
    put(workspace, *[(f"p{n}", "a long answer", "short", "first") for n in range(3)], source="long")
    put(workspace, *[(f"q{n}", "a long answer", "short", "second") for n in range(4)], source="short")
    put(workspace, ("same", "ab", "cd", "first"), source="even")
    by_source = text_statistics(workspace)["longer_is_chosen_by_source"]
    assert {source: row["longer_is_chosen"] for source, row in by_source.items()} == {
        "short": 0,
        "long": 1,
        "even": None,
    }


def test_languages_of_prompts_and_of_a_sample(workspace: Workspace) -> None:
    texts = {
        "en": "What is the best way to learn how to play the piano?",
        "de": "Wie lerne ich am besten, auf dem Klavier zu spielen, und wie lange dauert das?",
        "fr": "Quelle est la meilleure façon d'apprendre à jouer du piano ?",
        "zh": "学习弹钢琴的最好方法是什么？",
        "unknown": "12 + 34 = ?",
    }
    put(workspace, *[(f"{text}{' ' * n}", "a", "b", "first") for text in texts.values() for n in range(40)])
    assert languages(workspace)["counts"] == dict.fromkeys(texts, 40)
    sampled = languages(workspace, sample=100)
    assert sampled["prompts"] == 100
    assert set(sampled["counts"]) == set(texts)


MEMORY = duckdb.connect()
spaced = st.text(st.sampled_from("aAbÀe\u0301É .\t\n\v\u00a0\u200b\u3000\ufeff\u2028"), max_size=12)


@settings(max_examples=60, deadline=None)
@given(st.lists(spaced, min_size=1, max_size=8))
def test_the_same_text_is_what_the_rule_says(some: list[str]) -> None:

    odd = "\t\n\v\f\r\x85\xa0\u1680\u2028\u2029\u202f\u205f\u2060\u3000\ufeff" + "".join(
        map(chr, range(0x2000, 0x200E))
    )
    with registered(MEMORY, "texts", pa.table({"t": some})):
        found = MEMORY.execute(f"SELECT t, {same_text('t')}, {blank('t')} FROM texts").fetchall()
    for text, same, empty in found:
        spaces = "".join(" " if c in odd else c for c in unicodedata.normalize("NFC", text).lower())
        assert same == " ".join(part for part in spaces.split(" ") if part)
        assert empty == (not same)


@pytest.mark.slow
def test_contradictions_are_shown_with_sources_votes_and_texts(workspace: Workspace) -> None:
    put(workspace, ("p", "left", "right", "first"), ("q", "one", "two", "first"), ("r", "yes", "no", "first"))
    put(
        workspace,
        ("p", "left", "right", "second"),
        ("Q ", "TWO", "one", "first"),
        ("r", "yes", "no", "tie"),
        source="other",
    )
    total, found = find_contradictions(workspace)
    assert (total, len(found)) == (2, 2)
    exact, spelled = sorted(found, key=lambda c: not c.exact)
    assert {exact.response_1, exact.response_2} == {"left", "right"}
    assert exact.prompt == (("user", "p"),)
    for contradiction, chosen in (
        (exact, {"test": "left", "other": "right"}),
        (spelled, {"test": "one", "other": "two"}),
    ):
        texts = (contradiction.response_1, contradiction.response_2)
        said = {s.annotator: texts[s.prefers - 1].lower() for s in contradiction.statements}
        assert said == chosen
    assert len(spelled.comparisons) == 2
    dedup(workspace, None)
    again, after = find_contradictions(workspace, limit=1)
    assert (again, len(after)) == (2, 1), "what dedup has set aside is shown all the same"
    assert set(after[0].comparisons.values()) == {"discarded"}
    put(workspace, ("r", "yes", "no", "second"), source="third")
    assert find_contradictions(workspace)[0] == 3


def test_other_annotators_are_shown_but_do_not_contradict(workspace: Workspace) -> None:
    put(workspace, ("p", "left", "right", "first"))
    with workspace.store.unit() as db:
        comparison = db.execute("SELECT comparison_id FROM comparisons").fetchall()[0][0]
        answer = db.execute("SELECT answer FROM judgments").fetchall()[0][0]
        person = insert_annotator(db, "human", "ann")
        insert_judgments(db, [Judgment(comparison, person, swap_answer(answer))], None)
    assert find_contradictions(workspace) == (0, [])
    put(workspace, ("p", "left", "right", "second"), source="other")
    _, (found,) = find_contradictions(workspace)
    assert [(s.kind, s.annotator) for s in found.statements] == [
        ("source", "other"),
        ("source", "test"),
        ("human", "ann"),
    ]
