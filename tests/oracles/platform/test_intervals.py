"""Intervals of clustered means: what they cover, and how often two models that are alike are told apart.

Structures are of real sets: UKP arguments (8 prompts with hundreds of pairs each), prompts with a few pairs each in
uneven numbers, and sets in which every prompt is distinct. In each, successes of a prompt depend on each other.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pytest

from assay.statistics import intervals
from assay.statistics.intervals import LEAST_CLUSTERS, clustered_mean, degrees_of_freedom, share_interval

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
