"""Rubric rewards by hand and by the publishers' formulas: HealthBench's points, the mean of Rubrics as Rewards."""

from __future__ import annotations

import random

import pytest

from assay.errors import BadInputError
from assay_serving.rubrics.aggregation import RubricAggregation
from assay_serving.rubrics.rubric import RubricItem, checked, rubric_items

HEALTHBENCH = [
    {"criterion": "States the dose", "points": 7, "tags": ["level:example"]},
    {"criterion": "Advises to see a doctor", "points": 3, "tags": []},
    {"criterion": "Invents a drug", "points": -5, "tags": []},
]


def healthbench_score(points: list[float], met: list[bool]) -> float:
    """The publisher's rule, rewritten from openai/simple-evals `healthbench_eval.calculate_score`."""
    return sum(p for p, m in zip(points, met, strict=True) if m) / sum(p for p in points if p > 0)


def test_points_are_healthbenchs_score() -> None:
    items = checked(rubric_items(HEALTHBENCH))
    assert [(i.weight, i.polarity) for i in items] == [(7, "positive"), (3, "positive"), (5, "negative")]
    assert RubricAggregation().reward(items, [1, 0, 1]).reward == pytest.approx(0.2)
    generator = random.Random(7)
    for _ in range(50):
        met = [generator.random() < 0.5 for _ in items]
        expected = healthbench_score([7, 3, -5], met)
        raw = RubricAggregation(clip=False).reward(items, [float(m) for m in met]).reward
        assert raw == pytest.approx(expected)
        assert RubricAggregation().reward(items, [float(m) for m in met]).reward == pytest.approx(
            min(max(expected, 0), 1)
        )


def test_mean_is_the_explicit_aggregation_of_rubrics_as_rewards() -> None:
    items = checked(
        rubric_items(
            [
                {"title": "Essential", "description": "a", "weight": 5},
                {"title": "Important", "description": "b", "weight": 3},
                {"title": "Pitfall", "description": "c", "weight": -2},
            ]
        )
    )
    assert [item.name for item in items] == ["Essential", "Important", "Pitfall"]
    # A pitfall that is avoided counts as satisfied: (5 + 0 + 2) / 10.
    assert RubricAggregation("mean").reward(items, [1, 0, 0]).reward == pytest.approx(0.7)
    assert RubricAggregation("mean").reward(items, [0.5, 0.5, 0.25]).reward == pytest.approx((2.5 + 1.5 + 1.5) / 10)


def test_saturation_thresholds_and_gates() -> None:
    plain = (RubricItem("a", "a"), RubricItem("b", "b"))
    assert RubricAggregation(saturate_at=0.8).reward(plain, [0.8, 0.4]).reward == pytest.approx(0.75)
    assert RubricAggregation(saturate_at=0.8).reward(plain, [1.0, 0.4]).reward == pytest.approx(0.75)
    assert RubricAggregation(met_at=0.5).reward(plain, [0.5, 0.49]).reward == pytest.approx(0.5)
    gated = (RubricItem("a", "a", weight=9), RubricItem("b", "b", must_have=True))
    assert RubricAggregation(ceiling=0.25).reward(gated, [1, 0.4])[:2] == (0.25, 1)
    assert RubricAggregation(ceiling=0.25).reward(gated, [0.1, 0.4]).reward == pytest.approx((0.9 + 0.4) / 10)
    passed = RubricAggregation(ceiling=0.25).reward(gated, [1, 0.5])
    assert passed.gate is None
    assert passed.reward == pytest.approx(0.95)
    fault = (RubricItem("a", "a"), RubricItem("x", "x", weight=0, polarity="negative", veto=True))
    assert RubricAggregation(vetoed=-1.0).reward(fault, [1, 0.9])[:2] == (-1.0, 1)
    assert RubricAggregation(vetoed=-1.0).reward(fault, [1, 0.5])[:2] == (1.0, None)


def test_a_failed_item_is_never_a_number() -> None:
    items = (RubricItem("a", "a", weight=3), RubricItem("b", "b"), RubricItem("c", "c", polarity="negative"))
    with pytest.raises(BadInputError, match="2 of 3 items have a grade, and the rubric needs all"):
        RubricAggregation().reward(items, [1, None, 0])
    partly = RubricAggregation(coverage=0.5)
    outcome = partly.reward(items, [1, None, 0])
    assert (outcome.reward, outcome.gate) == (1.0, None)  # of the items that have a grade; not 3/4, as if it were 0
    assert outcome.coverage == pytest.approx(2 / 3)
    assert partly.reward(items, [None, 0.25, 0.5]).reward == 0.0
    with pytest.raises(BadInputError, match="1 of 3"):
        partly.reward(items, [1, None, None])
    veto = (RubricItem("a", "a"), RubricItem("b", "b"), RubricItem("v", "v", veto=True))
    with pytest.raises(BadInputError, match="gate 'v' has none"):
        partly.reward(veto, [1, 1, None])
    with pytest.raises(BadInputError, match="no item of positive polarity"):
        partly.reward((RubricItem("c", "c", polarity="negative"),), [1.0])
