"""Choosing a calibration method and measuring it on pairs left out of the fit.

Covers: folds that keep a prompt's pairs together, the cross-validated likelihood of each method, before and after on
left-out folds. Leaves out: the fits (`fitting.py`), scoring pairs.

The choice of the method is cross-validated, too: with `auto` each outer fold chooses by an inner cross-validation. The
final calibration is fitted on all pairs.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt

from assay.errors import BadInputError
from assay.models.calibration import CALIBRATION_METHODS, Calibration, CalibrationMethod
from assay_rm_training.calibration.fitting import NoBetterThanChanceError, fit_calibration, fit_temperature
from assay_rm_training.calibration.measures import (
    MEASURES,
    CalibrationReport,
    Floats,
    pair_losses,
    probabilities_of,
    report_of,
)

FOLDS = 5


@dataclass(frozen=True)
class Calibrated:
    """`calibration`: fitted on all pairs, its `measured` filled. `before`, `after`: on left-out folds.

    `nll`: method -> mean cross-entropy on left-out folds; `chosen_by`: "name" or "cross-validated NLL".
    """

    calibration: Calibration
    before: CalibrationReport
    after: CalibrationReport
    nll: dict[str, float]
    chosen_by: str
    folds: int

    def to_dict(self) -> dict[str, Any]:
        return {
            "calibration": asdict(self.calibration),
            "id": self.calibration.id,
            "chosen_by": self.chosen_by,
            "folds": self.folds,
            "nll_by_method": self.nll,
            "before": asdict(self.before),
            "after": asdict(self.after),
        }


def calibrate(
    chosen: Sequence[float] | Floats,
    rejected: Sequence[float] | Floats,
    groups: Sequence[str],
    *,
    fitted_on: str,
    method: CalibrationMethod | Literal["auto"] = "auto",
    folds: int = FOLDS,
    seed: int = 0,
) -> Calibrated:
    """Fit the method, or the one with the best cross-validated likelihood, on rewards [N] and [N].

    `groups` [N]: prompt ids. Raises BadInputError for fewer than two prompts, and where the model
    ranks the pairs of the data, or of all folds but one, no better than chance.
    """
    c, r = np.asarray(chosen, dtype=float), np.asarray(rejected, dtype=float)
    if not len(c):
        raise BadInputError("no scored pairs to calibrate on")
    parts = _folds(groups, folds, seed)
    if len(parts) < 2:
        raise BadInputError(f"calibrating on left-out pairs needs pairs of two prompts; these {len(c)} are of one")
    candidates = CALIBRATION_METHODS if method == "auto" else (method,)
    fit_temperature(c - r)  # all pairs first, so that their error is not reported as a fold's
    try:
        left_out = {name: _cross_fitted(c, r, parts, name) for name in candidates}
        nll = {name: float(_losses(p).mean()) for name, p in left_out.items()}
        best = min(nll, key=lambda name: (nll[name], CALIBRATION_METHODS.index(name)))
        after = left_out[best] if method != "auto" else _nested(c, r, groups, parts, folds, seed)
    except NoBetterThanChanceError as error:
        raise BadInputError(
            f"cannot calibrate on these {len(c)} scored pairs: the fits are on folds of them ({len(parts)} by prompt), "
            f"and the {error.pairs} pairs of one fit the model does not rank better than chance (mean margin "
            f"{error.margin:.4g}); give more pairs"
        ) from error
    calibration = fit_calibration(c, r, fitted_on=fitted_on, method=cast(CalibrationMethod, best))
    d = c - r
    raw = Calibration(1.0, 0.0, fitted_on="", pairs=0)
    before_report = report_of(d, probabilities_of(d, None), raw, seed=seed, groups=groups)
    # The likelihood is of the left-out probabilities, which come from several fits.
    after_report = report_of(d, after, replace(calibration, method="platt"), seed=seed, groups=groups)
    after_report = replace(after_report, method=best)
    measured = {
        "folds": len(parts),
        "method_by": "name" if method != "auto" else "cross-validated NLL",
        "before": _figures(before_report),
        "after": _figures(after_report),
    }
    calibration = replace(calibration, measured=measured)
    return Calibrated(calibration, before_report, after_report, nll, str(measured["method_by"]), len(parts))


def _folds(groups: Sequence[str], folds: int, seed: int) -> list[npt.NDArray[np.intp]]:
    """Row indices of each fold, a group's rows in one, groups dealt out in an order drawn by seed."""
    names, member = np.unique(np.asarray(groups), return_inverse=True)
    dealt = np.random.default_rng(seed).permutation(len(names)) % min(folds, len(names))
    return [np.flatnonzero(dealt[member] == fold) for fold in range(min(folds, len(names)))]


def _cross_fitted(c: Floats, r: Floats, parts: Sequence[npt.NDArray[np.intp]], method: str) -> Floats:
    """P(chosen wins) [N], each from the fit on the other folds."""
    p = np.empty(len(c))
    for out in parts:
        fit_rows = np.setdiff1d(np.arange(len(c)), out)
        fitted = fit_calibration(c[fit_rows], r[fit_rows], fitted_on="", method=cast(CalibrationMethod, method))
        p[out] = probabilities_of(c[out] - r[out], fitted)
    return p


def _nested(
    c: Floats, r: Floats, groups: Sequence[str], parts: Sequence[npt.NDArray[np.intp]], folds: int, seed: int
) -> Floats:
    """As `_cross_fitted`, each fold's method chosen by cross-validation within the others."""
    p = np.empty(len(c))
    for out in parts:
        fit_rows = np.setdiff1d(np.arange(len(c)), out)
        inner = _folds([groups[i] for i in fit_rows], folds, seed)
        method = "temperature"
        if len(inner) > 1:
            losses = {
                name: float(_losses(_cross_fitted(c[fit_rows], r[fit_rows], inner, name)).mean())
                for name in CALIBRATION_METHODS
            }
            method = min(losses, key=lambda name: (losses[name], CALIBRATION_METHODS.index(name)))
        fitted = fit_calibration(c[fit_rows], r[fit_rows], fitted_on="", method=cast(CalibrationMethod, method))
        p[out] = probabilities_of(c[out] - r[out], fitted)
    return p


def _losses(chosen: Floats) -> Floats:
    return pair_losses(chosen, np.ones(len(chosen)))


def _figures(report: CalibrationReport) -> dict[str, Any]:
    figures: dict[str, Any] = {name: getattr(report, name) for name in MEASURES}
    bounds = {name: [one.low, one.high] if one else None for name, one in report.intervals.items()}
    return figures | {"intervals": bounds}
