"""Confidence intervals of a share: Wilson's for independent items, the cluster bootstrap for items in groups.

Leaves out: intervals of other statistics; one accuracy is all that pair evaluation reports an interval for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from assay.errors import BadInputError

Z95 = 1.959963984540054  # 97.5 % point of the normal distribution
RESAMPLES = 2000
_CELLS = 4_000_000  # resampled indices held at once


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


def wider(one: Interval, other: Interval) -> Interval:
    """Of Wilson's and the bootstrap's: a few items that are all right are no certainty, and prompts repeat."""
    return max(one, other, key=lambda interval: interval.high - interval.low)


def cluster_bootstrap(
    values: Sequence[float], groups: Sequence[str], *, seed: int = 0, resamples: int = RESAMPLES
) -> Interval:
    """Percentile interval of the mean of `values` [N], resampling whole groups (pairs that share a prompt).

    Pairs of one prompt succeed and fail together, so an interval that takes them as independent is too narrow.
    """
    if not len(values) or len(values) != len(groups):
        raise BadInputError("an interval needs items, and a group for each")
    _, member = np.unique(np.asarray(groups), return_inverse=True)
    sums = np.bincount(member, weights=np.asarray(values, dtype=float))
    sizes = np.bincount(member)
    rng = np.random.default_rng(seed)
    means = np.empty(resamples)
    step = max(1, _CELLS // len(sums))
    for start in range(0, resamples, step):
        drawn = rng.integers(len(sums), size=(min(step, resamples - start), len(sums)))
        means[start : start + len(drawn)] = sums[drawn].sum(axis=1) / sizes[drawn].sum(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return Interval(float(low), float(high))
