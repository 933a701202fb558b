"""The bootstrap interval of a rank correlation. Leaves out: the correlations (`assay.statistics.rank_correlation`)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from assay.statistics.rank_correlation import Vector, two_vectors
from assay_rm_training.benchmarks.strata import NamedInterval, percentile_interval


def correlation_interval(
    measure: Callable[[Vector, Vector], float], x: Vector, y: Vector, *, seed: int = 0, resamples: int = 2000
) -> NamedInterval | None:
    """95 % percentile interval, resampling the points."""
    a, b = two_vectors(x, y)
    drawn = np.random.default_rng(seed).integers(len(a), size=(resamples, len(a)))
    return percentile_interval(np.array([measure(a[rows], b[rows]) for rows in drawn]))
