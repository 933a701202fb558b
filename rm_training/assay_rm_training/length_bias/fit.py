"""Fitting a length correction, and measuring its effect on pairs left out of the fit.

Covers: the line, the LOWESS curve, one fit per domain, accuracy before and after on left-out prompts, accuracy over a
range of mixing weights. Leaves out: applying it (`assay.models.length_correction`,
`assay_serving.engines.length_corrected`).
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from assay.errors import BadInputError
from assay.models.length_correction import EVERY, Curve, Form, LengthCorrection, Unit
from assay.statistics.intervals import Interval, clustered_mean
from assay_rm_training.length_bias.measure import LengthBias, length_bias

Floats = npt.NDArray[np.float64]
SPAN = 0.4  # share of the responses in the window of a point of the LOWESS curve
KNOTS = 40
LEAST = 50  # least responses of a domain with its own curve
FOLDS = 5
MIXING_PATH = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class ScoredLengths:
    """N scored pairs: rewards and lengths of both sides, prompt ids, domains (all "" where there are none)."""

    rewards: tuple[Floats, Floats]
    lengths: tuple[Floats, Floats]
    groups: Sequence[str]
    domains: Sequence[str]

    def __len__(self) -> int:
        return len(self.rewards[0])

    def rows(self, rows: npt.NDArray[np.intp]) -> "ScoredLengths":
        (rc, rr), (lc, lr) = self.rewards, self.lengths
        return ScoredLengths(
            (rc[rows], rr[rows]),
            (lc[rows], lr[rows]),
            [self.groups[i] for i in rows],
            [self.domains[i] for i in rows],
        )


@dataclass(frozen=True)
class CorrectionEffect:
    """On left-out prompts: accuracy (a tie wrong) before and after, their difference with its interval over prompts,
    the bias before and after. `by_mixing`: weight -> accuracy, of the same folds."""

    folds: int
    before: float
    after: float
    change: float
    interval: Interval | None
    bias_before: LengthBias
    bias_after: LengthBias
    by_mixing: dict[float, float]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"by_mixing": {f"{m:g}": a for m, a in self.by_mixing.items()}}


def fit_line(lengths: Floats, rewards: Floats) -> Curve:
    """Least squares as two knots at the ends of the lengths. For a single length: a flat line at the mean."""
    low, high = float(lengths.min()), float(lengths.max())
    if high <= low:
        return ((low, float(rewards.mean())), (low + 1.0, float(rewards.mean())))
    x = lengths - lengths.mean()
    slope = float(x @ rewards) / float(x @ x)
    start = float(rewards.mean()) + slope * (low - float(lengths.mean()))
    return ((low, start), (high, start + slope * (high - low)))


def fit_lowess(lengths: Floats, rewards: Floats, *, span: float = SPAN, knots: int = KNOTS) -> Curve:
    """Locally weighted lines (Cleveland 1979) at `knots` quantiles of the lengths: tricube weights over the nearest
    `span` of the responses, without the robustness iterations."""
    order = np.argsort(lengths, kind="stable")
    x, y = lengths[order], rewards[order]
    near = min(len(x), max(3, int(np.ceil(span * len(x)))))
    curve: list[tuple[float, float]] = []
    for at in np.unique(np.quantile(x, np.linspace(0, 1, knots))):
        distance = np.abs(x - at)
        width = float(np.partition(distance, near - 1)[near - 1])
        weights = (1 - np.clip(distance / width, 0, 1) ** 3) ** 3 if width > 0 else (distance == 0).astype(float)
        total = float(weights.sum())
        if total <= 0:  # with many equal lengths the window's edge has weight 0
            weights = (distance <= width).astype(float)
            total = float(weights.sum())
        mean_x, mean_y = float(weights @ x) / total, float(weights @ y) / total
        square = float(weights @ (x - mean_x) ** 2)
        slope = float(weights @ ((x - mean_x) * (y - mean_y))) / square if square > 1e-9 * total else 0.0
        curve.append((float(at), mean_y + slope * (float(at) - mean_x)))
    return tuple(curve) if len(curve) > 1 else fit_line(lengths, rewards)


def fit_correction(
    scored: ScoredLengths,
    form: Form,
    *,
    name: str,
    unit: Unit = "tokens",
    mixing: float = 1.0,
    per_domain: bool = False,
    rate: float = 0.01,
    free: float = 300.0,
    ceiling: float | None = None,
    fitted_on: str = "",
) -> LengthCorrection:
    """The correction of both sides' responses. A domain of fewer than LEAST responses uses the curve of all."""
    if not len(scored):
        raise BadInputError("no scored pairs to fit a length correction on")
    rewards, lengths = np.concatenate(scored.rewards), np.concatenate(scored.lengths)
    curves: dict[str, Curve] = {}
    if form != "penalty":
        fit = fit_line if form == "linear" else fit_lowess
        curves[EVERY] = fit(lengths, rewards)
        domains = np.array([*scored.domains, *scored.domains])
        for domain in sorted(set(scored.domains)) if per_domain else ():
            inside = domains == domain
            if domain and inside.sum() >= LEAST:
                curves[domain] = fit(lengths[inside], rewards[inside])
    return LengthCorrection(
        name=name,
        form=form,
        unit=unit,
        mixing=mixing,
        curves=curves,
        rate=rate,
        free=free,
        ceiling=ceiling,
        fitted_on=fitted_on,
        responses=len(rewards),
    )


def corrected(scored: ScoredLengths, correction: LengthCorrection) -> tuple[Floats, Floats]:
    """Both sides' rewards [N] under the correction of their domain."""
    chosen, rejected = (
        np.array(
            [
                correction.corrected(r, length, domain)
                for r, length, domain in zip(rewards.tolist(), lengths.tolist(), scored.domains, strict=True)
            ]
        )
        for rewards, lengths in zip(scored.rewards, scored.lengths, strict=True)
    )
    return chosen, rejected


def effect_of(
    scored: ScoredLengths, template: LengthCorrection, *, per_domain: bool, folds: int = FOLDS, seed: int = 0
) -> CorrectionEffect:
    """Effect of a correction of this form on pairs of prompts left out of its fit.

    Raises BadInputError for pairs of fewer than two prompts, for a form that is fitted.
    """
    names, member = np.unique(np.asarray(scored.groups), return_inverse=True)
    parts = min(folds, len(names))
    if parts < 2:
        raise BadInputError(f"measuring on left-out prompts needs two prompts; these {len(scored)} pairs are of one")
    dealt = (np.random.default_rng(seed).permutation(len(names)) % parts)[member]
    mixings = sorted({*MIXING_PATH, template.mixing}) if template.form != "penalty" else [template.mixing]
    after = {m: (np.empty(len(scored)), np.empty(len(scored))) for m in mixings}
    for fold in range(parts):
        fit_rows, out = np.flatnonzero(dealt != fold), np.flatnonzero(dealt == fold)
        fitted = _again(scored.rows(fit_rows), template, per_domain)
        for mixing, (chosen, rejected) in after.items():
            chosen[out], rejected[out] = corrected(scored.rows(out), replace(fitted, mixing=mixing))
    right = (scored.rewards[0] > scored.rewards[1]).astype(float)
    accuracies = {m: (c > r).astype(float) for m, (c, r) in after.items()}
    now = accuracies[template.mixing]
    after_rewards = after[template.mixing]
    return CorrectionEffect(
        folds=parts,
        before=float(right.mean()),
        after=float(now.mean()),
        change=float((now - right).mean()),
        interval=clustered_mean((now - right).tolist(), scored.groups),
        bias_before=length_bias(scored.rewards, scored.lengths, scored.groups, unit=template.unit),
        bias_after=length_bias(after_rewards, scored.lengths, scored.groups, unit=template.unit),
        by_mixing={m: float(a.mean()) for m, a in accuracies.items()},
    )


def _again(scored: ScoredLengths, template: LengthCorrection, per_domain: bool) -> LengthCorrection:
    """The template's form fitted on these pairs."""
    return fit_correction(
        scored,
        template.form,
        name=template.name,
        unit=template.unit,
        mixing=template.mixing,
        per_domain=per_domain,
        rate=template.rate,
        free=template.free,
        ceiling=template.ceiling,
    )
