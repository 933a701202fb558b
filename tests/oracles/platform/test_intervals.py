"""Intervals of clustered figures: what they cover, and how often two models that are alike are told apart.

Structures are of real sets: UKP arguments (8 prompts with hundreds of pairs each), prompts with a few pairs each in
uneven numbers, and sets in which every prompt is distinct. In each, successes of a prompt depend on each other.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pytest

from assay.statistics import intervals
from assay.statistics.intervals import (
    LEAST_CLUSTERS,
    Interval,
    clustered_correlation,
    clustered_mean,
    clustered_slope,
    degrees_of_freedom,
    share_interval,
)
from assay_rm_training.calibration.measures import rms_calibration_error

Floats: TypeAlias = npt.NDArray[Any]
TRIALS = 800
STRUCTURES = {
    "8 prompts, hundreds of pairs": np.random.default_rng(3).integers(100, 400, 8),
    "10 prompts alike": np.full(10, 20),
    "12 prompts, uneven": np.random.default_rng(5).geometric(0.05, 12),
    "30 prompts, uneven": np.random.default_rng(7).geometric(0.1, 30),
    "200 prompts, all distinct": np.ones(200, dtype=int),
}


@pytest.fixture
def from_two_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    """The method without its bound, to see that it holds for 8 prompts, too."""
    monkeypatch.setattr(intervals, "LEAST_CLUSTERS", 2)


def _draws(sizes: Floats, correlation: float, seed: int) -> tuple[list[str], Floats, list[Floats]]:
    """Groups, each trial's probabilities by item, and two scorers' successes; 0.7 of all are right."""
    rng = np.random.default_rng(seed)
    a = (1 - correlation) / correlation
    by_prompt = rng.beta(0.7 * a, 0.3 * a, size=(TRIALS, len(sizes)))
    probabilities = np.repeat(by_prompt, sizes, axis=1)
    successes = [(rng.random(probabilities.shape) < probabilities).astype(float) for _ in range(2)]
    return [str(n) for n in np.repeat(np.arange(len(sizes)), sizes)], probabilities, successes


@pytest.mark.parametrize("correlation", [0.05, 0.4])
@pytest.mark.parametrize("name", STRUCTURES)
def test_coverage_and_false_stars(name: str, correlation: float, from_two_clusters: None) -> None:
    """Coverage 93 to 97 % and false stars 3 to 7 %, within what so many trials can tell (1.5 points)."""
    groups, _, (first, second) = _draws(STRUCTURES[name], correlation, seed=11)
    covered = stars = 0
    for one, other in zip(first, second, strict=True):
        interval, difference = clustered_mean(one, groups), clustered_mean(one - other, groups)
        assert interval is not None
        assert difference is not None
        covered += interval.low <= 0.7 <= interval.high
        stars += not difference.low <= 0 <= difference.high
    assert 0.93 - 0.015 <= covered / TRIALS <= 0.97 + 0.015
    assert 0.03 - 0.015 <= stars / TRIALS <= 0.07 + 0.015


def test_few_clusters_are_undetermined_and_no_interval_has_width_zero() -> None:
    few = [str(n % (LEAST_CLUSTERS - 1)) for n in range(500)]
    assert clustered_mean([1.0, 0.0] * 250, few) is None
    assert share_interval([1.0] * 500, ["one prompt"] * 500) is None
    enough = [str(n % LEAST_CLUSTERS) for n in range(500)]
    sure = share_interval([1.0] * 500, enough)
    assert sure is not None
    assert sure.high == 1.0
    assert sure.low == pytest.approx(0.7225, abs=1e-3)  # Wilson's, of 10 of 10
    never = share_interval([0.0] * 500, enough)
    assert never is not None
    assert never.low == 0.0
    assert never.high == pytest.approx(0.2775, abs=1e-3)
    assert clustered_mean([0.0] * 500, enough) is None


def test_degrees_of_freedom_equal_their_definition() -> None:
    """tr(S)^2 / tr(S S) with S = D (I - h 1') W (I - 1 h') D; G - 1 for equal clusters."""
    sizes = np.array([1.0, 4, 4, 9, 30, 2])
    share = sizes / sizes.sum()
    for correlation in (0.0, 0.3, 1.0):
        variances = sizes * (1 + (sizes - 1) * correlation)
        rows = np.diag(1 / np.sqrt(1 - share)) @ (np.eye(6) - np.outer(share, np.ones(6)))
        s = rows @ np.diag(variances) @ rows.T
        assert degrees_of_freedom(sizes, correlation) == pytest.approx(np.trace(s) ** 2 / (s**2).sum())
    assert degrees_of_freedom(np.full(12, 7.0), 0.5) == pytest.approx(11)


def test_equal_and_distinct_groups_give_the_t_interval() -> None:
    values = np.random.default_rng(0).normal(size=40)
    interval = clustered_mean(values.tolist(), [str(n) for n in range(40)])
    assert interval is not None
    reach = 2.0226909 * values.std(ddof=1) / np.sqrt(40)  # t with 39 degrees of freedom
    assert (interval.low, interval.high) == pytest.approx((values.mean() - reach, values.mean() + reach), abs=1e-6)


def _covers(interval: Interval | None, truth: float) -> bool:
    assert interval is not None
    return interval.low <= truth <= interval.high


REGRESSIONS = {
    "8 prompts, hundreds of responses": np.random.default_rng(3).integers(100, 400, 8),
    "12 prompts, uneven": np.random.default_rng(5).geometric(0.05, 12) + 1,
    "30 prompts, uneven": np.random.default_rng(7).geometric(0.1, 30) + 1,
    "200 prompts, two responses each": np.full(200, 2),
}


@pytest.mark.parametrize("differing", [0.0, 0.4])
@pytest.mark.parametrize("name", REGRESSIONS)
def test_coverage_of_slopes_and_correlations(name: str, differing: float, from_two_clusters: None) -> None:
    """93 to 97 %, within what so many trials can tell. `differing`: how much prompts differ in slope and mean."""
    sizes, rng = REGRESSIONS[name], np.random.default_rng(2)
    member = np.repeat(np.arange(len(sizes)), sizes)
    groups = [str(n) for n in member]
    slopes = correlations = 0
    for _ in range(TRIALS // 2):
        by_prompt = rng.normal(size=(4, len(sizes)))
        length = np.exp(0.4 * rng.normal(size=len(member)) + 0.4 * by_prompt[0][member])
        slope = 0.3 + 0.5 * differing * by_prompt[1][member]
        reward = slope * length + by_prompt[2][member] + rng.normal(size=len(member))
        slopes += _covers(clustered_slope(length, reward, groups), 0.3)
        x, noise = rng.normal(size=(2, len(member))) + differing * by_prompt[2:, member]
        correlations += _covers(clustered_correlation(x, 0.4 * x + np.sqrt(1 - 0.16) * noise, groups), 0.4)
    assert 0.93 - 0.015 <= 2 * slopes / TRIALS <= 0.97 + 0.015
    assert 0.93 - 0.015 <= 2 * correlations / TRIALS <= 0.97 + 0.015


@pytest.mark.parametrize("sharpness", [1.0, 1.5, 2.5])
@pytest.mark.parametrize("name", ["30 prompts, uneven", "200 prompts, all distinct"])
def test_the_debiased_calibration_error_covers_the_true_one(name: str, sharpness: float) -> None:
    """Stated log-odds are `sharpness` times the true ones. Without bias, but for cutting at 0; too wide where 1."""
    sizes, rng = STRUCTURES[name] + 1, np.random.default_rng(4)
    groups = [str(n) for n in np.repeat(np.arange(len(sizes)), sizes)]

    def drawn(count: int) -> tuple[Floats, Floats]:
        logits = 1.3 * rng.normal(size=count)
        return 1 / (1 + np.exp(-sharpness * logits)), (rng.random(count) < 1 / (1 + np.exp(-logits))).astype(float)

    truth, _ = rms_calibration_error(*drawn(400_000))
    assert truth is not None
    estimates = [rms_calibration_error(*drawn(len(groups)), groups) for _ in range(TRIALS // 2)]
    covered = np.mean([_covers(interval, truth) for _, interval in estimates])
    assert 0.93 - 0.015 <= covered <= (1.0 if sharpness < 2 else 0.97 + 0.015)
    if sharpness > 2:
        assert np.sqrt(np.mean([value**2 for value, _ in estimates if value is not None])) == pytest.approx(
            truth, abs=0.005
        )


def test_slopes_and_correlations_of_few_prompts_are_undetermined() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 300))
    few, enough = [str(n % 9) for n in range(300)], [str(n % 10) for n in range(300)]
    assert clustered_slope(x, y, few) is None
    assert clustered_correlation(x, y, few) is None
    assert clustered_slope(x, y, enough) is not None
    assert clustered_correlation(x, y, enough) is not None
    assert clustered_slope(x, y, [str(n) for n in range(300)]) is None, "nothing varies within a prompt"
    assert clustered_slope(x, 2 * x, enough) is None, "no residual, and no width zero"
    assert clustered_correlation(x, 2 * x, enough) is None
    assert clustered_correlation(np.ones(300), y, enough) is None
    probabilities, results = rng.random(300), rng.integers(2, size=300).astype(float)
    value, interval = rms_calibration_error(probabilities, results, few)
    assert value is not None
    assert interval is None
    assert rms_calibration_error(probabilities[:3], results[:3], ["one"] * 3) == (None, None)


def test_the_slopes_variance_is_cr2_of_the_regression_with_an_intercept_a_prompt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Against the matrix formula: A_g = (I - H_gg)^(-1/2) of the full design, e.g. as clubSandwich computes it."""
    monkeypatch.setattr(intervals, "around", lambda value, error, freedom: Interval(value - error, value + error))
    rng, sizes = np.random.default_rng(1), np.arange(2, 14)
    member = np.repeat(np.arange(len(sizes)), sizes)
    x, y = rng.normal(size=(2, len(member)))
    design = np.column_stack([x, *(member == n for n in range(len(sizes)))]).astype(float)
    bread = np.linalg.inv(design.T @ design)
    residuals = y - design @ (bread @ design.T @ y)
    meat = np.zeros_like(bread)
    for n in range(len(sizes)):
        rows = design[member == n]
        values, vectors = np.linalg.eigh(np.eye(len(rows)) - rows @ bread @ rows.T)
        powers = np.where(values > 1e-9, np.abs(values) ** -0.5, 0.0)
        adjusted = rows.T @ (vectors * powers) @ vectors.T @ residuals[member == n]
        meat += np.outer(adjusted, adjusted)
    error = float(np.sqrt((bread @ meat @ bread)[0, 0]))
    interval = clustered_slope(x, y, [str(n) for n in member])
    assert interval is not None
    slope = float((bread @ design.T @ y)[0])
    assert (interval.low + interval.high) / 2 == pytest.approx(slope)
    assert (interval.high - interval.low) / 2 == pytest.approx(error)
