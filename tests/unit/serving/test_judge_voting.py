"""Votes: what was shown in any order comes back to the response it is about."""

from __future__ import annotations

import math
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay_serving.generative.answers import JudgeSample
from assay_serving.generative.pairwise import ORDERS, pair_outcome
from assay_serving.generative.verdict import read_verdict
from assay_serving.generative.voting import (
    both_orders,
    expected_rating,
    majority_at,
    mean_log_odds,
    unpermute,
)

ratings = st.integers(min_value=1, max_value=10)


@st.composite
def shuffled_ratings(draw: st.DrawFn) -> tuple[list[list[int]], list[list[int]]]:
    """Ratings by response, and the order in which each sample showed the responses."""
    n, k = draw(st.integers(1, 5)), draw(st.integers(1, 6))
    truth = [[draw(ratings) for _ in range(n)] for _ in range(k)]
    return truth, [draw(st.permutations(range(n))) for _ in range(k)]


@given(shuffled_ratings())
def test_values_go_back_to_their_responses(
    case: tuple[list[list[int]], list[list[int]]],
) -> None:
    truth, orders = case
    shown = [[row[response] for response in order] for row, order in zip(truth, orders, strict=True)]
    for row, seen, order in zip(truth, shown, orders, strict=True):
        assert unpermute(seen, order) == row


def test_an_order_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="no order of 2 responses"):
        unpermute([1, 2], [0, 0])


def _answer(label: str, probability: float) -> JudgeSample:
    """`probability`: of A, the response shown first."""
    text = f"x\nVerdict: {label}"
    logp = {"A": math.log(probability), "B": math.log1p(-probability)}
    return JudgeSample(text, True, 1, 1, read_verdict(text, ("A", "B")), logp)


probabilities = st.floats(0.01, 0.99)


@given(st.lists(st.tuples(probabilities, probabilities), min_size=1, max_size=4))
def test_naming_the_responses_the_other_way_round_negates_the_outcome(drawn: list[tuple[float, float]]) -> None:
    def answers(place: int) -> list[JudgeSample]:
        return [_answer("A" if pair[place] > 0.5 else "B", pair[place]) for pair in drawn]

    outcome = pair_outcome([answers(0), answers(1)])
    # The same answers, were the second response called A: the orders of showing change places.
    other = pair_outcome([answers(1), answers(0)])
    assert outcome.probability is not None
    assert other.probability == pytest.approx(1 - outcome.probability)
    flip = {"A": "B", "B": "A", "tie": "tie", None: None}
    assert [flip[d] for d in reversed(other.decisions)] == list(outcome.decisions)
    assert outcome.consistent == other.consistent


@given(probabilities)
def test_a_judge_that_only_sees_places_is_undecided_over_both_orders(p: float) -> None:
    label = "A" if p > 0.5 else "B"
    outcome = pair_outcome([[_answer(label, p)], [_answer(label, p)]])
    assert outcome.probability == pytest.approx(0.5)
    assert outcome.consistent is False
    assert both_orders(p, p) == pytest.approx(0.5)


def test_an_order_that_could_not_be_read() -> None:
    silent = JudgeSample("hm", True, 1, 1, read_verdict("hm", ("A", "B")))
    outcome = pair_outcome([[silent], [_answer("B", 0.2)]])
    assert outcome.decisions == (None, "A")  # B of the swapped order is the pair's A
    assert outcome.probability == pytest.approx(0.8)
    assert outcome.consistent is None
    nothing = pair_outcome([[silent], [silent]])
    assert nothing.probability is None
    assert nothing.decision is None
    assert nothing.faults == {"no_verdict": 2}
    assert pair_outcome([[_answer("A", 0.7)]], ORDERS[:1]).decision == "A"


@given(st.lists(st.floats(-30, 30), min_size=1, max_size=6))
def test_the_mean_of_probabilities_lies_between_the_votes(odds: list[float]) -> None:
    mean = mean_log_odds(odds)
    assert min(odds) - 1e-6 <= mean <= max(odds) + 1e-6
    assert mean_log_odds([-x for x in odds]) == pytest.approx(-mean, abs=1e-6)


@given(st.dictionaries(st.sampled_from([str(n) for n in range(1, 11)]), st.floats(-50, 0), min_size=1))
def test_an_expected_rating_is_within_the_scale(logp: dict[str, float]) -> None:
    assert min(map(int, logp)) - 1e-9 <= expected_rating(logp) <= max(map(int, logp)) + 1e-9


@given(st.integers(0, 3), st.integers(0, 3), st.integers(0, 2), st.data())
def test_the_majority_of_k_is_the_mean_over_all_draws(right: int, wrong: int, none: int, data: st.DataObject) -> None:
    votes = ["right"] * right + ["wrong"] * wrong + [None] * none
    if not votes:
        return
    k = data.draw(st.integers(1, len(votes)))
    credit = []
    for drawn in combinations(votes, k):
        a, b = drawn.count("right"), drawn.count("wrong")
        credit.append(1.0 if a > b else 0.5 if a == b > 0 else 0.0)
    assert majority_at(right, wrong, none, k) == pytest.approx(sum(credit) / len(credit))


def test_more_votes_cannot_be_drawn_than_there_are() -> None:
    with pytest.raises(ValueError, match="cannot draw 3 of 2"):
        majority_at(1, 1, 0, 3)
