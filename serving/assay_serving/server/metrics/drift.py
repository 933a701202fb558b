"""Drift: two samples of rewards compared as distributions.

Covers: the population stability index, the Kolmogorov-Smirnov distance, the level of each that chance alone exceeds
once in twenty. Leaves out: which scores are compared (`engine_metrics`: later with earlier ones; `rollout.agreement`:
two models').

The chance levels hold for independent scores. Scores of one prompt are not, so a real server exceeds them more often:
they separate small-sample noise from larger effects, not "drift" from "no drift".
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from assay.errors import BadInputError

Floats: TypeAlias = npt.NDArray[np.float64]

BINS = 10
_Z95 = 1.6448536269514722  # 95 % point of the normal distribution, one side
_KS95 = math.sqrt(-math.log(0.05 / 2) / 2)  # 1.358, of Kolmogorov's distribution


@dataclass(frozen=True)
class Drift:
    """Drift of `current` from `reference` scores. The `_by_chance` values are exceeded 1 time in 20 without drift."""

    psi: float
    psi_by_chance: float
    ks: float  #: 0 to 1
    ks_by_chance: float
    reference: int  #: scores
    current: int

    def to_dict(self) -> dict[str, float]:
        return asdict(self)


def drift(reference: Sequence[float] | Floats, current: Sequence[float] | Floats) -> Drift:
    """Both statistics of two samples [N], [M]. Raises BadInputError where either is empty."""
    old, new = np.asarray(reference, dtype=float), np.asarray(current, dtype=float)
    if not len(old) or not len(new):
        raise BadInputError("drift is a comparison of two samples; one of them is empty")
    index, bins = stability_index(old, new)
    per_item = 1 / len(old) + 1 / len(new)
    return Drift(
        psi=index,
        psi_by_chance=per_item * chi_square_95(bins - 1),
        ks=smirnov_distance(old, new),
        ks_by_chance=_KS95 * math.sqrt(per_item),
        reference=len(old),
        current=len(new),
    )


def stability_index(reference: Floats, current: Floats, bins: int = BINS) -> tuple[float, int]:
    """PSI = sum over bins of (p - q) ln(p / q), and the number of bins (Siddiqi, Credit Risk Scorecards, 2006).

    The bins are quantiles of the reference, fewer where it repeats values. Half an observation is added to every bin
    of both (Krichevsky and Trofimov), so that an empty one does not make the sum infinite. Without drift the index is
    distributed as (1/N + 1/M) chi-square with bins - 1 degrees of freedom (Yurdakul and Naranjo, 2020).
    """
    edges = np.unique(np.quantile(reference, np.arange(1, bins) / bins))
    # Values at an edge are below it, so that a reference of one repeated value fills the first bin.
    counts = [np.bincount(np.searchsorted(edges, values), minlength=len(edges) + 1) for values in (reference, current)]
    p, q = ((count + 0.5) / (count.sum() + 0.5 * len(count)) for count in counts)
    return float(((p - q) * np.log(p / q)).sum()), len(edges) + 1


def smirnov_distance(reference: Floats, current: Floats) -> float:
    """The largest difference of the two empirical distribution functions (Smirnov 1939)."""
    old, new = np.sort(reference), np.sort(current)
    places = np.concatenate([old, new])
    below = [np.searchsorted(values, places, side="right") / len(values) for values in (old, new)]
    return float(np.abs(below[0] - below[1]).max())


def chi_square_95(degrees: int) -> float:
    """95 % point of chi-square by Wilson and Hilferty's cube (1931): within 1 % from 2 degrees on, 2.5 % at 1."""
    if degrees < 1:
        return 0.0
    share = 2 / (9 * degrees)
    return float(degrees * (1 - share + _Z95 * math.sqrt(share)) ** 3)
