"""Fitting a calibration on gold pairs: temperature, Platt's sigmoid over both orders, isotonic regression.

Covers: one fit per method, all antisymmetric (`assay.models.calibration` has the formulas). Leaves out: choosing among
them and measuring them on pairs they were not fitted on (`held_out.py`).

Each label counts (N+1)/(N+2) and its opposite the rest, as in Platt's fit (Platt 1999): it keeps every fit finite where
all pairs are right, and vanishes with N.

Calibration of a principle model's P(Yes): a logistic fit to judged rows. Covers: the fit of s((R - reference) /
temperature) to labels by maximum likelihood (Platt scaling of single judgments). Leaves out: calibration on pairs
(`calibration/`), one curve per principle: base rates of rare principles are not modelled.
"""

import math
from collections.abc import Sequence

import numpy as np

from assay.errors import BadInputError
from assay.models.calibration import Calibration, CalibrationMethod
from assay_rm_training.calibration.measures import Floats, sigmoid

_OFFSETS = (0.5, 3.0)  # initial offsets of Platt's fit, beside the temperature's 0


class NoBetterThanChanceError(BadInputError):
    """The model ranks the `pairs` of a fit no better than chance; `margin`: their mean."""

    def __init__(self, pairs: int, margin: float) -> None:
        super().__init__(
            f"cannot calibrate on these {pairs} scored pairs: the model does not rank them better than chance "
            f"(mean margin {margin:.4g})"
        )
        self.pairs, self.margin = pairs, margin


def fit_calibration(
    chosen: Sequence[float] | Floats,
    rejected: Sequence[float] | Floats,
    *,
    fitted_on: str,
    method: CalibrationMethod = "temperature",
) -> Calibration:
    """The method's fit on the pairs; the mean reward of all their responses as the reference of a single response.

    Raises BadInputError for no pairs, NoBetterThanChanceError for pairs that the model ranks so.
    """
    c, r = np.asarray(chosen, dtype=float), np.asarray(rejected, dtype=float)
    d = c - r
    temperature, offset = fit_temperature(d), 0.0
    if method == "platt":
        temperature, offset = fit_platt(d, start=temperature)
    return Calibration(
        temperature=temperature,
        reference=float(np.concatenate([c, r]).mean()),
        fitted_on=fitted_on,
        pairs=len(c),
        method=method,
        offset=offset,
        knots=fit_isotonic(d) if method == "isotonic" else (),
    )


def fit_temperature(differences: Sequence[float] | Floats) -> float:
    """The T > 0 that minimises the mean of -log s(d / T) over d = chosen - rejected [N].

    The loss is convex in 1/T, so its derivative is bisected. Raises NoBetterThanChanceError for pairs on
    which the model is no better than chance (mean d <= 0): no temperature makes those probabilities.
    """
    d = np.asarray(differences, dtype=float)
    if not len(d):
        raise BadInputError("no scored pairs to fit a temperature on")
    doubt = _doubt(d)

    def slope(a: float) -> float:  # derivative of the loss by a = 1/T
        return float((d * (sigmoid(a * d) - (1 - doubt))).mean())

    unit = 1.0 / max(float(np.abs(d).mean()), 1e-12)
    low, high = math.log(unit) - 25.0, math.log(unit) + 25.0
    if slope(math.exp(low)) >= 0:
        raise NoBetterThanChanceError(len(d), float(d.mean()))
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(math.exp(middle)) < 0 else (low, middle)
    return math.exp(-(low + high) / 2)


def fit_platt(differences: Sequence[float] | Floats, *, start: float) -> tuple[float, float]:
    """(T, b >= 0) that minimise the mean cross-entropy of (s(d/T + b) + s(d/T - b)) / 2 over d = chosen - rejected.

    Not convex: L-BFGS from several b around the temperature `start`, including its own fit b = 0, so that the result is
    never worse.
    """
    import torch

    d = torch.from_numpy(np.asarray(differences, dtype=float))
    doubt = _doubt(np.asarray(differences))
    log_half = math.log(0.5)

    def loss(point: torch.Tensor) -> torch.Tensor:  # (log T, b)
        z, b = d / point[0].exp(), point[1]
        up, down = torch.nn.functional.logsigmoid(z + b), torch.nn.functional.logsigmoid(z - b)
        # s(-z - b) = 1 - s(z + b): both outcomes from the same two sigmoids, in logarithms
        won = torch.logaddexp(up, down) + log_half
        lost = torch.logaddexp(up - z - b, down - z + b) + log_half
        return -((1 - doubt) * won + doubt * lost).mean()

    candidates = [(float(loss(torch.tensor([math.log(start), 0.0], dtype=torch.float64))), math.log(start), 0.0)]
    for b in _OFFSETS:
        point = torch.tensor([math.log(start), b], dtype=torch.float64, requires_grad=True)
        search = torch.optim.LBFGS([point], max_iter=60, line_search_fn="strong_wolfe", tolerance_grad=1e-9)

        def closure(point: torch.Tensor = point, search: torch.optim.LBFGS = search) -> torch.Tensor:
            search.zero_grad()
            value = loss(point)
            value.backward()  # type: ignore[no-untyped-call]
            return value

        search.step(closure)  # type: ignore[no-untyped-call]
        end = point.detach()
        if bool(torch.isfinite(end).all()) and abs(float(end[0])) < 50:
            candidates.append((float(loss(end)), float(end[0]), abs(float(end[1]))))
    _, log_t, b = min(candidates)
    return math.exp(log_t), b


def fit_isotonic(differences: Sequence[float] | Floats) -> tuple[tuple[float, float], ...]:
    """Knots (d, P), d > 0, of the monotone f with f(-d) = 1 - f(d) that is nearest (least squares) to the outcomes.

    Each pair counts in both orders, (d, 1) and (-d, 0), so the one solution of the pooled problem is antisymmetric.
    A level of the step function becomes a knot at the mean of its d; between knots the function is linear.
    """
    d = np.asarray(differences, dtype=float)
    doubt = _doubt(d)
    positions, inverse, counts = np.unique(np.concatenate([d, -d]), return_inverse=True, return_counts=True)
    wins = np.bincount(inverse, weights=np.concatenate([np.ones(len(d)), np.zeros(len(d))]))
    levels = pool_adjacent_violators(positions, wins / counts, counts.astype(float))
    return tuple((at, doubt + (1 - 2 * doubt) * max(0.5, value)) for at, value, _ in levels if at > 1e-12)


def pool_adjacent_violators(x: Floats, y: Floats, weights: Floats) -> list[tuple[float, float, float]]:
    """Levels (mean x, value, weight) of the non-decreasing step function nearest to y in weighted least squares.

    `x` [N] ascending. The pool-adjacent-violators algorithm (Ayer et al. 1955), O(N).
    """
    levels: list[tuple[float, float, float]] = []
    for at, value, weight in zip(x.tolist(), y.tolist(), weights.tolist(), strict=True):
        levels.append((at, value, weight))
        while len(levels) > 1 and levels[-2][1] >= levels[-1][1]:
            (x1, y1, w1), (x2, y2, w2) = levels.pop(-2), levels.pop()
            w = w1 + w2
            levels.append(((x1 * w1 + x2 * w2) / w, (y1 * w1 + y2 * w2) / w, w))
    return levels


def _doubt(d: Floats) -> float:
    return 1.0 / (len(d) + 2)


STEPS = 100


def fit_judgments(rewards: Sequence[float], fulfilled: Sequence[bool], *, fitted_on: str) -> Calibration:
    """Maximum likelihood of slope and offset on rewards [N] and labels [N], targets (n + 1) / (n + 2) as Platt's, which
    keeps the slope finite where the labels can be separated. Raises BadInputError for labels of one kind only, and
    where a higher reward does not make Yes more likely.
    """
    r, y = np.asarray(rewards, dtype=float), np.asarray(fulfilled, dtype=bool)
    if not y.any() or y.all():
        raise BadInputError(f"cannot calibrate on {len(y)} judgments that are all {'yes' if len(y) and y[0] else 'no'}")
    yes, no = int(y.sum()), int((~y).sum())
    target = np.where(y, (yes + 1) / (yes + 2), 1 / (no + 2))
    centre, scale = float(r.mean()), float(r.std()) or 1.0
    x = np.stack([(r - centre) / scale, np.ones_like(r)], axis=1)
    weights = np.zeros(2)
    for _ in range(STEPS):
        p = 1 / (1 + np.exp(-x @ weights))
        gradient = x.T @ (p - target)
        curvature = (x * (p * (1 - p))[:, None]).T @ x + 1e-9 * np.eye(2)
        step = np.linalg.solve(curvature, gradient)
        weights -= step * min(1.0, 4.0 / max(float(np.abs(step).max()), 1e-12))  # damping
        if float(np.abs(step).max()) < 1e-10:
            break
    slope, offset = float(weights[0]), float(weights[1])
    if not slope > 1e-6:
        raise BadInputError(
            f"cannot calibrate on these {len(y)} judgments: a higher reward does not make Yes more likely"
        )
    return Calibration(
        temperature=scale / slope, reference=centre - offset * scale / slope, fitted_on=fitted_on, pairs=len(y)
    )
