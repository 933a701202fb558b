"""The bootstrap interval of a rank correlation. Leaves out: the correlations (`assay.statistics.rank_correlation`)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from assay.statistics.intervals import LEAST_CLUSTERS
from assay.statistics.rank_correlation import Vector, two_vectors
from assay_rm_training.benchmarks.strata import NamedInterval


def correlation_interval(
    measure: Callable[[Vector, Vector], float], x: Vector, y: Vector, *, seed: int = 0, resamples: int = 2000
) -> NamedInterval | None:
    """95 % percentile interval, resampling the points; None, which is "undetermined", under LEAST_CLUSTERS points."""
    a, b = two_vectors(x, y)
    if len(a) < LEAST_CLUSTERS:
        return None
    drawn = np.random.default_rng(seed).integers(len(a), size=(resamples, len(a)))
    values = np.array([measure(a[rows], b[rows]) for rows in drawn])
    finite = values[~np.isnan(values)]
    if len(finite) < resamples / 2:
        return None
    low, high = np.quantile(finite, [0.025, 0.975])
    return NamedInterval(float(low), float(high), "bootstrap")
