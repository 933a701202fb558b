"""Which of two is preferred and how surely, ranks with ties: never a number for a response without a score."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.models.calibration import Calibration
from assay.score import Score, ScoreFailure, ScoreResult
from assay_serving.preference import PairRule, Preference, prefer, rank
from assay_serving.scorer import ModelInfo

FAILED = ScoreFailure("too_long", "the response does not fit", "rm")
BRADLEY_TERRY = PairRule(bradley_terry=True)


def scored(reward: float, uncertainty: float | None = None) -> Score:
    return Score(reward, "rm", "v", "t", 3, False, uncertainty=uncertainty)


def info(**more: object) -> ModelInfo:
    return ModelInfo("rm", "v", "scalar", "t", 512, False, "passed", "float32", "cpu", **more)  # type: ignore[arg-type]


def test_bradley_terry_is_the_logistic_function_of_the_margin() -> None:
    found = prefer(scored(2.0), scored(0.5), PairRule.of(info(bradley_terry=True)))
    assert (found.margin, found.basis, found.preferred) == (1.5, "bradley_terry", "a")
    assert found.probability == pytest.approx(1 / (1 + math.exp(-1.5)))
    assert found.uncertainty is None


def test_a_calibration_fitted_on_pairs_decides_where_there_is_one() -> None:
    fitted = Calibration(2.0, 0.3, "gold", 100)
    rule = PairRule.of(info(bradley_terry=True, curve=json.loads(json.dumps(fitted.curve))))
    found = prefer(scored(2.0), scored(0.5), rule)
    assert (found.probability, found.basis) == (fitted.pair_probability(2.0, 0.5), "calibration")
    stepped = Calibration(1.0, 0.0, "gold", 9, method="isotonic", knots=((0.5, 0.6), (2.0, 0.9)))
    assert Calibration.from_curve(json.loads(json.dumps(stepped.curve))).id == stepped.id


def test_other_models_give_a_margin_and_no_probability() -> None:
    found = prefer(scored(2.0), scored(0.5), PairRule.of(info()))
    assert (found.margin, found.probability, found.basis, found.preferred) == (1.5, None, None, "a")


@pytest.mark.parametrize(("a", "b"), [(FAILED, scored(1.0)), (scored(1.0), FAILED), (FAILED, FAILED)])
def test_a_failed_side_leaves_nothing_to_say(a: ScoreResult, b: ScoreResult) -> None:
    found = prefer(a, b, BRADLEY_TERRY)
    assert (found.margin, found.probability, found.preferred, found.uncertainty) == (None, None, None, None)
    assert Preference.from_dict(json.loads(json.dumps(found.to_dict()))) == found


def test_uncertainties_of_both_sides_add_in_squares() -> None:
    assert prefer(scored(1.0, 3.0), scored(1.0, 4.0), BRADLEY_TERRY).uncertainty == 5.0
    assert prefer(scored(1.0, 3.0), scored(1.0), BRADLEY_TERRY).uncertainty is None


rewards = st.floats(-50, 50)


@given(rewards, rewards)
def test_exchanging_the_two_exchanges_the_answer(first: float, second: float) -> None:
    one, other = (prefer(scored(x), scored(y), BRADLEY_TERRY) for x, y in ((first, second), (second, first)))
    assert one.margin == -(other.margin or 0.0)
    assert (one.probability or 0.0) + (other.probability or 0.0) == pytest.approx(1.0)
    assert {one.preferred, other.preferred} in ({"a", "b"}, {"tie"})


def test_ranks_share_ties_and_put_failures_last() -> None:
    found = rank([FAILED, scored(1.0), scored(3.0), scored(1.0), FAILED, scored(0.0)])
    assert found.order == (2, 1, 3, 5, 0, 4)
    assert found.ranks == (None, 2, 1, 2, None, 4)


def test_a_tie_reaches_no_further_than_its_margin_from_its_best() -> None:
    found = rank([scored(r) for r in (1.0, 0.9, 0.8, 0.7)], tie_margin=0.15)
    assert found.ranks == (1, 1, 3, 3)


@given(st.lists(st.none() | rewards, max_size=12), st.floats(0, 5))
def test_ranks_never_put_a_lower_reward_first(given_rewards: list[float | None], margin: float) -> None:
    results: list[ScoreResult] = [FAILED if r is None else scored(r) for r in given_rewards]
    found = rank(results, margin)
    assert sorted(found.order) == list(range(len(results)))
    for place, result in enumerate(results):
        assert (found.ranks[place] is None) == isinstance(result, ScoreFailure)
    in_order = [found.ranks[place] for place in found.order]
    known = [number for number in in_order if number is not None]
    assert known == sorted(known)
    assert in_order[len(known) :] == [None] * (len(results) - len(known))
