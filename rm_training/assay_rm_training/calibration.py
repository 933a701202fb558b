"""Is s(d) the probability that the first response wins? Measures of it, and the one number that mends it.

Covers: expected calibration error with either closing of the bins, Brier score, negative log-likelihood,
reliability bins, the temperature fit. Leaves out: storing the fit (`assay.models.spec.Calibration`).

The order of each pair is drawn from a seed first: with the chosen side always first every outcome is 1 and the
calibration error says nothing but 1 - mean(p).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from assay.errors import BadInputError
from assay.models.spec import Calibration

Floats = npt.NDArray[np.float64]
Closed = Literal["right", "left"]
BINS = 10
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
    """Ten bins of equal width, (a, b]. `ece_equal_mass`: over ten bins of equal count, less biased for few pairs."""

    ece: float
    ece_equal_mass: float
    brier: float
    nll: float
    temperature: float
    bins: tuple[Bin, ...]


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
    found = reliability(probabilities, results, bins=bins, closed=closed)
    return sum(b.pairs * abs(b.observed - b.predicted) for b in found) / len(probabilities)


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
    """Mean cross-entropy in nats; a certain and wrong probability makes it infinite."""
    right = np.where(np.asarray(results) > 0.5, probabilities, 1 - np.asarray(probabilities))
    with np.errstate(divide="ignore"):
        return float(-np.log(right).mean())


def calibration_report(
    differences: Sequence[float] | Floats, *, temperature: float = 1.0, seed: int = 0
) -> CalibrationReport:
    """All measures of s(d / temperature) over d = chosen - rejected [N], the order of each pair drawn by `seed`."""
    if not len(differences):
        raise BadInputError("no scored pairs to measure calibration on")
    d, results = random_order(differences, seed=seed)
    probabilities = sigmoid(d / temperature)
    # From d itself: exact where the probability rounds to 0 or 1.
    nll = float(np.logaddexp(0.0, -np.asarray(differences, dtype=float) / temperature).mean())
    return CalibrationReport(
        ece=expected_calibration_error(probabilities, results),
        ece_equal_mass=equal_mass_error(probabilities, results),
        brier=brier(probabilities, results),
        nll=nll,
        temperature=temperature,
        bins=reliability(probabilities, results),
    )


def fit_temperature(differences: Sequence[float] | Floats) -> float:
    """The T > 0 that minimises the mean of -log s(d / T) over d = chosen - rejected [N].

    The loss is convex in 1/T, so its derivative is bisected. As in Platt's fit each label counts (N+1)/(N+2) and its
    opposite the rest, which keeps T finite when every pair is right and fades with N. Raises BadInputError for
    pairs on which the model is no better than chance (mean d <= 0): no temperature makes those probabilities.
    """
    d = np.asarray(differences, dtype=float)
    if not len(d):
        raise BadInputError("no scored pairs to fit a temperature on")
    doubt = 1.0 / (len(d) + 2)

    def slope(a: float) -> float:  # derivative of the loss by a = 1/T
        return float((d * (sigmoid(a * d) - (1 - doubt))).mean())

    unit = 1.0 / max(float(np.abs(d).mean()), 1e-12)
    low, high = math.log(unit) - 25.0, math.log(unit) + 25.0
    if slope(math.exp(low)) >= 0:
        raise BadInputError(
            f"cannot calibrate on these {len(d)} pairs: the model does not rank them better than chance "
            f"(mean margin {d.mean():.4g})"
        )
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(math.exp(middle)) < 0 else (low, middle)
    return math.exp(-(low + high) / 2)


def fit_calibration(
    chosen: Sequence[float] | Floats, rejected: Sequence[float] | Floats, *, fitted_on: str
) -> Calibration:
    """Temperature on the pairs; the mean reward of all their responses as the reference of a single response."""
    c, r = np.asarray(chosen, dtype=float), np.asarray(rejected, dtype=float)
    return Calibration(
        temperature=fit_temperature(c - r),
        reference=float(np.concatenate([c, r]).mean()),
        fitted_on=fitted_on,
        pairs=len(c),
    )
