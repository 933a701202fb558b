"""Figures over trainings that differ by their seed: Student's interval of a mean; interquartile mean, stratified
bootstrap, probability of improvement (Agarwal et al. 2021, Deep RL at the edge of the statistical precipice, arXiv
2108.13264).

Scores are [runs, tasks]: row r is one training, evaluated on every task. Leaves out: performance profiles, optimality
gaps, intervals over prompts (`intervals`).
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from assay.errors import BadInputError
from assay.statistics.intervals import RESAMPLES, Interval, around

Scores: TypeAlias = npt.NDArray[np.float64]
LEAST_RUNS = 3  #: with fewer, resampling runs tells nothing of their spread


def score_matrix(rows: Sequence[Sequence[float]]) -> Scores:
    """[runs, tasks]. Raises BadInputError for none, for rows of different lengths and for what is no number."""
    if not rows or len({len(row) for row in rows}) != 1 or not rows[0]:
        raise BadInputError("scores are a number for every run and task")
    scores = np.asarray(rows, dtype=float)
    if not np.isfinite(scores).all():
        raise BadInputError("a score is not a finite number: leave its run or its task out")
    return scores


def seed_interval(values: Sequence[float]) -> Interval | None:
    """Of the mean over runs of one configuration (Student 1908, The probable error of a mean): what other seeds would
    give on the same items. None under two runs, and where all are equal."""
    scores = np.asarray(values, dtype=float)
    if len(scores) < 2 or scores.min() == scores.max():
        return None
    return around(float(scores.mean()), float(scores.std(ddof=1)) / len(scores) ** 0.5, len(scores) - 1)


def interquartile_mean(scores: Scores) -> float:
    """Mean of the middle half of all runs and tasks: a quarter, rounded down, is cut off at each end."""
    values = np.sort(scores, axis=None)
    cut = len(values) // 4
    return float(values[cut : len(values) - cut].mean())


def probability_of_improvement(scores: Scores, baseline: Scores) -> float:
    """That a run of `scores` [N, T] is better than one of `baseline` [M, T], mean over tasks; equal ones count half.

    Raises BadInputError for different numbers of tasks.
    """
    if scores.shape[1] != baseline.shape[1]:
        raise BadInputError(f"{scores.shape[1]} and {baseline.shape[1]} tasks have no comparison")
    difference = scores[:, None, :] - baseline[None, :, :]
    return float(((difference > 0) + 0.5 * (difference == 0)).mean())


def stratified_bootstrap(
    statistic: Callable[..., float], *samples: Scores, resamples: int = RESAMPLES, seed: int = 0
) -> Interval | None:
    """Percentile interval (95 %) of `statistic(*samples)`: each task's runs are resampled on their own, tasks are not.

    None, which is "undetermined", where one of the samples has under LEAST_RUNS runs, or no resample differs.
    """
    if min(len(scores) for scores in samples) < LEAST_RUNS:
        return None
    generator = np.random.default_rng(seed)

    def resampled(scores: Scores) -> Any:
        return np.take_along_axis(scores, generator.integers(0, len(scores), scores.shape), axis=0)

    values = [statistic(*(resampled(scores) for scores in samples)) for _ in range(resamples)]
    low, high = (float(bound) for bound in np.quantile(values, (0.025, 0.975)))
    return Interval(low, high) if high > low else None
