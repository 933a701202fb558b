"""Measures of calibration: how well P(first wins) matches the observed share of wins.

Covers: expected calibration error with either closing of the bins, over bins of equal width and of equal count, Brier
score, negative log-likelihood, reliability bins; intervals of those that are not biased. Leaves out: fits.

The order of each pair is drawn from a seed first: with the chosen side always first every outcome is 1 and the
calibration error is 1 - mean(p). Few pairs bias a calibration error upwards, so that no interval around it covers the
true one; the debiased error of `RmsError` has an interval.

The reliability diagram as text, one line per bin. Leaves out: the chart (`assay report RUN`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from assay.errors import BadInputError
from assay.models.calibration import Calibration
from assay.statistics.intervals import Interval, clustered_mean, interval_text, jackknifed

Floats = npt.NDArray[np.float64]
Closed = Literal["right", "left"]
BINS = 10
MEASURES = {
    "ece": "calibration error, 10 equal bins (a, b]",
    "ece_equal_mass": "calibration error, 10 bins of equal count",
    "rms_error": "calibration error, root mean square, debiased",
    "brier": "Brier score",
    "nll": "negative log-likelihood",
}  #: a report's figures, as they are shown
UNBIASED = ("rms_error", "brier", "nll")  #: those that have an interval
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

    `rms_error`: see `rms_calibration_error`; None where no bin has pairs of two prompts. `temperature`, `method`: of
    the probabilities measured; of isotonic ones the temperature is the nearest. `intervals`: 95 %, by prompt, of
    `rms_error`, `brier`, `nll`, None where undetermined; empty where no prompts were given.
    """

    ece: float
    ece_equal_mass: float
    rms_error: float | None
    brier: float
    nll: float
    temperature: float
    bins: tuple[Bin, ...]
    intervals: dict[str, Interval | None] = field(default_factory=dict)
    method: str = "temperature"


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


def rms_calibration_error(
    probabilities: Floats, results: Floats, groups: Sequence[str] | None = None, *, bins: int = BINS
) -> tuple[float | None, Interval | None]:
    """Root mean square of observed - predicted over bins of equal width, not biased by few pairs, and its interval.

    A bin's squared mean difference is estimated over products of two pairs of different groups [N] (None: all pairs
    independent), whose errors are independent: without the variance that squares add (the debiased estimator of Kumar,
    Liang and Ma 2019, arXiv 1909.10155, for groups). Weighted by pairs, bins with pairs of one group left out; below 0
    it counts as 0. The interval is the jackknife's of the square: too wide, not too narrow, for calibrated
    probabilities. None: no such bin; an undetermined interval.
    """
    p, y = np.asarray(probabilities, dtype=float), np.asarray(results, dtype=float)
    member = np.arange(len(p)) if groups is None else np.unique(np.asarray(groups), return_inverse=True)[1]
    count = int(member.max()) + 1
    cell = member * bins + np.clip(np.ceil(p * bins - _EDGE) - 1, 0, bins - 1).astype(int)
    sums = np.bincount(cell, weights=y - p, minlength=count * bins).reshape(count, bins)
    sizes = np.bincount(cell, minlength=count * bins).reshape(count, bins).astype(float)

    def squared(sums: Floats, sizes: Floats, own_products: Floats, own_pairs: Floats) -> Floats:
        """Mean square over bins, the last axis; NaN where no bin has pairs of two groups."""
        products = sizes**2 - own_pairs
        weights = np.where(products > 0.5, sizes, 0.0)
        squares = (sums**2 - own_products) / np.where(products > 0.5, products, 1.0)
        with np.errstate(invalid="ignore"):
            return np.asarray((weights * squares).sum(-1) / weights.sum(-1))

    parts = (sums, sizes, sums**2, sizes**2)
    totals = [part.sum(0) for part in parts]
    square = float(squared(*totals))
    if not np.isfinite(square):
        return None, None
    left_out = squared(*(total - part for total, part in zip(totals, parts, strict=True)))
    square = max(0.0, square)
    of_square = jackknifed(square, left_out, sizes.sum(1)) if groups is not None else None
    if of_square is None:
        return float(np.sqrt(square)), None
    return float(np.sqrt(square)), Interval(float(np.sqrt(max(0.0, of_square.low))), float(np.sqrt(of_square.high)))


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

    Of the probabilities of `calibration`, else of s(d / temperature). `groups` [N]: prompt ids, for intervals.
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
    squares = (p - first) ** 2
    rms_error, rms_interval = rms_calibration_error(p, first, groups)
    intervals: dict[str, Interval | None] = {}
    if groups is not None:
        intervals = {"rms_error": rms_interval, "brier": clustered_mean(squares, groups), "nll": None}
        if np.isfinite(losses).all():
            intervals["nll"] = clustered_mean(losses, groups)
    return CalibrationReport(
        ece=expected_calibration_error(p, first),
        ece_equal_mass=equal_mass_error(p, first),
        rms_error=rms_error,
        brier=float(squares.mean()),
        nll=float(losses.mean()),
        temperature=calibration.temperature,
        bins=reliability(p, first),
        intervals=intervals,
        method=calibration.method,
    )


def pair_losses(probabilities: Floats, results: Floats) -> Floats:
    """Cross-entropy of each pair in nats [N]; infinite where a probability of 0 or 1 is wrong."""
    right = np.where(np.asarray(results) > 0.5, probabilities, 1 - np.asarray(probabilities))
    with np.errstate(divide="ignore"):
        return np.asarray(-np.log(right))


def measure_text(figures: Mapping[str, Any], name: str) -> str:
    """ "0.0412 (0.0201 to 0.0633)", or "undetermined" in place of the bounds; without bounds where `figures` (those of
    a report or of a calibration) have no interval of it, "none" where there is no figure."""
    if figures.get(name) is None:
        return "none"
    value, intervals = f"{figures[name]:.4f}", figures.get("intervals") or {}
    if name not in UNBIASED or name not in intervals:
        return value
    bounds = intervals[name]
    if isinstance(bounds, Mapping):
        bounds = (bounds["low"], bounds["high"])
    return f"{value} ({interval_text(Interval(*bounds) if bounds else None)})"


WIDTH = 41  # columns from 0 to 1


def reliability_lines(bins: Sequence[Bin]) -> list[str]:
    """One line per bin, its range first: `o` observed, `|` predicted, `*` both in one column, then the count of
    pairs."""
    lines = []
    for part in bins:
        row = [" "] * WIDTH
        predicted, observed = (round(value * (WIDTH - 1)) for value in (part.predicted, part.observed))
        row[predicted] = "|"
        row[observed] = "*" if observed == predicted else "o"
        text = "".join(row)
        lines.append(
            f"{part.low:.1f}-{part.high:.1f} [{text}] {part.predicted:.3f} said, {part.observed:.3f} won, {part.pairs}"
        )
    return lines
