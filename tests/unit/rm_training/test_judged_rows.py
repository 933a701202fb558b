"""Judged rows: verdicts and rationales stay with the response they are about, whichever way round it is shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from hypothesis import given
from hypothesis import strategies as st

from assay.data.json_lines import RowError
from assay.domain import Answer, Message, swap_answer
from assay.errors import BadInputError, NotFoundError
from assay.http.running import running_app
from assay.workspace import Workspace
from assay_rm_training.generative.evaluation import evaluate_judge
from assay_rm_training.generative.judged_rows import (
    JudgedRow,
    content_free_rows,
    read_judged,
    read_judged_file,
    rows_of,
    swap_mentions,
)
from assay_rm_training.generative.sft import GenerativeSft
from assay_serving.chat.client import ChatEndpoint
from assay_serving.generative.content_free import CONTENT_FREE
from assay_serving.generative.remote import RemoteWriter
from assay_serving.generative.templates import PAIRWISE, POINTWISE, RATING, format_named

PROMPT = (Message("user", "Q?"),)


def test_a_judged_pair_with_its_rationale() -> None:
    record = {"prompt": "Q?", "responses": ["good", "bad"], "verdict": "a", "rationale": "Response A is good."}
    (row,) = rows_of(record, PAIRWISE)
    assert row == JudgedRow(PROMPT, ("good", "bad"), "A", "Response A is good.")
    other = row.swapped()
    assert other == JudgedRow(PROMPT, ("bad", "good"), "B", "Response B is good.")
    assert other is not None
    assert other.swapped() == row
    assert row.answer(PAIRWISE) == "Response A is good.\nVerdict: A"


def test_a_normalised_pair_keeps_the_order_its_rationale_is_about() -> None:
    record = {"prompt": "Q?", "chosen": "good", "rejected": "bad", "responses": ["bad", "good"], "rationale": "x"}
    (row,) = rows_of(record, PAIRWISE)
    assert (row.responses, row.label) == (("bad", "good"), "B")


def test_rationales_by_side_follow_their_side() -> None:
    record = {"prompt": "Q?", "chosen": "good", "rejected": "bad", "responses": ["bad", "good"]}
    record["rationale"] = "CHOSEN: It is right. || REJECTED: It is\nwrong."
    (pair,) = rows_of(record, PAIRWISE)
    assert pair.rationale == "Response A: It is\nwrong.\nResponse B: It is right."
    yes, no = rows_of(record, POINTWISE)
    assert (yes.responses, yes.label, yes.rationale) == (("good",), "Yes", "It is right.")
    assert (no.responses, no.label, no.rationale) == (("bad",), "No", "It is\nwrong.")


@pytest.mark.parametrize(
    ("rationale", "swapped"),
    [
        ("Response A beats response B; A cat.", "Response B beats response A; A cat."),
        ("Both Responses A and B are fine.", None),  # the second is named by its letter alone
        ("B is better.", None),
        ("The first one is better.", "The first one is better."),
        ("Answers B lack Vitamin B.", None),
        ("", ""),
    ],
)
def test_mentions_of_sides_are_swapped_or_the_rationale_is_not(rationale: str, swapped: str | None) -> None:
    assert swap_mentions(rationale) == swapped


@given(st.text(alphabet="ABab .Responses\n"))
def test_swapping_twice_gives_the_same_text(text: str) -> None:
    once = swap_mentions(text)
    if once is not None:
        assert swap_mentions(once) == text


def test_single_responses_and_ratings() -> None:
    assert rows_of({"prompt": "Q?", "response": "ok", "verdict": True}, POINTWISE)[0].label == "Yes"
    assert rows_of({"prompt": "Q?", "responses": ["ok"], "verdict": "no", "principle": "Short."}, POINTWISE) == [
        JudgedRow(PROMPT, ("ok",), "No", principle="Short.")
    ]
    assert rows_of({"prompt": "Q?", "response": "ok", "verdict": 10}, RATING)[0].label == "10"
    assert rows_of({"prompt": "Q?", "chosen": None, "rejected": None}, PAIRWISE) == []
    assert rows_of({"prompt": "Q?", "responses": ["a", "b"], "verdict": "tie"}, PAIRWISE) == []


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"prompt": "Q?", "responses": ["a"], "verdict": "A"}, "reads 2 responses"),
        ({"prompt": "Q?", "responses": ["a", "b"], "verdict": "C"}, "one of A, B"),
        ({"responses": ["a", "b"], "verdict": "A"}, "missing"),
        ({"prompt": "Q?", "chosen": "x", "rejected": "y", "rationale": 3}, "wrong type"),
    ],
)
def test_bad_rows_are_named(record: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(RowError, match=message):
        rows_of(record, PAIRWISE)
    path = tmp_path / "rows.jsonl"
    good = {"prompt": "Q?", "responses": ["a", "b"], "verdict": "A"}
    path.write_text(json.dumps(good) + "\n" + json.dumps(record) + "\n", encoding="utf-8")
    with pytest.raises(BadInputError, match="row 2"):
        read_judged_file(path, PAIRWISE)


def test_pairs_give_no_rating() -> None:
    with pytest.raises(RowError, match="a pair has no rating"):
        rows_of({"prompt": "Q?", "chosen": "x", "rejected": "y"}, RATING)


def test_a_rationale_with_a_verdict_of_its_own_is_no_answer() -> None:
    assert JudgedRow(PROMPT, ("a", "b"), "A", "Verdict: B\nNo.").answer(PAIRWISE) is None
    assert JudgedRow(PROMPT, ("a", "b"), "A").answer(PAIRWISE) == "Verdict: A"


def test_a_snapshot_brings_the_rationales_of_its_judgments(workspace: Workspace, fill_comparisons: Any) -> None:
    from assay.data.snapshots import Selection, create_snapshot
    from assay.domain import Judgment
    from assay.store.records import insert_annotator, insert_judgments

    first, second = fill_comparisons(2)
    with workspace.store.unit() as db:
        annotator = insert_annotator(db, "human", "ann")
        label: dict[str, Answer] = dict(db.execute("SELECT comparison_id, answer FROM judgments").fetchall())
        wrong = swap_answer(label[second])
        insert_judgments(
            db,
            [
                Judgment(first, annotator, label[first], rationale="Response B is odd.", shown_order="BA"),
                Judgment(second, annotator, wrong, rationale="I differ."),
            ],
            None,
        )
    create_snapshot(workspace, "all", Selection(), None)
    rows = {row.label + row.rationale: row for row in read_judged(workspace, "all", PAIRWISE)}
    # Said of what was shown as B, which is the comparison's A; and a rationale for the other side is not taken.
    assert set(rows) == {label[first] + "Response A is odd.", label[second]}
    with pytest.raises(NotFoundError, match="neither a snapshot"):
        read_judged(workspace, "none", PAIRWISE)


def test_answers_that_say_nothing_never_are_the_right_ones() -> None:
    rows = [JudgedRow((Message("user", f"Q{n}?"),), ("bad", "good"), "B") for n in range(12)]
    made = content_free_rows([*rows, rows[0]], PAIRWISE)
    assert [row.responses for row in made[:2]] == [("good", CONTENT_FREE[0]), ("good", CONTENT_FREE[1])]
    assert len(made) == 12
    assert {row.label for row in made} == {"A"}
    single = content_free_rows([JudgedRow(PROMPT, ("good",), "Yes")], POINTWISE)
    assert single == [JudgedRow(PROMPT, (CONTENT_FREE[0],), "No")]
    with pytest.raises(BadInputError, match="no verdict that would be wrong"):
        content_free_rows([], RATING)
    with pytest.raises(BadInputError, match="no verdict that would be wrong"):
        content_free_rows([], format_named("llama-guard"))
    assert [row.label for row in content_free_rows(rows[:1], format_named("arena-hard"))] == ["A"]


def test_answers_that_say_nothing_can_be_trained_on_but_are_not_held_out() -> None:
    rows = [JudgedRow((Message("user", f"Q{n}?"),), ("good", "bad"), "A", "Fine.") for n in range(4)]
    method = GenerativeSft("pairwise", content_free=0.5)
    trained, held = method.divide(rows, rows[:1])
    assert list(trained[:4]) == rows
    assert [row.responses for row in trained[4:]] == [("good", CONTENT_FREE[0]), ("good", CONTENT_FREE[1])]
    other = trained[4].swapped()
    assert other is not None
    assert other.answer(PAIRWISE) == "Response A says nothing.\nVerdict: B"
    assert held == rows[:1]
    assert GenerativeSft("pairwise").divide(rows, None) == (rows, None)
    assert method.describe(trained) == {"labels": {"A": 6}}
    with pytest.raises(BadInputError, match="from 0 to 1"):
        GenerativeSft("pairwise", content_free=2.0)


def test_a_judge_profile_is_no_format_to_train_in() -> None:
    with pytest.raises(BadInputError, match="mt-bench is a judge profile; judges are trained in pointwise, rating"):
        GenerativeSft(format="mt-bench")


def test_scores_of_a_range_are_compared_as_numbers() -> None:
    form = format_named("j1-pointwise")
    rows = [row for v in (7.5, "7.50", 7) for row in rows_of({"prompt": "p", "response": "r", "verdict": v}, form)]
    assert [row.label for row in rows] == ["7.5", "7.5", "7"]
    with pytest.raises(RowError, match="is a number"):
        rows_of({"prompt": "p", "response": "r", "verdict": "good"}, form)
    app = FastAPI()

    @app.post("/v1/chat/completions")
    def complete() -> dict[str, Any]:
        return {"choices": [{"message": {"content": "<score> 7.5 </score>"}, "finish_reason": "stop"}]}

    with running_app(app) as url:
        evaluation = evaluate_judge(*RemoteWriter.open(ChatEndpoint(f"{url}/v1", "judge"), form.judging), rows)
    assert evaluation.figures["accuracy"].value == pytest.approx(2 / 3)
