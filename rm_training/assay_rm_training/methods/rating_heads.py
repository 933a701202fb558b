"""An ensemble of heads on a frozen backbone, each with an output for every named rating, by ridge regression.

Covers: the fit, to the exact optimum, on ratings standardised over the rows; the penalty by cross-validation over
prompts; members by the Bayesian bootstrap over prompts (Rubin 1981), so that every rating has an uncertainty. Leaves
out: hidden states (`hidden_states`), saving (`runs.heads`), regression that trains the backbone (`multi_objective`).
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from assay import ids
from assay.errors import BadInputError
from assay.models.readings import Aggregation, RatingHeads
from assay.runs.progress_bar import Advance, silent
from assay.score import ScoreFailure
from assay_rm_training.data.response_labels import RatedResponse
from assay_rm_training.methods.head_ensemble import FittedHeads
from assay_rm_training.methods.heads_config import HeadsConfig
from assay_rm_training.methods.hidden_states import FeatureCache
from assay_rm_training.methods.multi_objective import scale_of
from assay_rm_training.methods.probe import L2_PATH
from assay_serving.engines.heads import Floats, Posterior
from assay_serving.scorer import ScoreItem

FOLDS = 4


def ridge(x: Floats, y: Floats, weights: Floats, penalties: Sequence[float], *, centred: bool = False) -> list[Floats]:
    """For each penalty the w [H, K] that minimises, for every column of y [n, K] over its rows that are not nan,
    sum_i v_i (w . x_i - y_i)^2 / sum_i v_i + l2 |w|^2, for x [n, H] and v = `weights` [n]. `centred`: of x and y less
    their means over these rows, which is the fit with an intercept (`intercepts`)."""
    solved: list[Floats] = [np.zeros((x.shape[1], y.shape[1])) for _ in penalties]
    present = ~np.isnan(y)
    for pattern in np.unique(present, axis=1).T:  # columns that are rated in the same rows share a decomposition
        columns = np.flatnonzero((present == pattern[:, None]).all(axis=0))
        v = weights * pattern
        rated, weighted = np.nan_to_num(y[:, columns]), x * (v / v.sum())[:, None]
        mean = weighted.sum(axis=0) * centred
        values, vectors = np.linalg.eigh(weighted.T @ x - np.outer(mean, mean))
        right = vectors.T @ (weighted.T @ rated - np.outer(mean, v @ rated / v.sum()))
        for w, l2 in zip(solved, penalties, strict=True):
            w[:, columns] = vectors @ (right / (np.maximum(values, 0.0) + l2)[:, None])
    return solved


def intercepts(x: Floats, y: Floats, weights: Floats, w: Floats) -> Floats:
    """[K]: what each column of y is at x = 0 by the `centred` fit w [H, K]."""
    shares = weights[:, None] * ~np.isnan(y)
    shares /= shares.sum(axis=0)
    fitted: Floats = (shares * np.nan_to_num(y)).sum(axis=0) - np.einsum("nk,nh,hk->k", shares, x, w, optimize=True)
    return fitted


def fit_rating_heads(
    features: npt.ArrayLike,
    ratings: npt.ArrayLike,
    weights: npt.ArrayLike,
    groups: npt.ArrayLike,
    config: HeadsConfig,
    names: Sequence[str],
    penalties: Sequence[float] = L2_PATH,
) -> tuple[FittedHeads, RatingHeads]:
    """Of hidden states [N, H], ratings [N, K] (nan: not rated), weights [N] and prompts' numbers [N]. The heads are
    [members * K, H], a member's K together, and give ratings less their offsets, which all members share.

    Raises BadInputError for a rating that no row has, and for a single prompt.
    """
    x, y, v = (np.asarray(each, dtype=np.float64) for each in (features, ratings, weights))
    by_prompt = np.unique(np.asarray(groups), return_inverse=True)[1]
    if (prompts := int(by_prompt.max()) + 1) < 2:
        raise BadInputError("a bootstrap weighs prompts, and all rows are of one", field="groups")
    scale = scale_of(y, names)
    means, deviations = np.array(scale.means), np.array(scale.deviations)
    centre, spread = x.mean(axis=0), x.std(axis=0)
    units = np.maximum(spread, 0.01 * np.median(spread)) + 1e-6
    x, y = (x - centre) / units, (y - means) / deviations
    best = config.l2
    if best is None:
        folds, errors = by_prompt % FOLDS, np.zeros(len(penalties))
        for fold in np.unique(folds):
            out = folds == fold
            if out.all() or (~np.isnan(y[~out])).sum(axis=0).min() == 0:
                continue
            rest = (x[~out], y[~out], v[~out])
            for order, w in enumerate(ridge(*rest, penalties, centred=True)):
                errors[order] += np.nansum(v[out, None] * np.square(x[out] @ w + intercepts(*rest, w) - y[out]))
        best = penalties[int(errors.argmin())]  # the largest of equal ones
    # A rating that only some rows have is at its mean where these rows' states are, not where those of all are.
    offsets = intercepts(x, y, v, ridge(x, y, v, [best], centred=True)[0])
    y = y - offsets
    drawn = (
        v * np.random.default_rng([config.seed, member]).exponential(size=prompts)[by_prompt]
        for member in range(config.members)
    )
    heads = np.concatenate([(ridge(x, y, each, [best])[0] * deviations).T / units for each in drawn])
    none = Posterior(heads.mean(axis=0), np.zeros((x.shape[1], 1)))  # of ratings no belief is kept beside the members
    fitted = FittedHeads(heads, centre, none, "bootstrap", best, len(x), float(len(x)))
    return fitted, RatingHeads(tuple(names), tuple((means + deviations * offsets).tolist()), Aggregation())


def train_rating_heads(
    cache: FeatureCache,
    rows: Sequence[RatedResponse],
    names: Sequence[str],
    config: HeadsConfig,
    penalties: Sequence[float],
    advance: Advance = silent,
) -> tuple[FittedHeads, RatingHeads]:
    """`fit_rating_heads` on the rows that have features. Raises as it does, and BadInputError where none has."""
    features = cache.of([ScoreItem(row.prompt, row.response) for row in rows], advance)
    with_features = [(row, f.vector) for row, f in zip(rows, features, strict=True) if not isinstance(f, ScoreFailure)]
    if not with_features:
        raise BadInputError("no rated response to train on: none is within the model's length")
    ratings = [[row.ratings.get(name, float("nan")) for name in names] for row, _ in with_features]
    prompts = [int(ids.prompt_id(row.prompt)[-15:], 16) for row, _ in with_features]
    vectors, weights = np.stack([vector for _, vector in with_features]), [row.weight for row, _ in with_features]
    heads, described = fit_rating_heads(vectors, ratings, weights, prompts, config, names, penalties)
    return replace(heads, left_out=len(rows) - len(with_features)), described
