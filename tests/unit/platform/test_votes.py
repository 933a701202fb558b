"""Counting votes: thresholds, ties, weights, confidences and the margin."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.annotation.votes import MAJORITY, PLURALITY, preference, tally

LABELS = st.sampled_from(["A", "B", "tie", None])


@pytest.mark.parametrize(
    ("votes", "threshold", "winner", "reason", "share"),
    [
        (["A", "A", "B"], MAJORITY, "A", "votes", 2 / 3),
        (["A", "A", "B", "tie"], MAJORITY, None, "threshold", 0.5),
        (["A", "A", "B", "tie"], PLURALITY, "A", "votes", 0.5),
        (["A", "B"], PLURALITY, None, "split", 0.5),
        (["A", None, None], MAJORITY, "A", "votes", 1.0),
        ([None], PLURALITY, None, "no votes", 0.0),
    ],
)
def test_thresholds(votes: list[str | None], threshold: float, winner: str | None, reason: str, share: float) -> None:
    counts = tally(votes, threshold=threshold)
    assert (counts.winner, counts.reason) == (winner, reason)
    assert counts.share == pytest.approx(share)


def test_confidence_decides_only_where_weights_are_equal() -> None:
    assert tally(["A", "B"], threshold=PLURALITY, confidences=[0.9, 0.6]).winner == "A"
    assert tally(["A", "B"], threshold=PLURALITY, confidences=[0.4, None]).winner == "B", "unstated counts 0.5"
    assert tally(["A", "A", "B"], threshold=PLURALITY, confidences=[0.1, 0.1, 1.0]).winner == "A"
    assert tally(["A", "B"], threshold=PLURALITY, weights=[1.0, 2.0], confidences=[1.0, 0.1]).winner == "B"


def test_the_margin_is_the_mean_strength_of_the_deciding_votes() -> None:
    counts = tally(["A", "A", "B", "A"], threshold=MAJORITY, strengths=[3, 2, 0, None])
    assert counts.margin == 2.5
    assert tally(["A", "B"], threshold=MAJORITY, strengths=[3, 3]).margin is None
    assert tally(["A"], threshold=MAJORITY).margin is None


@given(st.lists(LABELS, max_size=9), st.randoms())
def test_the_order_of_votes_does_not_matter(votes: list[str | None], random: object) -> None:
    shuffled = list(votes)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    for threshold in (MAJORITY, PLURALITY):
        one, other = tally(votes, threshold=threshold), tally(shuffled, threshold=threshold)
        assert (one.winner, one.share, one.weights) == (other.winner, other.share, other.weights)


def test_all_ties_are_one_class() -> None:
    assert [preference(a) for a in ("A", "B", "tie", "both_good", "both_bad", "skip")] == [
        *("A", "B"),
        *("tie", "tie", "tie"),
        None,
    ]
