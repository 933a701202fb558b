"""The curve of accuracy over the share of a solution that is shown, and its fit: item response theory's 3PL.

Covers: f(p) = b + (1 - b) / (1 + exp(-k (p + mu))), its inverse, least squares by damped Gauss-Newton steps, and
halving the interval where there are too few points to fit. Leaves out: whose points (`seele`).

Source: arXiv 2509.06923 (paper read). Oracle b .1, k 10, mu -.4: f(.2) .207283, f(.5) .757953, f^-1(.5) .377686.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]

STEPS = 100
STEEPEST = 100.0


@dataclass(frozen=True)
class SuccessCurve:
    """`b`: accuracy by guessing; `k`: slope; `mu`: minus the share at which half of the rest is reached."""

    b: float
    k: float
    mu: float

    def accuracy(self, share: float) -> float:
        return self.b + (1 - self.b) / (1 + math.exp(min(700.0, -self.k * (share + self.mu))))

    def share(self, accuracy: float) -> float | None:
        """The share at this accuracy; None where the curve does not reach it."""
        if not self.b < accuracy < 1 or not self.k > 0:
            return None
        return -math.log((1 - self.b) / (accuracy - self.b) - 1) / self.k - self.mu


def fit_curve(shares: Sequence[float], accuracies: Sequence[float], *, below: float) -> SuccessCurve | None:
    """Least squares over points averaged by share; b stays under `below`. None for fewer than three distinct shares
    or where accuracy does not rise with the share.
    """
    points: dict[float, list[float]] = {}
    for share, accuracy in zip(shares, accuracies, strict=True):
        points.setdefault(round(share, 9), []).append(accuracy)
    if len(points) < 3:
        return None
    x = np.array(sorted(points))
    y = np.array([sum(points[share]) / len(points[share]) for share in sorted(points)])
    if y[-1] - y[0] <= 0:
        return None
    ceiling = below * 0.98
    value = np.array([min(max(float(y.min()), 0.0), ceiling), 10.0, -float(x.mean())])
    loss, damping = _loss(value, x, y), 1e-2
    for _ in range(STEPS):
        residual, slopes = _residual(value, x, y), _slopes(value, x)
        normal = slopes.T @ slopes
        step = np.linalg.solve(normal + damping * (np.diag(np.diag(normal)) + 1e-9 * np.eye(3)), -slopes.T @ residual)
        tried = value + step
        tried[0], tried[1] = np.clip(tried[0], 0.0, ceiling), np.clip(tried[1], 1e-3, STEEPEST)
        tried_loss = _loss(tried, x, y)
        if tried_loss < loss:
            done = loss - tried_loss < 1e-14
            value, loss, damping = tried, tried_loss, max(damping / 3, 1e-9)
            if done:
                break
        else:
            damping *= 4
            if damping > 1e9:
                break
    return SuccessCurve(float(value[0]), float(value[1]), float(value[2]))


def _sigmoid(value: Numbers, x: Numbers) -> Numbers:
    inner: Numbers = 1 / (1 + np.exp(np.clip(-value[1] * (x + value[2]), -500, 500)))
    return inner


def _residual(value: Numbers, x: Numbers, y: Numbers) -> Numbers:
    gap: Numbers = value[0] + (1 - value[0]) * _sigmoid(value, x) - y
    return gap


def _loss(value: Numbers, x: Numbers, y: Numbers) -> float:
    return float((_residual(value, x, y) ** 2).sum())


def _slopes(value: Numbers, x: Numbers) -> Numbers:
    """[points,3] derivatives of the curve by b, k, mu."""
    s = _sigmoid(value, x)
    inner = (1 - value[0]) * s * (1 - s)
    return np.stack([1 - s, inner * (x + value[2]), inner * value[1]], axis=1)


def bisected_share(shares: Sequence[float], accuracies: Sequence[float], target: float) -> float:
    """The middle of the interval left: below the least share that reached the target, above the largest that did
    not."""
    reached = [share for share, accuracy in zip(shares, accuracies, strict=True) if accuracy >= target]
    high = min(reached, default=1.0)
    short = [s for s, accuracy in zip(shares, accuracies, strict=True) if accuracy < target and s < high]
    return (max(short, default=0.0) + high) / 2


def next_share(shares: Sequence[float], accuracies: Sequence[float], target: float) -> float:
    """In [0, 1]: where the fitted curve reaches the target; the interval's middle where it cannot be fitted."""
    curve = fit_curve(shares, accuracies, below=target)
    share = None if curve is None else curve.share(target)
    return bisected_share(shares, accuracies, target) if share is None else min(max(share, 0.0), 1.0)
