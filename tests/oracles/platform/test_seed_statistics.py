"""pass@k and figures over seeds, against the numbers of their papers and against their definitions by enumeration."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy.stats import mannwhitneyu, trim_mean, ttest_1samp

from assay.errors import BadInputError
from assay.statistics.pass_at_k import pass_at_k
from assay.statistics.seeds import (
    interquartile_mean,
    probability_of_improvement,
    score_matrix,
    seed_interval,
    stratified_bootstrap,
)

EIGHT = score_matrix([[score] for score in (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 1)])


def test_pass_at_k_is_the_share_of_draws_that_hold_a_right_sample() -> None:
    assert pass_at_k(16, 3, 4) == pytest.approx(0.607143, abs=1e-6)
    for n, c, k in ((6, 2, 3), (5, 0, 2), (5, 5, 1), (4, 1, 4)):
        draws = list(combinations([True] * c + [False] * (n - c), k))
        assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, draws)) / len(draws))


@pytest.mark.parametrize(("n", "c", "k"), [(3, 1, 4), (3, 4, 1), (3, -1, 1), (3, 1, 0)])
def test_no_estimate_of_pass_at_k_from_fewer_samples(n: int, c: int, k: int) -> None:
    with pytest.raises(BadInputError, match=f"no pass@{k} from {n} samples"):
        pass_at_k(n, c, k)


def test_the_interval_over_seeds_is_students() -> None:
    """Student's own example: Cushny and Peebles' differences of two drugs on 10 patients (Biometrika 6, 1908)."""
    hours = [1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4]
    interval = seed_interval(hours)
    assert interval is not None
    expected = ttest_1samp(hours, 0).confidence_interval(0.95)
    assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high))
    assert (interval.low, interval.high) == pytest.approx((0.7001, 2.4599), abs=1e-4)
    assert seed_interval([0.5]) is None
    assert seed_interval([0.5, 0.5]) is None


def test_the_interquartile_mean_is_not_moved_by_the_tails() -> None:
    assert EIGHT.mean() == pytest.approx(0.3875)
    assert interquartile_mean(EIGHT) == pytest.approx(0.35)
    scores = np.random.default_rng(1).normal(size=(7, 3))
    assert interquartile_mean(scores) == pytest.approx(trim_mean(scores, 0.25, axis=None))


def test_the_probability_of_improvement_is_the_rank_statistic_of_each_task() -> None:
    generator = np.random.default_rng(2)
    one, other = generator.integers(0, 5, (6, 4)).astype(float), generator.integers(0, 5, (5, 4)).astype(float)
    ranks = [mannwhitneyu(one[:, task], other[:, task]).statistic / (6 * 5) for task in range(4)]
    assert probability_of_improvement(one, other) == pytest.approx(np.mean(ranks))
    assert probability_of_improvement(one, one) == pytest.approx(0.5)
    with pytest.raises(BadInputError, match="4 and 3 tasks"):
        probability_of_improvement(one, other[:, :3])


def test_the_bootstrap_resamples_runs_within_each_task() -> None:
    """The mean's standard error over stratified resamples is known: sqrt(mean of the tasks' variances / n / tasks)."""
    scores = np.random.default_rng(3).normal(size=(10, 5)) + np.arange(5) * 100
    interval = stratified_bootstrap(lambda drawn: float(drawn.mean()), scores)
    assert interval is not None
    error = np.sqrt(scores.var(axis=0).mean() / 10 / 5)  # and not that of tasks, which are 100 apart
    assert interval.high - interval.low == pytest.approx(2 * 1.96 * error, rel=0.1)


def test_two_runs_and_equal_runs_have_no_interval() -> None:
    assert stratified_bootstrap(interquartile_mean, EIGHT[:2]) is None
    assert stratified_bootstrap(interquartile_mean, np.full((5, 2), 0.5)) is None
    wrong: list[list[list[float]]] = [[], [[]], [[1.0], [1.0, 2.0]], [[float("nan")]]]
    for rows in wrong:
        with pytest.raises(BadInputError):
            score_matrix(rows)
