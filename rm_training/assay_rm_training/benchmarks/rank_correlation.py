"""Rank correlation of two score vectors: Kendall's tau-b, Spearman's rho, a bootstrap interval.

Textbook statistics (card D9). A constant vector gives 0, not NaN: it ranks nothing. Pooled over prompts these mix
prompt difficulty in: take them per prompt and average. Leaves out: significance tests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from assay.errors import BadInputError
from assay_rm_training.benchmarks.strata import Floats, NamedInterval, percentile_interval

Vector: TypeAlias = Sequence[float] | Floats


def kendall_tau_b(x: Vector, y: Vector) -> float:
    """(concordant - discordant) / sqrt((n0 - ties in x) (n0 - ties in y))."""
    a, b = (_signs(v) for v in _both(x, y))
    scale = np.sqrt(float((a != 0).sum()) * float((b != 0).sum()))
    return float((a * b).sum() / scale) if scale else 0.0


def spearman(x: Vector, y: Vector) -> float:
    """Pearson's correlation of average ranks."""
    a, b = _both(x, y)
    return pearson(average_ranks(a), average_ranks(b))


def pearson(x: Vector, y: Vector) -> float:
    """0 where either does not vary."""
    a, b = _both(x, y)
    a, b = a - a.mean(), b - b.mean()
    scale = float(np.sqrt((a @ a) * (b @ b)))
    return float(np.clip((a @ b) / scale, -1.0, 1.0)) if scale else 0.0


def average_ranks(values: Vector) -> Floats:
    """1-based ranks; equal values share the mean of theirs."""
    _, level, counts = np.unique(np.asarray(values, dtype=float), return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    out: Floats = ((last - counts + 1 + last) / 2)[level]
    return out


def correlation_interval(
    measure: Callable[[Vector, Vector], float], x: Vector, y: Vector, *, seed: int = 0, resamples: int = 2000
) -> NamedInterval | None:
    """95 % percentile interval, resampling the points."""
    a, b = _both(x, y)
    drawn = np.random.default_rng(seed).integers(len(a), size=(resamples, len(a)))
    return percentile_interval(np.array([measure(a[rows], b[rows]) for rows in drawn]))


def _both(x: Vector, y: Vector) -> tuple[Floats, Floats]:
    a, b = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    if a.ndim != 1 or a.shape != b.shape or len(a) < 2:
        raise BadInputError("a rank correlation needs two vectors of the same length, at least 2")
    return a, b


def _signs(values: Floats) -> npt.NDArray[np.float64]:
    """[n, n] signs of all differences."""
    out: npt.NDArray[np.float64] = np.sign(values[:, None] - values[None, :])
    return out
