"""Ties and calibration of pairs against the reference numbers, and their intervals."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.errors import BadInputError
from assay.statistics.intervals import clustered_mean, wilson
from assay_rm_training.calibration.fitting import fit_calibration, fit_temperature
from assay_rm_training.calibration.measures import (
    brier,
    calibration_report,
    expected_calibration_error,
    negative_log_likelihood,
    reliability,
    sigmoid,
)
from assay_rm_training.evaluation.metrics import outcomes

rewards = st.lists(st.tuples(st.floats(-50, 50), st.floats(-50, 50)), min_size=1, max_size=20)


def test_card_D0_ties() -> None:
    strict, half = outcomes([2, 1, 0], [1, 1, 1])
    assert strict.mean() == pytest.approx(1 / 3)
    assert half.mean() == 0.5
    strict, half = outcomes([1.0] * 4, [1.0] * 4)
    assert (strict.mean(), half.mean()) == (0.0, 0.5)


@given(rewards, st.floats(0.01, 100), st.floats(-10, 10))
def test_accuracy_knows_no_scale_and_no_offset(pairs: list[tuple[float, float]], scale: float, offset: float) -> None:
    array = np.round(np.array(pairs), 3)  # far enough apart that the map rounds nothing to a tie
    before = outcomes(array[:, 0], array[:, 1])
    moved = np.round(array * 1000) * scale + offset
    after = outcomes(moved[:, 0], moved[:, 1])
    assert np.array_equal(before[0], after[0])
    negated = outcomes(-array[:, 0], -array[:, 1])
    assert np.allclose(before[1] + negated[1], 1.0)


P = np.array([0.95, 0.85, 0.75, 0.65, 0.55, 0.9])
Y = np.array([1.0, 1, 0, 1, 0, 0])


def test_card_D7() -> None:
    assert expected_calibration_error(P, Y, closed="right") == pytest.approx(0.408333, abs=1e-6)
    assert expected_calibration_error(P, Y, closed="left") == pytest.approx(0.441667, abs=1e-6)
    assert brier(P, Y) == pytest.approx(0.30375)
    assert negative_log_likelihood(P, Y) == pytest.approx(0.85533, abs=1e-6)


def test_bin_edges_survive_binary_fractions() -> None:
    for tenth in range(1, 10):
        p, y = np.array([0.1 * tenth]), np.array([1.0])
        assert reliability(p, y, closed="right")[0].high == pytest.approx(tenth / 10)
        assert reliability(p, y, closed="left")[0].low == pytest.approx(tenth / 10)
    outer = reliability(np.array([0.0, 1.0]), np.array([0.0, 1.0]))
    assert [b.pairs for b in outer] == [1, 1]


def test_the_temperature_that_made_the_labels_is_found() -> None:
    rng = np.random.default_rng(0)
    truth = rng.normal(0, 2, size=40_000)
    won = rng.random(len(truth)) < sigmoid(truth)
    d = 3.0 * np.where(won, truth, -truth)  # a model three times too sure
    found = fit_temperature(d)
    assert found == pytest.approx(3.0, rel=0.05)
    before = calibration_report(d, seed=1)
    after = calibration_report(d, temperature=found, seed=1)
    assert after.nll < before.nll
    assert after.ece < 0.01 < before.ece
    nearby = [calibration_report(d, temperature=t).nll for t in (found * 0.9, found, found * 1.1)]
    assert nearby[1] == min(nearby)


@settings(deadline=None)
@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=30), st.floats(0.1, 10))
def test_the_temperature_scales_with_the_rewards(d: list[float], scale: float) -> None:
    """Also where every pair is right and the plain likelihood has no finite optimum."""
    assert fit_temperature(np.array(d) * scale) == pytest.approx(fit_temperature(d) * scale, rel=1e-6)


def test_no_temperature_fits_a_model_that_is_no_better_than_chance() -> None:
    with pytest.raises(BadInputError, match="better than chance"):
        fit_temperature([1.0, -2.0])


def test_calibration_reference_is_the_mean_reward() -> None:
    fitted = fit_calibration([2.0, 1.0], [0.0, -1.0], fitted_on="held-out")
    assert fitted.reference == 0.5
    assert fitted.probability(0.5) == 0.5
    assert fitted.pair_probability(2.0, 1.0) == pytest.approx(1 / (1 + math.exp(-1 / fitted.temperature)))


def test_randomised_order_does_not_degenerate() -> None:
    """With y always 1 the error is 1 - mean(p) whatever the model; in random order perfect probabilities have none."""
    rng = np.random.default_rng(3)
    truth = rng.normal(0, 1.5, size=50_000)
    d = np.where(rng.random(len(truth)) < sigmoid(truth), truth, -truth)
    p = sigmoid(d)
    degenerate = expected_calibration_error(p, np.ones_like(p))
    assert degenerate == pytest.approx(1 - p.mean())
    assert calibration_report(d, seed=0).ece < 0.01
    assert calibration_report(d, seed=0) == calibration_report(d, seed=0)


def test_wilson_interval() -> None:
    """8 of 10: 0.490 to 0.943 (the formula, by hand)."""
    interval = wilson(8, 10)
    assert (interval.low, interval.high) == pytest.approx((0.490162, 0.943318), abs=1e-6)
    assert wilson(0, 5).low == 0.0
    assert wilson(5, 5).high == 1.0
    widths = [wilson(n // 2, n).high - wilson(n // 2, n).low for n in (10, 100, 1000)]
    assert all(wide > narrow for wide, narrow in pairwise(widths))


def test_pairs_of_one_prompt_widen_the_interval() -> None:
    values = [1.0, 0.0] * 40
    alone = clustered_mean(values, [str(i) for i in range(80)])
    clumped = clustered_mean([1.0] * 40 + [0.0] * 40, [str(i // 8) for i in range(80)])
    assert alone is not None
    assert clumped is not None
    assert clumped.high - clumped.low > 2 * (alone.high - alone.low)
    assert clustered_mean([1.0] * 40 + [0.0] * 40, [str(i // 10) for i in range(80)]) is None
