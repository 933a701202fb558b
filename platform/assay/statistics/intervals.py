"""Confidence intervals of shares and means: Wilson's for independent items, CR2 for items in groups.

Covers every interval of an evaluation, a comparison of two models, an agreement and the page. Leaves out: agreement
coefficients, which have no closed form (`agreement`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from assay.errors import BadInputError

Z95 = 1.959963984540054  # 97.5 % point of the normal distribution
RESAMPLES = 2000
LEAST_CLUSTERS = 10  #: groups; with fewer, what an interval covers depends on how the groups differ


@dataclass(frozen=True)
class Interval:
    """A 95 % interval."""

    low: float
    high: float


def wilson(successes: float, total: int, *, z: float = Z95) -> Interval:
    """Wilson's score interval of successes / total (Wilson 1927). `successes` may be fractional (half credit).

    Right also near 0 and 1, where the normal approximation is not. Raises BadInputError for total < 1.
    """
    if total < 1:
        raise BadInputError("an interval needs at least one item")
    share = successes / total
    centre = share + z * z / (2 * total)
    spread = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    scale = 1 + z * z / total
    # At the ends the formula gives 0 and 1 but for rounding.
    low = 0.0 if successes <= 0 else max(0.0, (centre - spread) / scale)
    return Interval(low, 1.0 if successes >= total else min(1.0, (centre + spread) / scale))


def clustered_mean(values: Sequence[float], groups: Sequence[str]) -> Interval | None:
    """Interval of the mean of `values` [N], whose errors depend on each other within a group (pairs of one prompt).

    None, which is "undetermined", under LEAST_CLUSTERS groups, and for values that are all 0. Other equal values tell
    of no variance: their interval is as wide, relative to them, as Wilson's of one success in every group.

    The variance is CR2's (Bell and McCaffrey 2002, Bias reduction in standard errors for linear regression with
    multi-stage samples): squared sums of residuals by group, each divided by 1 - n_g / N. The t distribution has
    Satterthwaite's degrees of freedom under a working model of equally correlated values within a group, whose
    correlation is estimated (ANOVA).
    """
    if not len(values) or len(values) != len(groups):
        raise BadInputError("an interval needs items, and a group for each")
    numbers = np.asarray(values, dtype=float)
    _, member = np.unique(np.asarray(groups), return_inverse=True)
    sizes = np.bincount(member).astype(float)
    if len(sizes) < LEAST_CLUSTERS:
        return None
    if numbers.min() == numbers.max():
        reach = abs(float(numbers[0])) * (1 - wilson(len(sizes), len(sizes)).low)
        return Interval(float(numbers[0]) - reach, float(numbers[0]) + reach) if reach else None
    total, mean = float(sizes.sum()), float(numbers.mean())
    sums: npt.NDArray[np.float64] = np.bincount(member, weights=numbers).astype(np.float64)
    share = sizes / total
    residuals = (sums - mean * sizes) / np.sqrt(1 - share)
    error = float(np.sqrt((residuals**2).sum()) / total)
    correlation = correlation_within(numbers, member, sums, sizes)
    freedom = degrees_of_freedom(sizes, correlation)
    return around(mean, error, freedom)


def share_interval(values: Sequence[float], groups: Sequence[str]) -> Interval | None:
    """Interval of a share, where `values` [N] are 0 to 1: the wider of `clustered_mean` and `wilson`, cut to 0 to 1.

    None under LEAST_CLUSTERS groups: nothing is said with certainty of prompts from a handful of them. Of equal values
    it is that of `wilson` for one value a group.
    """
    interval, clusters = clustered_mean(values, groups), len(set(groups))
    if interval is None:
        return wilson(float(np.mean(values)) * clusters, clusters) if clusters >= LEAST_CLUSTERS else None
    low, high = max(0.0, interval.low), min(1.0, interval.high)
    return max(Interval(low, high), wilson(float(np.sum(values)), len(values)), key=lambda i: i.high - i.low)


def interval_text(interval: Interval | None, form: str = ".4f", *, scale: float = 1.0) -> str:
    """ "0.61 to 0.72", or "undetermined"; `form`: how a number is written."""
    if interval is None:
        return f"undetermined, under {LEAST_CLUSTERS} prompts"
    return f"{scale * interval.low:{form}} to {scale * interval.high:{form}}"


def bounds(interval: Interval | None) -> tuple[float | None, float | None]:
    """Low and high, None for both where the interval is undetermined."""
    return (None, None) if interval is None else (interval.low, interval.high)


def correlation_within(
    values: npt.NDArray[np.float64],
    member: npt.NDArray[np.int64],
    sums: npt.NDArray[np.float64],
    sizes: npt.NDArray[np.float64],
) -> float:
    """Correlation of two values of one group, 0 to 1: the ANOVA estimator with unequal groups. 1 with single values."""
    groups, total = len(sizes), float(sizes.sum())
    if total == groups:
        return 0.0
    within = float(((values - (sums / sizes)[member]) ** 2).sum()) / (total - groups)
    between = float((sizes * (sums / sizes - values.mean()) ** 2).sum()) / (groups - 1)
    typical = (total - float((sizes**2).sum()) / total) / (groups - 1)
    variance = max(0.0, (between - within) / typical)
    return variance / (variance + within) if variance + within > 0 else 0.0


def around(value: float, error: float, freedom: float) -> Interval:
    """The interval of a value with its standard error and the degrees of freedom of that."""
    from scipy.special import stdtrit  # takes long, and not every importer of this module asks for an interval

    reach = float(stdtrit(freedom, 0.975)) * error
    return Interval(value - reach, value + reach)


def degrees_of_freedom(sizes: npt.NDArray[np.float64], correlation: float) -> float:
    """2 E[V]^2 / Var[V] of the CR2 variance V of a mean over groups of `sizes` [G], of values correlated within.

    V is |D (I - h 1') s|^2 with h = sizes / N, D = diag(1 / sqrt(1 - h)) and s the sums by group: freedom is
    tr(S)^2 / tr(S S) for S = D (I - h 1') W (I - 1 h') D, W = diag(Var[s]); written out, so that it takes O(G).
    """
    w = sizes * (1 + (sizes - 1) * correlation)
    h = sizes / sizes.sum()
    a, t = 1 / (1 - h), float(w.sum())
    diagonal = -2 * h * w + t * h**2
    hh, ww, hw = float((a * h * h).sum()), float((a * w * w).sum()), float((a * h * w).sum())
    squared = 2 * hh * ww + 2 * hw**2 - 4 * t * hh * hw + t**2 * hh**2
    squared += float((a**2 * (2 * w * diagonal + w**2)).sum())
    return max(1.0, float((a * (w + diagonal)).sum()) ** 2 / squared)
