"""Calibration of a principle model's P(Yes): a logistic fit to judged rows.

Covers: the fit of s((R - reference) / temperature) to labels by maximum likelihood (Platt scaling of single judgments).
Leaves out: calibration on pairs (`calibration/`), one curve per principle: base rates of rare principles are not
modelled.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from assay.errors import BadInputError
from assay.models.calibration import Calibration

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
