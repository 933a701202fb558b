"""Ensembles of linear heads on frozen features, and the Laplace posterior of one: cheap uncertainty of a reward.

Covers: fitting k heads by three methods, each head the exact optimum of its loss (`probe.fit_head`), and the posterior
at the optimum of all pairs; refitting from earlier heads. Leaves out: features (`hidden_states`), serving
(`assay_serving.engines.head_ensemble`), whether the uncertainty is worth anything
(`assay_rm_training.calibration.uncertainty`).

- bootstrap: each member weighs every prompt by its own draw of Exp(1) (Rubin 1981, "The Bayesian bootstrap"): mean and
  variance of a prompt's weight are those of resampling with replacement, and no prompt is lost where there are few.
- laplace: members are draws of the posterior N(w*, A^-1), A = n (sum_i v_i p_i (1 - p_i) d_i d_i^T + l2 I) with v
  summing to 1. n = (sum of weights)^2 / sum of their squares (Kish 1965), so that the unit of weights does not matter;
  pairs count as independent, also those of one prompt.
- prior: bootstrap, and every member is pulled towards its own draw of the prior N(0, I / (n l2)) instead of 0
  (randomised prior functions, Osband et al., arXiv 1806.03335): members differ also where no pair says anything.

Normal draws are centred over the members, and widened to keep their variance, so that the members' mean is w* itself
(laplace) or has none of the prior's noise. The errors of the backbone are all members' errors and show in none of
these. Draws depend on the seed, the member and the order in which prompts first appear alone: a refit on more pairs of
the same order keeps a member's earlier draws.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.linalg import cholesky, solve_triangular

from assay import ids
from assay.domain import PreferencePair
from assay.errors import BadInputError
from assay.runs.progress_bar import Advance, silent
from assay_rm_training.calibration.measures import sigmoid
from assay_rm_training.calibration.uncertainty import UncertaintyReport, measure_uncertainty
from assay_rm_training.methods.heads_config import HeadsConfig
from assay_rm_training.methods.hidden_states import FeatureCache
from assay_rm_training.methods.probe import L2_PATH, cross_validated, fit_head, sides, wrong_labels
from assay_serving.engines.heads import Heads, Posterior

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]
FOLDS = 4


@dataclass(frozen=True)
class FittedHeads(Heads):
    """`method`: a `HeadsMethod`, or how else the heads were found. `l2`: the penalty used. `effective`: n of the
    posterior, pairs of equal weight that would say as much. `left_out`: pairs with a side that has no features."""

    method: str
    l2: float
    pairs: int
    effective: float
    left_out: int = 0


def fit_heads(
    chosen: npt.ArrayLike,
    rejected: npt.ArrayLike,
    weights: npt.ArrayLike,
    config: HeadsConfig,
    groups: Sequence[int] | Ints,
    *,
    wrong: npt.ArrayLike = 0.0,
    start: Heads | None = None,
) -> FittedHeads:
    """Of pairs of hidden states [N, H] with `weights` [N] >= 0, where pairs with the same number in `groups` [N] share
    a prompt. `wrong`: P(the label is wrong), one for all or [N]: 1 less the preference of a soft label.

    `start`: heads to begin from (k and H the same), which saves steps and changes no optimum. Raises BadInputError for
    shapes that do not fit, numbers that are not finite, weights that are all 0, and a bootstrap of a single prompt.
    """
    better, worse = np.asarray(chosen, dtype=np.float64), np.asarray(rejected, dtype=np.float64)
    v, groups = np.asarray(weights, dtype=np.float64), np.asarray(groups)
    _check(better, worse, v, groups)
    smoothing = np.broadcast_to(np.asarray(wrong, dtype=np.float64), v.shape)
    if not bool(((smoothing >= 0) & (smoothing <= 1)).all()):
        raise BadInputError("a share of wrong labels lies between 0 and 1", field="wrong")
    by_prompt = _numbered(groups)
    prompts = int(by_prompt.max()) + 1
    if prompts < 2 and config.method != "laplace":
        raise BadInputError("a bootstrap weighs prompts, and all pairs are of one", field="groups")
    deviation = np.concatenate([better, worse]).std(axis=0)
    # A feature that hardly varies here would have a belief without bounds in its own units.
    scale = np.maximum(deviation, 0.01 * np.median(deviation)) + 1e-6
    d = (better - worse) / scale
    l2 = config.l2 if config.l2 is not None else _penalty(d, v, smoothing, by_prompt)
    begin = None if start is None or start.mean.shape != scale.shape else start.mean * scale
    best = fit_head(d, v, l2=l2, label_smoothing=smoothing, start=begin)
    effective = float(v.sum() ** 2 / np.square(v).sum())
    factor = _factor(d, v / v.sum(), best, l2, effective)
    drawn = np.stack(
        [np.random.default_rng([config.seed, j]).standard_normal(len(best)) for j in range(config.members)]
    )
    drawn = (drawn - drawn.mean(axis=0)) * math.sqrt(config.members / (config.members - 1))
    if config.method == "laplace":
        heads = best + drawn @ factor.T
    else:
        towards = drawn / math.sqrt(effective * l2) if config.method == "prior" else np.zeros_like(drawn)
        heads = np.empty_like(drawn)
        for j in range(config.members):
            share = np.random.default_rng([config.seed, j, 1]).exponential(size=prompts)[by_prompt]
            heads[j] = fit_head(
                d,
                v * share,
                l2=l2,
                label_smoothing=smoothing,
                start=_start(start, j, scale, drawn.shape, best),
                towards=towards[j],
            )
    centre = np.concatenate([better, worse]).mean(axis=0)
    posterior = Posterior(best / scale, factor / scale[:, None])
    return FittedHeads(heads / scale, centre, posterior, config.method, l2, len(v), effective)


def train_heads(
    cache: FeatureCache,
    pairs: Sequence[PreferencePair],
    config: HeadsConfig,
    *,
    label_smoothing: float = 0.0,
    start: Heads | None = None,
    advance: Advance = silent,
) -> FittedHeads:
    """`fit_heads` on the pairs that have features on both sides, with their own weights and soft labels, where
    `label_smoothing` is the share of labels believed to be flipped. Raises as it does."""
    chosen, rejected, used = sides(cache, pairs, advance)
    some = [pairs[i] for i in used]
    prompts = [int(ids.prompt_id(pair.prompt)[-15:], 16) for pair in some]
    weights, wrong = [pair.weight for pair in some], wrong_labels(some, label_smoothing)
    heads = fit_heads(chosen, rejected, weights, config, np.array(prompts, dtype=np.int64), wrong=wrong, start=start)
    return replace(heads, left_out=len(pairs) - len(used))


def scaled_heads(
    cache: FeatureCache, heads: FittedHeads, pairs: Sequence[PreferencePair], advance: Advance = silent
) -> tuple[FittedHeads, UncertaintyReport | None]:
    """The heads with the spread by which they predict these held-out pairs best, and what the uncertainty of their mean
    margin is worth on them; as they are, and None, where too few pairs have features."""
    chosen, rejected, used = sides(cache, pairs, advance)
    margins = heads.rewards(chosen) - heads.rewards(rejected)
    report = measure_uncertainty(
        margins.mean(axis=1), margins.std(axis=1), [ids.prompt_id(pairs[i].prompt) for i in used]
    )
    return (heads if report is None else heads.spread_by(report.factor)), report


def _start(start: Heads | None, j: int, scale: Floats, shape: tuple[int, ...], best: Floats) -> Floats:
    return start.heads[j] * scale if start is not None and start.heads.shape == shape else best


def _factor(d: Floats, v: Floats, best: Floats, l2: float, effective: float) -> Floats:
    """L [H, H] with L L^T = A^-1. A = C C^T gives L = C^-T."""
    p = sigmoid(d @ best)
    curved = d * np.sqrt(v * p * (1 - p))[:, None]
    a = effective * (curved.T @ curved + l2 * np.eye(d.shape[1]))
    lower = cholesky(a, lower=True)
    return np.asarray(solve_triangular(lower, np.eye(len(a)), lower=True).T)


def _penalty(d: Floats, v: Floats, smoothing: Floats, by_prompt: Ints) -> float:
    """The one of the best likelihood on prompts left out; the strongest where all pairs are of one prompt."""
    tried = cross_validated(d, v, smoothing, by_prompt % FOLDS, L2_PATH)
    return min(tried, key=lambda l2: (tried[l2][1], -l2)) if tried else max(L2_PATH)


def _numbered(groups: Ints) -> Ints:
    """Prompts numbered in the order in which they first appear."""
    _, first, inverse = np.unique(groups, return_index=True, return_inverse=True)
    return np.asarray(np.argsort(np.argsort(first))[inverse], dtype=np.int64)


def _check(better: Floats, worse: Floats, v: Floats, groups: Ints) -> None:
    if better.ndim != 2 or better.shape != worse.shape or v.shape != (len(better),) or groups.shape != v.shape:
        shapes = ", ".join(str(x.shape) for x in (better, worse, v, groups))
        raise BadInputError(f"chosen and rejected are [N, H], weights and groups [N], not {shapes}", field="chosen")
    for name, values in (("chosen", better), ("rejected", worse), ("weights", v)):
        bad = np.flatnonzero(~np.isfinite(values.reshape(len(values), -1)).all(axis=1))
        if len(bad):
            raise BadInputError(f"row {bad[0]} is not finite ({len(bad)} of {len(values)} rows)", field=name)
    if len(v) and v.min() < 0:
        raise BadInputError("a weight is below 0", field="weights")
    if not v.sum() > 0:
        raise BadInputError(
            "no pair to fit on: " + ("every weight is 0" if len(v) else "none is given"), field="weights"
        )
