"""Losses and calibration against the reference numbers of cards A5, A6, A6b, A7, D0 and D7; gradients; symmetry."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.errors import BadInputError
from assay.intervals import cluster_bootstrap, wilson
from assay_rm_training import calibration, losses
from assay_rm_training.losses import Objective
from assay_rm_training.metrics import outcomes

D = torch.tensor([2.0, -1.0], dtype=torch.float64)
ZERO = torch.zeros(2, dtype=torch.float64)
ONE = torch.ones(2, dtype=torch.float64)


def assert_values(found: torch.Tensor, expected: list[float]) -> None:
    assert found.tolist() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("objective", "expected"),
    [
        (Objective(centring=0.0), [0.126928, 1.313262]),
        (Objective("focal", centring=0.0), [0.001804, 0.701868]),
        (Objective("focal_internlm", centring=0.0), [0.007214, 1.313262]),
        (Objective("hinge", centring=0.0), [0.0, 2.0]),
        (Objective("margin_mse", centring=0.0), [1.0, 4.0]),
        (Objective(temperature=2.0, centring=0.0), [0.313262, 0.974077]),
        (Objective(label_smoothing=0.1, centring=0.0), [0.326928, 1.213262]),
    ],
)
def test_card_A5(objective: Objective, expected: list[float]) -> None:
    result = objective(D, ZERO)
    assert_values(result.per_pair, expected)
    assert result.loss.item() == pytest.approx(sum(expected) / 2, abs=1e-6)


def test_card_A6_values_and_gradients() -> None:
    chosen = torch.tensor([1.5, 0.2], dtype=torch.float64, requires_grad=True)
    rejected = torch.tensor([-0.5, 1.2], dtype=torch.float64, requires_grad=True)
    assert_values(Objective(centring=0.0)(chosen, rejected).per_pair, [0.126928, 1.313262])
    assert 0.01 * losses.centring(chosen, rejected).mean().item() == pytest.approx(0.0148)
    total = Objective(centring=0.01)(chosen, rejected).loss
    assert total.item() == pytest.approx(0.734895, abs=1e-6)
    total.backward()  # type: ignore[no-untyped-call]
    assert chosen.grad is not None
    assert rejected.grad is not None
    assert_values(chosen.grad, [-0.049601, -0.351529])
    assert_values(rejected.grad, [0.069601, 0.379529])


def test_card_A6b_margin() -> None:
    objective = Objective(use_margin=True, centring=0.0)
    assert_values(objective(D, ZERO, ONE).per_pair, [0.313262, 2.126928])
    assert_values(objective(D, ZERO, ZERO).per_pair, [0.126928, 1.313262])
    assert_values(objective(ONE, ZERO, ONE).per_pair, [math.log(2)] * 2)
    assert_values(Objective(centring=0.0)(D, ZERO, ONE).per_pair, [0.126928, 1.313262])  # margins are off by default


def test_card_A7_minimum_of_label_smoothing() -> None:
    objective = Objective(label_smoothing=0.1, centring=0.0)
    at = torch.tensor([math.log(0.9 / 0.1)], dtype=torch.float64, requires_grad=True)
    result = objective(at, torch.zeros(1, dtype=torch.float64))
    assert at.item() == pytest.approx(2.197225, abs=1e-6)
    assert result.loss.item() == pytest.approx(0.325083, abs=1e-6)
    result.loss.backward()  # type: ignore[no-untyped-call]
    assert at.grad is not None
    assert at.grad.item() == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("name", losses.NAMES)
def test_gradients_agree_with_finite_differences(name: str) -> None:
    objective = Objective(name, temperature=1.3, use_margin=True, centring=0.02)
    generator = torch.Generator().manual_seed(5)
    chosen, rejected = torch.randn(2, 6, dtype=torch.float64, generator=generator).requires_grad_().unbind()
    margin = torch.rand(6, dtype=torch.float64, generator=generator)
    assert torch.autograd.gradcheck(lambda c, r: objective(c, r, margin).loss, (chosen, rejected))


rewards = st.lists(st.tuples(st.floats(-50, 50), st.floats(-50, 50)), min_size=1, max_size=20)


@given(rewards)
def test_swapping_the_sides_negates_the_margin_alone(pairs: list[tuple[float, float]]) -> None:
    """BT(d) - BT(-d) = -d, a property of the logistic function; the centring term does not change."""
    chosen, rejected = torch.tensor(pairs, dtype=torch.float64).unbind(1)
    objective = Objective(centring=0.01)
    there, back = objective(chosen, rejected).per_pair, objective(rejected, chosen).per_pair
    assert torch.allclose(there - back, -(chosen - rejected), atol=1e-9)


@given(st.floats(-1e4, 1e4))
def test_the_loss_is_finite_and_positive_everywhere(d: float) -> None:
    loss = losses.bradley_terry(torch.tensor([d], dtype=torch.float32))
    assert torch.isfinite(loss).all()
    assert loss.item() >= 0


def test_objectives_refuse_what_makes_no_sense() -> None:
    for wrong in (
        {"name": "nonsense"},
        {"label_smoothing": 0.5},
        {"temperature": 0.0},
        {"centring": -1.0},
        {"name": "hinge", "label_smoothing": 0.1},
    ):
        with pytest.raises(BadInputError):
            Objective(**wrong)


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
    assert calibration.expected_calibration_error(P, Y, closed="right") == pytest.approx(0.408333, abs=1e-6)
    assert calibration.expected_calibration_error(P, Y, closed="left") == pytest.approx(0.441667, abs=1e-6)
    assert calibration.brier(P, Y) == pytest.approx(0.30375)
    assert calibration.negative_log_likelihood(P, Y) == pytest.approx(0.85533, abs=1e-6)


def test_bin_edges_survive_binary_fractions() -> None:
    for tenth in range(1, 10):
        p, y = np.array([0.1 * tenth]), np.array([1.0])
        assert calibration.reliability(p, y, closed="right")[0].high == pytest.approx(tenth / 10)
        assert calibration.reliability(p, y, closed="left")[0].low == pytest.approx(tenth / 10)
    outer = calibration.reliability(np.array([0.0, 1.0]), np.array([0.0, 1.0]))
    assert [b.pairs for b in outer] == [1, 1]


def test_the_temperature_that_made_the_labels_is_found() -> None:
    rng = np.random.default_rng(0)
    truth = rng.normal(0, 2, size=40_000)
    won = rng.random(len(truth)) < calibration.sigmoid(truth)
    d = 3.0 * np.where(won, truth, -truth)  # a model three times too sure
    found = calibration.fit_temperature(d)
    assert found == pytest.approx(3.0, rel=0.05)
    before = calibration.calibration_report(d, seed=1)
    after = calibration.calibration_report(d, temperature=found, seed=1)
    assert after.nll < before.nll
    assert after.ece < 0.01 < before.ece
    nearby = [calibration.calibration_report(d, temperature=t).nll for t in (found * 0.9, found, found * 1.1)]
    assert nearby[1] == min(nearby)


@settings(deadline=None)
@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=30), st.floats(0.1, 10))
def test_the_temperature_scales_with_the_rewards(d: list[float], scale: float) -> None:
    """Also where every pair is right and the plain likelihood has no finite optimum."""
    assert calibration.fit_temperature(np.array(d) * scale) == pytest.approx(
        calibration.fit_temperature(d) * scale, rel=1e-6
    )


def test_no_temperature_fits_a_model_that_is_no_better_than_chance() -> None:
    with pytest.raises(BadInputError, match="better than chance"):
        calibration.fit_temperature([1.0, -2.0])


def test_calibration_reference_is_the_mean_reward() -> None:
    fitted = calibration.fit_calibration([2.0, 1.0], [0.0, -1.0], fitted_on="held-out")
    assert fitted.reference == 0.5
    assert fitted.probability(0.5) == 0.5
    assert fitted.pair_probability(2.0, 1.0) == pytest.approx(1 / (1 + math.exp(-1 / fitted.temperature)))


def test_randomised_order_does_not_degenerate() -> None:
    """With y always 1 the error is 1 - mean(p) whatever the model; in random order perfect probabilities have none."""
    rng = np.random.default_rng(3)
    truth = rng.normal(0, 1.5, size=50_000)
    d = np.where(rng.random(len(truth)) < calibration.sigmoid(truth), truth, -truth)
    p = calibration.sigmoid(d)
    degenerate = calibration.expected_calibration_error(p, np.ones_like(p))
    assert degenerate == pytest.approx(1 - p.mean())
    assert calibration.calibration_report(d, seed=0).ece < 0.01
    assert calibration.calibration_report(d, seed=0) == calibration.calibration_report(d, seed=0)


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
    alone = cluster_bootstrap(values, [str(i) for i in range(80)])
    clumped = cluster_bootstrap([1.0] * 40 + [0.0] * 40, [str(i // 10) for i in range(80)])
    assert clumped.high - clumped.low > 2 * (alone.high - alone.low)
    assert alone == cluster_bootstrap(values, [str(i) for i in range(80)])
