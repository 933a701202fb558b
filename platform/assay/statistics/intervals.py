"""Confidence intervals: Wilson's for independent items; for items in groups CR2 of means, slopes and correlations, and
the jackknife over groups of other figures; the Beta posterior for few items.

Covers every interval of an evaluation, a comparison of two models, a calibration, an agreement and the page. Leaves
out: agreement coefficients, which have no closed form (`agreement`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from assay.errors import BadInputError

Z95 = 1.959963984540054  # 97.5 % point of the normal distribution
RESAMPLES = 2000
Values: TypeAlias = Sequence[float] | npt.NDArray[np.float64]
LEAST_CLUSTERS = 10  #: groups; with fewer, what an interval covers depends on how the groups differ


@dataclass(frozen=True)
class Interval:
    """A 95 % interval."""

    low: float
    high: float


@dataclass(frozen=True)
class PosteriorShare:
    """A share as it is to be expected, and its 95 % interval."""

    mean: float
    interval: Interval


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


def clustered_mean(values: Values, groups: Sequence[str]) -> Interval | None:
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


def share_interval(values: Values, groups: Sequence[str]) -> Interval | None:
    """Interval of a share, where `values` [N] are 0 to 1: the wider of `clustered_mean` and `wilson`, cut to 0 to 1.

    None under LEAST_CLUSTERS groups: nothing is said with certainty of prompts from a handful of them. Of equal values
    it is that of `wilson` for one value a group.
    """
    interval, clusters = clustered_mean(values, groups), len(set(groups))
    if interval is None:
        return wilson(float(np.mean(values)) * clusters, clusters) if clusters >= LEAST_CLUSTERS else None
    low, high = max(0.0, interval.low), min(1.0, interval.high)
    return max(Interval(low, high), wilson(float(np.sum(values)), len(values)), key=lambda i: i.high - i.low)


def clustered_slope(x: Values, y: Values, groups: Sequence[str]) -> Interval | None:
    """Interval of the least-squares slope of y on x within groups [N], each group's means taken off both.

    CR2 of the regression with an intercept for each group (Pustejovsky and Tipton 2018, Small-sample methods for
    cluster-robust variance estimation): squared sums of x times residual by group, each divided by 1 - its share of the
    squares of x. Degrees of freedom are Satterthwaite's, for slopes that differ between groups by an estimated
    variance. None, which is "undetermined", where x varies within fewer than LEAST_CLUSTERS groups, and for residuals
    of 0.
    """
    (x_within, y_within), member = within_groups((x, y), groups)
    by_group: npt.NDArray[np.float64] = np.bincount(member, weights=x_within**2).astype(np.float64)
    used = by_group > 0
    squares, products = by_group[used], np.bincount(member, weights=x_within * y_within)[used]
    if len(squares) < LEAST_CLUSTERS:
        return None
    total = float(squares.sum())
    slope, shares = float(products.sum()) / total, squares / total
    residuals = (products - slope * squares) / np.sqrt(1 - shares)
    error, variances = float(np.sqrt((residuals**2).sum()) / total), squares
    spare = len(x_within) - len(used) - len(squares)  # degrees of freedom beside an intercept and a slope a group
    if spare > 0:
        within = max(0.0, float((y_within**2).sum() - (products**2 / squares).sum())) / spare
        between = float((squares * (products / squares - slope) ** 2).sum()) / (len(squares) - 1)
        typical = (total - float((squares**2).sum()) / total) / (len(squares) - 1)
        variances = squares * within + squares**2 * max(0.0, between - within) / typical
    return around(slope, error, satterthwaite(shares, variances)) if error > 1e-12 * abs(slope) else None


def clustered_correlation(x: Values, y: Values, groups: Sequence[str]) -> Interval | None:
    """Interval of Pearson's correlation of x and y [N]: of its influence values' mean (`clustered_mean`), on the scale
    of Fisher's z, where its distribution is nearly symmetric. None as there, and where it is 1, -1 or undefined.

    The influence of an item on r is z_x z_y - r (z_x^2 + z_y^2) / 2 with z the standardised values (Devlin,
    Gnanadesikan and Kettenring 1975, Robust estimation and outlier detection with correlation coefficients).
    """
    columns = [np.asarray(values, dtype=float) for values in (x, y)]
    if not len(columns[0]) or min(float(column.std()) for column in columns) <= 0:
        return None
    z_x, z_y = ((column - column.mean()) / column.std() for column in columns)
    r = float((z_x * z_y).mean())
    if 1 - abs(r) < 1e-9:
        return None
    spread = clustered_mean((z_x * z_y - r * (z_x**2 + z_y**2) / 2) / (1 - r * r), groups)
    if spread is None:
        return None
    reach = (spread.high - spread.low) / 2
    return Interval(math.tanh(math.atanh(r) - reach), math.tanh(math.atanh(r) + reach))


def jackknifed(value: float, left_out: Values, sizes: Values) -> Interval | None:
    """Interval of a figure by the jackknife over groups (Efron and Stein 1981, The jackknife estimate of variance, by
    which its variance is too large rather than too small): `left_out` [G] are the figure without each group.

    `sizes` [G]: items of each group, for Satterthwaite's degrees of freedom. None under LEAST_CLUSTERS groups, where a
    figure is not finite, and where no group changes it.
    """
    figures, groups = np.asarray(left_out, dtype=float), len(left_out)
    if groups < LEAST_CLUSTERS or not (np.isfinite(figures).all() and math.isfinite(value)):
        return None
    error = math.sqrt((groups - 1) / groups * float(((figures - figures.mean()) ** 2).sum()))
    return around(value, error, degrees_of_freedom(np.asarray(sizes, dtype=float), 0.0)) if error > 0 else None


def within_groups(
    columns: Sequence[Values], groups: Sequence[str]
) -> tuple[list[npt.NDArray[np.float64]], npt.NDArray[np.intp]]:
    """Each column [N] with its groups' means taken off, and the number of each item's group [N]."""
    _, member = np.unique(np.asarray(groups), return_inverse=True)
    sizes, centred = np.bincount(member), []
    for column in columns:
        values = np.asarray(column, dtype=float)
        rounding = 1e-12 * float(np.abs(values).max(initial=0.0))
        off = values - (np.bincount(member, weights=values) / sizes)[member]
        centred.append(np.where(np.abs(off) > rounding, off, 0.0))
    return centred, member


def interval_text(interval: Interval | None, form: str = ".4f", *, scale: float = 1.0) -> str:
    """ "0.61 to 0.72", or "undetermined": under LEAST_CLUSTERS prompts, or no variation. `form`: of a number."""
    if interval is None:
        return "undetermined: few or all alike"
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
    """2 E[V]^2 / Var[V] of the CR2 variance V of a mean over groups of `sizes` [G], of values correlated within."""
    return satterthwaite(sizes / sizes.sum(), sizes * (1 + (sizes - 1) * correlation))


def satterthwaite(h: npt.NDArray[np.float64], w: npt.NDArray[np.float64]) -> float:
    """2 E[V]^2 / Var[V] of the CR2 variance V, for groups of shares `h` [G] and variances `w` [G] of their sums.

    V is |D (I - h 1') s|^2 with D = diag(1 / sqrt(1 - h)) and s the sums by group: freedom is tr(S)^2 / tr(S S) for
    S = D (I - h 1') W (I - 1 h') D, W = diag(w); written out, so that it takes O(G).
    """
    a, t = 1 / (1 - h), float(w.sum())
    diagonal = -2 * h * w + t * h**2
    hh, ww, hw = float((a * h * h).sum()), float((a * w * w).sum()), float((a * h * w).sum())
    squared = 2 * hh * ww + 2 * hw**2 - 4 * t * hh * hw + t**2 * hh**2
    squared += float((a**2 * (2 * w * diagonal + w**2)).sum())
    return max(1.0, float((a * (w + diagonal)).sum()) ** 2 / squared)


def beta_posterior(right: float, asked: float, *, prior_mean: float = 0.5, prior_size: float = 2.0) -> PosteriorShare:
    """Of a share, after `right` of `asked`: the Beta posterior with equal tails (Gelman et al. 2013, section 2.4).

    The prior counts as `prior_size` items of which `prior_mean` were right; the default is uniform. Raises
    BadInputError for a count or a prior that cannot be.
    """
    from scipy.special import betaincinv

    if not 0 <= right <= asked or not 0 < prior_mean < 1 or not prior_size > 0:
        raise BadInputError(f"no posterior of {right} right of {asked} with a prior of {prior_size} at {prior_mean}")
    a, b = right + prior_mean * prior_size, asked - right + (1 - prior_mean) * prior_size
    low, high = (float(betaincinv(a, b, tail)) for tail in (0.025, 0.975))
    return PosteriorShare(a / (a + b), Interval(low, high))
