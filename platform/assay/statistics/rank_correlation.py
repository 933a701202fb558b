"""Rank correlation of two score vectors: Kendall's tau-b, Spearman's rho.

Textbook statistics. A constant vector gives 0, not NaN: it ranks nothing. Pooled over prompts these mix
prompt difficulty in: take them per prompt and average. Leaves out: significance tests, intervals.
"""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from assay.errors import BadInputError

Floats: TypeAlias = npt.NDArray[np.float64]
Vector: TypeAlias = Sequence[float] | Floats

_CELLS = 1_000_000  # differences held at once


def kendall_tau_b(x: Vector, y: Vector) -> float:
    """(concordant - discordant) / sqrt((n0 - ties in x) (n0 - ties in y))."""
    a, b = two_vectors(x, y)
    both = of_a = of_b = 0.0
    step = max(1, _CELLS // len(a))
    for start in range(0, len(a), step):
        rows = slice(start, start + step)
        signs_a, signs_b = (np.sign(v[rows, None] - v[None, :]) for v in (a, b))
        both += float((signs_a * signs_b).sum())
        of_a += float((signs_a != 0).sum())
        of_b += float((signs_b != 0).sum())
    scale = np.sqrt(of_a * of_b)
    return float(both / scale) if scale else 0.0


def spearman(x: Vector, y: Vector) -> float:
    """Pearson's correlation of average ranks."""
    a, b = two_vectors(x, y)
    return pearson(average_ranks(a), average_ranks(b))


def pearson(x: Vector, y: Vector) -> float:
    """0 where either does not vary."""
    a, b = two_vectors(x, y)
    a, b = a - a.mean(), b - b.mean()
    scale = float(np.sqrt((a @ a) * (b @ b)))
    return float(np.clip((a @ b) / scale, -1.0, 1.0)) if scale else 0.0


def average_ranks(values: Vector) -> Floats:
    """1-based ranks; equal values share the mean of theirs."""
    _, level, counts = np.unique(np.asarray(values, dtype=float), return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    out: Floats = ((last - counts + 1 + last) / 2)[level]
    return out


def two_vectors(x: Vector, y: Vector) -> tuple[Floats, Floats]:
    """Both as arrays [n]. Raises BadInputError unless they are of one length, at least 2."""
    a, b = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    if a.ndim != 1 or a.shape != b.shape or len(a) < 2:
        raise BadInputError("a rank correlation needs two vectors of the same length, at least 2")
    return a, b
