"""Drift and agreement of scores against numbers computed by hand, scipy, and their own distribution without drift."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import BadInputError
from assay.score import Score, ScoreFailure
from assay.statistics.rank_correlation import kendall_tau_b, spearman
from assay_serving.server.metrics.drift import chi_square_95, drift, smirnov_distance, stability_index
from assay_serving.server.metrics.engine_metrics import ScoreStatistics
from assay_serving.server.rollout.agreement import PairedScores, agreement, order_agreement

numbers = st.lists(st.floats(-50, 50), min_size=1, max_size=40)


def score(reward: float, *, truncated: bool = False) -> Score:
    return Score(reward, "rm", "v1", "t", 10, truncated)


def test_the_stability_index_by_hand() -> None:
    # Two bins, split at the reference's median 2.5: counts 2, 2 and 1, 3 with half an observation more in each.
    index, bins = stability_index(np.array([1.0, 2, 3, 4]), np.array([2.0, 3, 3, 4]), bins=2)
    p, q = (0.5, 0.5), (1.5 / 5, 3.5 / 5)
    by_hand = sum((a - b) * math.log(a / b) for a, b in zip(p, q, strict=True))
    assert index == pytest.approx(by_hand)
    assert bins == 2
    assert index == pytest.approx(0.169460, abs=1e-6)


def test_smirnovs_distance_by_hand_and_by_scipy() -> None:
    assert smirnov_distance(np.array([1.0, 2, 3, 4]), np.array([3.0, 4, 5, 6])) == 0.5
    assert smirnov_distance(np.array([1.0, 1, 2]), np.array([1.0, 2, 2])) == pytest.approx(1 / 3)
    stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(0)
    for size in (1, 7, 300):
        old, new = rng.normal(size=200).round(1), rng.normal(0.3, 1.5, size=size).round(1)
        assert smirnov_distance(old, new) == pytest.approx(stats.ks_2samp(old, new).statistic)


def test_points_of_chi_square_by_its_table() -> None:
    table = {1: 3.841, 2: 5.991, 4: 9.488, 9: 16.919, 19: 30.144}
    for degrees, point in table.items():
        assert chi_square_95(degrees) == pytest.approx(point, rel=0.026 if degrees == 1 else 0.01)
    assert chi_square_95(0) == 0.0


def test_without_drift_each_level_is_passed_about_once_in_twenty() -> None:
    rng = np.random.default_rng(1)
    found = [drift(rng.gumbel(size=1000), rng.gumbel(size=400)) for _ in range(1000)]
    for passed in (sum(d.psi > d.psi_by_chance for d in found), sum(d.ks > d.ks_by_chance for d in found)):
        assert 25 <= passed <= 80  # 50 expected, standard deviation 7


def test_a_shift_of_half_a_deviation_is_drift() -> None:
    rng = np.random.default_rng(2)
    found = drift(rng.normal(size=1000), rng.normal(0.5, 1, size=1000))
    assert found.psi > 5 * found.psi_by_chance
    assert found.ks == pytest.approx(0.197, abs=0.05)  # 2 Phi(0.25) - 1
    assert found.psi == pytest.approx(0.25, abs=0.08)  # about shift squared: the symmetric divergence of two normals
    assert (found.reference, found.current) == (1000, 1000)


@given(numbers, numbers)
def test_drift_is_finite_and_nothing_for_equal_samples(old: list[float], new: list[float]) -> None:
    found = drift(old, new)
    assert all(math.isfinite(value) for value in found.to_dict().values())
    assert found.psi >= 0
    assert 0 <= found.ks <= 1
    same = drift(old, old)
    assert (same.psi, same.ks) == (0.0, 0.0)


def test_drift_of_nothing_is_refused() -> None:
    with pytest.raises(BadInputError, match="empty"):
        drift([1.0], [])


def test_agreement_by_hand() -> None:
    groups = [b"a", b"a", b"a", b"b", b"b", b"c"]
    old = np.array([1.0, 2, 3, 5, 4, 9])
    new = np.array([10.0, 30, 20, 0, 0, -5])
    found = agreement(groups, old, new)
    # Prompt a: of three pairs two alike. Prompt b: one pair, tied by the new model. Prompt c has no pair.
    assert found.order is not None
    assert (found.order.pairs, found.order.prompts) == (4, 2)
    assert found.order.agreement == pytest.approx(2.5 / 4)
    assert found.order.interval is None  # of two prompts
    assert found.kendall_within == pytest.approx((1 / 3 + 0) / 2)
    assert found.spearman_within == pytest.approx((0.5 + 0) / 2)
    assert found.kendall == pytest.approx(kendall_tau_b(old, new))
    assert found.spearman == pytest.approx(spearman(old, new))
    assert (found.items, found.prompts) == (6, 3)
    assert found.old_mean == pytest.approx(4.0)
    assert found.new_mean == pytest.approx(55 / 6)
    assert found.scale == pytest.approx(old.std() / new.std())


def test_another_scale_and_offset_is_full_agreement_and_no_difference() -> None:
    rng = np.random.default_rng(3)
    old = rng.normal(size=200)
    found = agreement([bytes([n // 4]) for n in range(200)], old, 7 * old - 3)
    assert found.scale == pytest.approx(1 / 7)
    assert found.shift == pytest.approx(3 / 7)
    assert found.difference == pytest.approx(0, abs=1e-12)
    assert found.order is not None
    assert found.order.agreement == found.kendall == found.kendall_within == 1
    assert found.order.interval is not None
    assert found.order.interval.low > 0.9
    assert found.spearman == pytest.approx(1)
    assert found.drift.psi > found.drift.psi_by_chance
    assert found.drift_aligned is not None
    assert found.drift_aligned.ks < 0.01  # but for rounding at the edges
    against = agreement([b"one"] * 200, old, -old)
    assert against.order is not None
    assert (against.order.agreement, against.kendall_within) == (0, -1)


def test_what_is_not_defined_is_none() -> None:
    alone = agreement([b"a"], np.array([1.0]), np.array([2.0]))
    assert (alone.order, alone.spearman, alone.kendall_within, alone.scale, alone.difference) == (None,) * 5
    constant = agreement([b"a"] * 3, np.array([1.0, 1, 1]), np.array([1.0, 2, 3]))
    assert (constant.order, constant.kendall_within, constant.scale) == (None, None, None)
    flat = agreement([b"a"] * 3, np.array([1.0, 2, 3]), np.array([1.0, 1, 1]))
    assert flat.kendall_within == 0.0  # the old model tells them apart, the new one does not
    with pytest.raises(BadInputError):
        agreement([], np.array([]), np.array([]))


def test_responses_that_are_asked_for_twice_make_no_pair() -> None:
    assert order_agreement([b"a"] * 2, np.array([1.0, 1.0]), np.array([2.0, 2.0])) is None


def test_only_the_latest_pairs_are_kept_and_an_item_counts_once() -> None:
    pairs = PairedScores(capacity=3)
    for n in range(5):
        pairs.add(bytes([n]), b"p", n, -n)
    pairs.add(bytes([4]), b"p", 4, -9)
    groups, old, new = pairs.columns()
    assert (groups, old.tolist(), new.tolist()) == ([b"p"] * 3, [2, 3, 4], [-2, -3, -9])
    assert pairs.total == 5


def test_statistics_of_a_window() -> None:
    kept = ScoreStatistics(window=4, reference=2, least=2)
    assert kept.to_dict()["window"]["mean"] is None
    kept.add([score(100.0)], 0.5)
    kept.add([score(1.0), score(2.0, truncated=True), ScoreFailure("too_long", "long"), score(6.0)], 1.5)
    found = kept.to_dict()
    assert (found["items"], found["failed"]) == (5, 1)
    assert found["window"]["items"] == 4
    assert found["window"]["truncated"] == 0.25
    assert found["window"]["failed"] == {"too_long": 0.25}
    assert found["window"]["mean"] == pytest.approx(109 / 4)
    assert found["answer_seconds"]["p50"] == 1.0
    assert found["reference"] == {"scores": 2, "wanted": 2}
    assert found["drift"]["reference"] == found["drift"]["current"] == 2
    assert kept.failure_rate == 0.2


def test_drift_is_of_scores_after_the_reference_and_the_reference_can_be_set_anew() -> None:
    kept = ScoreStatistics(window=500, reference=200, least=100)
    rng = np.random.default_rng(4)
    for reward in rng.normal(size=299):
        kept.add([score(float(reward))], 0.0)
    assert kept.drift() is None  # 99 after the reference
    for reward in rng.normal(3, 1, size=500):
        kept.add([score(float(reward))], 0.0)
    moved = kept.drift()
    assert moved is not None
    assert (moved.reference, moved.current) == (200, 500)
    assert moved.ks > 0.8
    kept.set_reference()
    assert kept.drift() is None
    for reward in rng.normal(3, 1, size=300):
        kept.add([score(float(reward))], 0.0)
    settled = kept.drift()
    assert settled is not None
    assert settled.current == 300
    assert settled.ks < 0.2
