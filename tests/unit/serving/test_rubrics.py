"""Rubric rewards: what is asked and read, failed items, gates, wrong files and labels, requests."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from assay.domain import Message
from assay.errors import BadInputError
from assay.runs.progress_bar import Advance, silent
from assay.score import Score, ScoreFailure, ScoreResult, margin_deviation, score_from_dict
from assay_serving.model_config import ModelConfig
from assay_serving.model_loader import open_scorer
from assay_serving.rubrics.aggregation import RubricAggregation
from assay_serving.rubrics.description import RubricSpec
from assay_serving.rubrics.grading import RubricScorer
from assay_serving.rubrics.rubric import rubric_items, with_rubric
from assay_serving.score_files import read_rows
from assay_serving.scorer import ModelInfo, ScoreItem, Scorer
from assay_serving.server.http.request_bodies import ScoreBody

PROMPT = (Message("user", "q"),)
METAL = {"text": "Names a metal", "name": "metal"}
SHORT = {"text": "Is short", "name": "short", "constraints": [{"kind": "max_words", "limit": 3}]}


class Contains:
    """Grades by the last word of the item: probability 0.9 where the response has it; fails on `?`."""

    def __init__(self, kind: str = "principle", *, sure: float | None = 0.9) -> None:
        self.info = ModelInfo("contains", "v1", kind, "t", 100)
        self.sure, self.calls = sure, list[list[ScoreItem]]()

    def score(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[ScoreResult]:
        self.calls.append(list(items))
        return [
            ScoreFailure("too_long", "a question mark", "contains")
            if "?" in str(item.principle)
            else Score(7.0, "contains", "v1", "t", tokens=5, truncated=False, probability=self._sure(item))
            for item in items
        ]

    def _sure(self, item: ScoreItem) -> float | None:
        found = str(item.principle).split()[-1] in str(item.response)
        return None if self.sure is None else self.sure if found else 1 - self.sure


def rubric_scorer(scorer: Scorer | None = None, **spec: Any) -> RubricScorer:
    description = {"kind": "rubric", "scorers": [{"name": "ask", "model": "m"}], **spec}
    return RubricScorer(RubricSpec.from_dict(description), {"ask": scorer or Contains()}, name="r")


def ask(response: str, *rubric: Any, **more: Any) -> ScoreItem:
    return ScoreItem(PROMPT, response, label=json.dumps({"rubric": list(rubric)}) if rubric else None, **more)


def only(scorer: RubricScorer, item: ScoreItem) -> Score:
    [result] = scorer.score([item])
    assert isinstance(result, Score), result
    assert score_from_dict(json.loads(json.dumps(result.to_dict()))) == result
    return result


def refused(scorer: RubricScorer, item: ScoreItem) -> str:
    [result] = scorer.score([item])
    assert isinstance(result, ScoreFailure)
    return result.message


def test_one_call_grades_all_items_of_all_responses() -> None:
    principles = Contains()
    scorer = rubric_scorer(principles, items=[SHORT])
    rude = {"text": "Says idiot", "weight": 2, "polarity": "negative"}
    results = scorer.score([ask(text, "Says gold", rude) for text in ("gold", "gold you idiot there", "glass")])
    [call] = principles.calls
    assert [(item.response, item.principle) for item in call] == [
        (text, item) for text in ("gold", "gold you idiot there", "glass") for item in ("Says gold", "Says idiot")
    ]
    assert not any(item.label for item in call)
    first = results[0]
    assert isinstance(first, Score)
    assert first.reward == pytest.approx((1 + 0.9 - 2 * 0.1) / 2)
    assert [(p.name, p.weight, p.model) for p in first.parts] == [
        ("short", 1.0, "constraints"),
        ("item-2", 1.0, "contains"),
        ("item-3", -2.0, "contains"),
    ]
    assert first.parts[0].evidence == "max_words: 1 word, at most 3 allowed"
    assert [result.reward for result in results if isinstance(result, Score)][1:] == pytest.approx([0.0, 0.45])
    assert (first.coverage, first.tokens, scorer.info.kind) == (1.0, 5, "rubric")


def test_a_failed_item_has_no_number_and_the_coverage_says_so() -> None:
    rubric = ("Says gold", "Is it gold?", SHORT)
    assert refused(rubric_scorer(), ask("gold", *rubric)) == (
        "2 of 3 items have a grade, and the rubric needs all; item-2: a question mark"
    )
    score = only(rubric_scorer(aggregate={"coverage": 0.6}), ask("gold", *rubric))
    assert [score.coverage, score.reward] == pytest.approx([2 / 3, 0.95])
    assert (score.parts[1].value, score.parts[1].failed) == (None, "too_long: a question mark")


def test_gates_say_which_item_closed_them() -> None:
    veto = {"text": "Says idiot", "name": "rude", "polarity": "negative", "veto": True}
    score = only(rubric_scorer(), ask("gold idiot", "Says gold", veto))
    assert (score.reward, [part.gate for part in score.parts]) == (0.0, [None, "veto"])
    must = {"text": "Says gold", "must_have": True}
    score = only(rubric_scorer(aggregate={"ceiling": 0.3}), ask("a glass", must, "Says glass", "Says a"))
    assert (score.reward, [part.gate for part in score.parts]) == (0.3, ["must_have", None, None])


def test_a_principle_alone_is_a_rubric_of_one_item() -> None:
    assert only(rubric_scorer(), ask("gold", principle="Says gold")).reward == pytest.approx(0.9)
    assert "neither the item's label nor the file has a rubric" in refused(rubric_scorer(), ask("gold"))
    for scorer, item in (
        (rubric_scorer(items=["Says gold"]), ask("gold", principle="Says a")),
        (rubric_scorer(), ask("gold", "Says gold", principle="Says a")),
    ):
        assert "a principle beside a rubric" in refused(scorer, item), "it would not be asked"


def test_a_grade_is_a_probability_or_bounded() -> None:
    rating = Contains("generative", sure=None)
    assert "without a probability; bound it" in refused(rubric_scorer(rating), ask("gold", "Says gold"))
    shaped = {"name": "ask", "model": "m", "shaping": [{"kind": "standardise", "mean": 1, "std": 9}]}
    assert only(rubric_scorer(rating, scorers=[shaped]), ask("gold", "x")).reward == pytest.approx(6 / 9)
    wide = {"name": "ask", "model": "m", "shaping": [{"kind": "standardise", "mean": 1, "std": 3}]}
    assert "outside [0, 1]" in refused(rubric_scorer(rating, scorers=[wide]), ask("gold", "x"))
    with pytest.raises(BadInputError, match=r"a scalar model gives no probability; bound its rewards"):
        rubric_scorer(Contains("scalar"))


@pytest.mark.parametrize(
    ("rubric", "message"),
    [
        ([], "has 0 items; a rubric has 1 to 100"),
        (["x"] * 1000, "has 1000 items; a rubric has 1 to 100"),
        ("be good", "must be a list of items"),
        ([METAL, {"weight": 2}], "rubric.1.text': is missing"),
        ([{"text": " "}], "rubric.0': text: is empty"),
        ([7], "rubric.0"),
        ([{"text": "a", "weigth": 2}], "rubric.0.weigth': unknown key"),
        ([{"text": "a", "weight": float("nan")}], "rubric"),
        ([{"text": "a", "weight": 0}, {"text": "b", "weight": 0}], "the weights of its items sum to 0"),
        ([METAL, METAL], "two items are named 'metal'"),
        ([{"text": "a", "veto": True, "must_have": True}], "either must_have or veto"),
        ([{"text": "a", "constraints": [{"kind": "file.py:Own"}]}], "constraints: "),
    ],
)
def test_wrong_rubrics_fail_in_one_line_and_alone(rubric: Any, message: str) -> None:
    with pytest.raises(BadInputError) as raised:
        rubric_items(rubric)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
    label = json.dumps({"rubric": rubric})
    wrong, right = rubric_scorer().score([ScoreItem(PROMPT, "gold", label=label), ask("gold", "Says gold")])
    assert isinstance(wrong, ScoreFailure)
    assert isinstance(right, Score)


def test_labels_name_neither_unknown_scorers_nor_programs() -> None:
    assert "no scorer 'judge'; there are ask" in refused(rubric_scorer(), ask("x", {"text": "a", "by": "judge"}))
    tests = {"text": "runs", "constraints": [{"kind": "python_tests", "tests": ["assert True"]}]}
    assert "running programs is off" in refused(rubric_scorer(), ask("x", tests))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"items": [{"text": ""}]}, r"text: is empty"),
        ({"items": [{"text": "a", "weight": 0}]}, "sum to 0"),
        ({"items": [{"text": "a", "by": "none"}]}, "no scorer 'none'"),
        ({"scorers": []}, "there is no scorer"),
        ({"aggregate": {"form": "sum"}}, "aggregate.form"),
        ({"scorers": [{"name": "ask", "model": "m", "shaping": [{"kind": "par"}]}]}, "compares with references"),
    ],
)
def test_wrong_files_name_the_field(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    content = {"kind": "rubric", "scorers": [{"name": "ask", "model": "m"}], "items": ["a"]} | change
    path = tmp_path / "r.yaml"
    path.write_text(yaml.safe_dump(content))
    with pytest.raises(BadInputError, match=message) as raised:
        RubricSpec.read(path)
    assert "r.yaml" in str(raised.value)


def test_a_file_of_constraints_needs_no_model(tmp_path: Path) -> None:
    path = tmp_path / "brief.yaml"
    path.write_text(yaml.safe_dump({"kind": "rubric", "items": [SHORT]}))
    scorer = open_scorer(ModelConfig(str(path)))
    [score] = scorer.score([ScoreItem(PROMPT, "one two")])
    assert isinstance(score, Score)
    assert (score.reward, scorer.info.name, scorer.info.kind) == (1.0, "brief", "rubric")
    (tmp_path / "self.yaml").write_text("kind: rubric\nscorers: [{name: a, model: self.yaml}]\n")
    with pytest.raises(BadInputError, match="is one model, not a reward made of several"):
        open_scorer(ModelConfig(str(tmp_path / "self.yaml")))


def test_rubrics_come_with_rows_and_requests(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    row = {"prompt": "q", "responses": ["gold", "glass"], "rubric": ["Says gold"], "label": [{"kind": "no_commas"}]}
    path.write_text(json.dumps(row) + "\n" + json.dumps(row | {"label": "text"}) + "\n")
    good, bad = read_rows(path)
    expected = {"constraints": [{"kind": "no_commas"}], "rubric": ["Says gold"]}
    assert [json.loads(item.label or "") for item in good.items] == [expected] * 2
    assert "not with a plain label" in str(bad.error)
    body = ScoreBody.model_validate({"prompt": "q", "responses": ["gold"], "rubric": ["Says gold"]})
    assert [item.label for item in body.score_items()] == [with_rubric(None, ["Says gold"])]
    assert body.score_items()[0] == ask("gold", "Says gold")
    with pytest.raises(ValueError, match="go into each of the items"):
        ScoreBody.model_validate({"items": [{"prompt": "q", "response": "a"}], "rubric": ["x"]})


def test_items_are_no_steps_and_no_members_whatever_their_names() -> None:
    named = [{"text": f"has {name}", "name": name} for name in ("step-1", "member-0", "member-1")]
    [score] = rubric_scorer().score([ask("r", *named)])
    assert isinstance(score, Score)
    assert (score.steps, score.members) == ((), ())
    assert margin_deviation(score, score) is None


def test_weights_that_cannot_be_summed_fail_their_response_alone() -> None:
    heavy = [{"text": "has a", "weight": 1e308}, {"text": "has b", "weight": 1e308}]
    first, second = rubric_scorer().score([ask("gold", *heavy), ask("gold", METAL)])
    assert isinstance(first, ScoreFailure)
    assert "weight" in first.message
    assert isinstance(second, Score)


def test_breaking_a_veto_never_pays() -> None:
    items = rubric_items(
        [{"text": "a"}, {"text": "b", "polarity": "negative", "weight": 3}, {"text": "v", "veto": True}]
    )
    unclipped = RubricAggregation(clip=False)
    assert unclipped.reward(items, [0.0, 1.0, 1.0]).reward == -1.0
    assert unclipped.reward(items, [0.0, 1.0, 0.0]).reward == -1.5
    assert RubricAggregation().reward(items, [1.0, 0.0, 0.0]).reward == 0.0


def test_a_scorer_with_a_principle_of_its_own_grades_no_items() -> None:
    with pytest.raises(BadInputError, match="the principle is the text of each item"):
        RubricSpec.from_dict({"kind": "rubric", "scorers": [{"name": "ask", "model": "m", "principle": "p"}]})
