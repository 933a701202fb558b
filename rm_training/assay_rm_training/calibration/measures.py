"""Measures of calibration: how well P(first wins) matches the observed share of wins.

Covers: expected calibration error with either closing of the bins, over bins of equal width and of equal count, Brier
score, negative log-likelihood, reliability bins, bootstrap intervals of all of them. Leaves out: fits (`fitting.py`).

The order of each pair is drawn from a seed first: with the chosen side always first every outcome is 1 and the
calibration error is 1 - mean(p). Few pairs bias a calibration error upwards, and a resampled set is biased once more:
its interval is a range over such sets, not around the true error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from assay.errors import BadInputError
from assay.models.calibration import Calibration
from assay.statistics.intervals import Interval

Floats = npt.NDArray[np.float64]
Closed = Literal["right", "left"]
BINS = 10
RESAMPLES = 400  # of each interval
_EDGE = 1e-9  # a probability this near to an edge lies on it: 0.1 * 3 * 10 is not 3 in binary


@dataclass(frozen=True)
class Bin:
    """One bin of a reliability diagram; `predicted` and `observed` are means over its pairs."""

    low: float
    high: float
    pairs: int
    predicted: float
    observed: float


@dataclass(frozen=True)
class CalibrationReport:
    """Ten bins of equal width, (a, b]. `ece_equal_mass`: over ten bins of equal count, less biased for few pairs.

    `temperature`, `method`: of the probabilities measured; of isotonic ones the temperature is the nearest.
    `intervals`: 95 %, by bootstrap over groups of pairs that share a prompt, of `ece`, `ece_equal_mass`, `brier`,
    `nll`; empty where none were asked for.
    """

    ece: float
    ece_equal_mass: float
    brier: float
    nll: float
    temperature: float
    bins: tuple[Bin, ...]
    intervals: dict[str, Interval] = field(default_factory=dict)
    method: str = "temperature"


def random_order(differences: Sequence[float] | Floats, *, seed: int) -> tuple[Floats, Floats]:
    """chosen - rejected [N] to (first minus second, 1.0 where the first is the chosen), the order drawn by seed."""
    first = np.random.default_rng(seed).integers(2, size=len(differences)).astype(float)
    return np.asarray(differences, dtype=float) * (2 * first - 1), first


def sigmoid(z: Floats) -> Floats:
    """1 / (1 + exp(-z)) without overflow."""
    small = np.exp(-np.abs(z))
    return np.asarray(np.where(z >= 0, 1.0, small) / (1.0 + small))


def reliability(
    probabilities: Floats, results: Floats, *, bins: int = BINS, closed: Closed = "right"
) -> tuple[Bin, ...]:
    """The non-empty bins of equal width: (a, b] for `right`, [a, b) for `left`; 0 and 1 are in the outer bins."""
    scaled = np.asarray(probabilities, dtype=float) * bins
    index = np.ceil(scaled - _EDGE) - 1 if closed == "right" else np.floor(scaled + _EDGE)
    index = np.clip(index, 0, bins - 1).astype(int)
    return tuple(
        Bin(
            b / bins,
            (b + 1) / bins,
            int(inside.sum()),
            float(np.asarray(probabilities)[inside].mean()),
            float(np.asarray(results)[inside].mean()),
        )
        for b in range(bins)
        if (inside := index == b).any()
    )


def expected_calibration_error(
    probabilities: Floats, results: Floats, *, bins: int = BINS, closed: Closed = "right"
) -> float:
    """Sum over bins of (share of pairs) |observed - predicted| (arXiv 1706.04599)."""
    bins_used = reliability(probabilities, results, bins=bins, closed=closed)
    return sum(b.pairs * abs(b.observed - b.predicted) for b in bins_used) / len(probabilities)


def equal_mass_error(probabilities: Floats, results: Floats, *, bins: int = BINS) -> float:
    """The same over bins of equal count, cut from the pairs sorted by probability."""
    order = np.argsort(probabilities, kind="stable")
    parts = [part for part in np.array_split(order, bins) if len(part)]
    gaps = (len(part) * abs(float(results[part].mean() - probabilities[part].mean())) for part in parts)
    return sum(gaps) / len(probabilities)


def brier(probabilities: Floats, results: Floats) -> float:
    """mean (p - y)^2."""
    return float(((np.asarray(probabilities) - results) ** 2).mean())


def negative_log_likelihood(probabilities: Floats, results: Floats) -> float:
    """Mean cross-entropy in nats; infinite where a probability of 0 or 1 is wrong."""
    return float(pair_losses(probabilities, results).mean())


def probabilities_of(differences: Sequence[float] | Floats, calibration: Calibration | None) -> Floats:
    """P(first beats second) [N] of differences first - second [N]; None: s(d), as if rewards were log-odds."""
    d = np.asarray(differences, dtype=float)
    if calibration is None:
        return sigmoid(d)
    size = np.abs(d)
    if calibration.method == "isotonic":
        knots = np.array([(0.0, 0.5), *calibration.knots])
        p = np.interp(size, knots[:, 0], knots[:, 1])
    else:
        z = size / calibration.temperature
        p = np.maximum(0.5, (sigmoid(z + calibration.offset) + sigmoid(z - calibration.offset)) / 2)
    return np.where(d >= 0, p, 1.0 - p)


def calibration_report(
    differences: Sequence[float] | Floats,
    *,
    temperature: float = 1.0,
    calibration: Calibration | None = None,
    seed: int = 0,
    groups: Sequence[str] | None = None,
) -> CalibrationReport:
    """All measures over d = chosen - rejected [N], the order of each pair drawn by `seed`.

    Of the probabilities of `calibration`, else of s(d / temperature). `groups` [N]: gives bootstrap intervals.
    """
    if not len(differences):
        raise BadInputError("no scored pairs to measure calibration on")
    d = np.asarray(differences, dtype=float)
    used = calibration or Calibration(temperature, 0.0, fitted_on="", pairs=0)
    return report_of(d, probabilities_of(d, used), used, seed=seed, groups=groups)


def report_of(
    differences: Floats,
    chosen: Floats,
    calibration: Calibration,
    *,
    seed: int = 0,
    groups: Sequence[str] | None = None,
) -> CalibrationReport:
    """All measures of probabilities P(chosen wins) [N] that were computed already, e.g. fold by fold.

    `calibration`: their function; where it is a sigmoid of d, the likelihood is taken from d itself,
    exact where a probability rounds to 0 or 1.
    """
    first = np.random.default_rng(seed).integers(2, size=len(differences)).astype(float)
    p = np.where(first > 0, chosen, 1.0 - chosen)
    if calibration.method == "temperature":
        losses = np.logaddexp(0.0, -differences / calibration.temperature)
    else:
        losses = pair_losses(p, first)
    measures: dict[str, Callable[[npt.NDArray[np.intp]], float]] = {
        "ece": lambda rows: expected_calibration_error(p[rows], first[rows]),
        "ece_equal_mass": lambda rows: equal_mass_error(p[rows], first[rows]),
        "brier": lambda rows: brier(p[rows], first[rows]),
        "nll": lambda rows: float(losses[rows].mean()),
    }
    everything = np.arange(len(differences))
    return CalibrationReport(
        **{name: measure(everything) for name, measure in measures.items()},
        temperature=calibration.temperature,
        bins=reliability(p, first),
        intervals=_intervals(measures, groups, seed) if groups is not None else {},
        method=calibration.method,
    )


def pair_losses(probabilities: Floats, results: Floats) -> Floats:
    """Cross-entropy of each pair in nats [N]; infinite where a probability of 0 or 1 is wrong."""
    right = np.where(np.asarray(results) > 0.5, probabilities, 1 - np.asarray(probabilities))
    with np.errstate(divide="ignore"):
        return np.asarray(-np.log(right))


def _intervals(
    measures: dict[str, Callable[[npt.NDArray[np.intp]], float]], groups: Sequence[str], seed: int
) -> dict[str, Interval]:
    """Percentile intervals, resampling whole groups; the same resamples for every measure."""
    _, member = np.unique(np.asarray(groups), return_inverse=True)
    order = np.argsort(member, kind="stable")
    parts = np.split(order, np.cumsum(np.bincount(member))[:-1])
    rng = np.random.default_rng(seed)
    drawn: dict[str, list[float]] = {name: [] for name in measures}
    for _ in range(RESAMPLES):
        rows = np.concatenate([parts[i] for i in rng.integers(len(parts), size=len(parts))])
        for name, measure in measures.items():
            drawn[name].append(measure(rows))
    return {name: Interval(*map(float, np.quantile(estimates, [0.025, 0.975]))) for name, estimates in drawn.items()}
