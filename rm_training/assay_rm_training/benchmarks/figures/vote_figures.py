"""Agreement of a reward model's ranking of the models that wrote the responses with human votes on the same pairs.

PPE's human-preference metrics over models; formulas from memory, so these are the definitions used here: a model's
strength is its mean win rate over its opponents (a tie counts half), once by people and once by the reward model.
`row_pearson`: Pearson's correlation of a model's two rows of win rates, mean over models. `kendall_tau` (tau-b),
`spearman`: of the two rankings. `separability`: share of model pairs whose 95 % intervals of the reward model's
strength do not overlap. `confidence_agreement`: mean over model pairs of +1 where people and reward model both separate
the pair and agree, -1 where they disagree, 0 else. `brier`: mean over model pairs of (P - y)^2, P the share of
resamples in which the reward model ranks the first above the second, y what people's votes say. `vote_brier`: the same
of single decided votes, P the sigmoid of the difference of rewards.

Votes are resampled for what needs the spread of a strength (`separability`, `confidence_agreement`, `brier`, which have
no interval of their own). The intervals of the correlations resample models: resampling votes would add noise and lower
them.

The bootstrap interval of a rank correlation. Leaves out: the correlations (`assay.statistics.rank_correlation`).
"""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from assay.statistics.intervals import LEAST_CLUSTERS
from assay.statistics.rank_correlation import Vector, kendall_tau_b, pearson, spearman, two_vectors
from assay_rm_training.benchmarks.benchmark import cluster_of
from assay_rm_training.benchmarks.item import BenchmarkItem
from assay_rm_training.benchmarks.strata import Floats, NamedInterval, mean_interval

RESAMPLES = 1000
Given = dict[str, tuple[float, NamedInterval | None]]


def vote_figures(votes: Sequence[tuple[BenchmarkItem, Sequence[float]]], *, seed: int = 0) -> Given:
    """Figures by name, `preference/...`; those over models need at least three of them."""
    if not votes:
        return {}
    out: Given = {}
    decided = [(item, scores) for item, scores in votes if item.gold[0] != item.gold[1]]
    if decided:
        d = np.array([scores[0] - scores[1] for _, scores in decided])
        y = np.array([item.gold[0] for item, _ in decided])
        losses = (0.5 * (1 + np.tanh(d / 2)) - y) ** 2
        clusters = [cluster_of(item) for item, _ in decided]
        out["preference/vote_brier"] = (float(losses.mean()), mean_interval(losses.tolist(), clusters))
    names = sorted({name for item, _ in votes for name in item.models})
    if len(names) < 3:
        return out
    index = {name: n for n, name in enumerate(names)}
    first = np.array([index[item.models[0]] for item, _ in votes])
    second = np.array([index[item.models[1]] for item, _ in votes])
    human = np.array([item.gold[0] for item, _ in votes])
    proxy = np.array([0.5 + 0.5 * np.sign(scores[0] - scores[1]) for _, scores in votes])
    size = len(names)
    rates = [win_rates(first, second, wins, size) for wins in (human, proxy)]
    strengths = [strength(rate) for rate in rates]
    agreement, correlations = _agreement(*rates), {"kendall_tau": kendall_tau_b, "spearman": spearman}
    if len(agreement):
        rows = [str(n) for n in range(len(agreement))]
        out["preference/row_pearson"] = (float(agreement.mean()), mean_interval(agreement.tolist(), rows))
    met = ~np.isnan(strengths[0]) & ~np.isnan(strengths[1])
    if met.sum() >= 3:
        both = [strengths_of_one[met] for strengths_of_one in strengths]
        for name, measure in correlations.items():
            interval = correlation_interval(measure, *both, seed=seed, resamples=RESAMPLES)
            out[f"preference/{name}"] = (measure(*both), interval)
    rng = np.random.default_rng([seed, 2])
    draws: list[list[Floats]] = [[], []]
    for _ in range(RESAMPLES):
        votes_drawn = rng.integers(len(votes), size=len(votes))
        for sample, wins in zip(draws, (human, proxy), strict=True):
            sample.append(strength(win_rates(first[votes_drawn], second[votes_drawn], wins[votes_drawn], size)))
    with np.errstate(all="ignore"):
        bounds = [np.nanquantile(np.stack(sample), [0.025, 0.975], axis=0) for sample in draws]
    intervals = [[(float(low), float(high)) for low, high in bound.T] for bound in bounds]
    out["preference/separability"] = (separability(intervals[1]), None)
    out["preference/confidence_agreement"] = (confidence_agreement(intervals[0], intervals[1]), None)
    out["preference/brier"] = (_pair_brier(strengths[0], np.stack(draws[1])), None)
    return out


def win_rates(first: npt.NDArray[np.int64], second: npt.NDArray[np.int64], wins: Floats, size: int) -> Floats:
    """[models, models] share of votes that the row's model wins; NaN without votes, and on the diagonal."""
    flat = first * size + second
    games = np.bincount(flat, minlength=size * size).reshape(size, size).astype(float)
    won = np.bincount(flat, weights=wins, minlength=size * size).reshape(size, size)
    games, won = games + games.T, won + (games - won).T
    np.fill_diagonal(games, 0.0)
    with np.errstate(invalid="ignore"):
        rates: Floats = np.where(games > 0, won / np.where(games > 0, games, 1.0), np.nan)
    return rates


def strength(rates: Floats) -> Floats:
    """Mean win rate over a model's opponents; NaN without any."""
    present = ~np.isnan(rates)
    with np.errstate(invalid="ignore"):
        out: Floats = np.where(present, rates, 0.0).sum(axis=1) / present.sum(axis=1)
    return out


def separability(intervals: Sequence[tuple[float, float]]) -> float:
    """Share of pairs of intervals that do not overlap."""
    apart = [_order(a, b) != 0 for n, a in enumerate(intervals) for b in intervals[n + 1 :]]
    return sum(apart) / len(apart)


def confidence_agreement(human: Sequence[tuple[float, float]], proxy: Sequence[tuple[float, float]]) -> float:
    """Mean over pairs: +1 both apart and in the same order, -1 both apart and in the opposite one, else 0."""
    agreements = [
        _order(human[i], human[j]) * _order(proxy[i], proxy[j])
        for i in range(len(human))
        for j in range(i + 1, len(human))
    ]
    return sum(agreements) / len(agreements)


def _order(a: tuple[float, float], b: tuple[float, float]) -> int:
    """1 if `a` lies wholly above `b`, -1 if wholly below, 0 if they overlap or touch."""
    return 1 if a[0] > b[1] else -1 if a[1] < b[0] else 0


def _agreement(human: Floats, proxy: Floats) -> Floats:
    """Pearson's correlation of each model's two rows of win rates, over at least two common opponents."""
    rows = []
    for row, other in zip(human, proxy, strict=True):
        both_present = ~np.isnan(row) & ~np.isnan(other)
        if both_present.sum() >= 2:
            rows.append(pearson(row[both_present], other[both_present]))
    return np.array(rows)


def _pair_brier(human: Floats, draws: Floats) -> float:
    """`draws` [resamples, models]; pairs with equal human votes have y = 1/2."""
    losses = []
    for i in range(len(human)):
        for j in range(i + 1, len(human)):
            gaps = draws[:, i] - draws[:, j]
            gaps = gaps[~np.isnan(gaps)]
            if len(gaps) and not np.isnan(human[i] - human[j]):
                above = float(((gaps > 0) + 0.5 * (gaps == 0)).mean())
                losses.append((above - (0.5 + 0.5 * np.sign(human[i] - human[j]))) ** 2)
    return float(np.mean(losses)) if losses else float("nan")


def correlation_interval(
    measure: Callable[[Vector, Vector], float], x: Vector, y: Vector, *, seed: int = 0, resamples: int = 2000
) -> NamedInterval | None:
    """95 % percentile interval, resampling the points; None, which is "undetermined", under LEAST_CLUSTERS points."""
    a, b = two_vectors(x, y)
    if len(a) < LEAST_CLUSTERS:
        return None
    drawn = np.random.default_rng(seed).integers(len(a), size=(resamples, len(a)))
    values = np.array([measure(a[rows], b[rows]) for rows in drawn])
    finite = values[~np.isnan(values)]
    if len(finite) < resamples / 2:
        return None
    low, high = np.quantile(finite, [0.025, 0.975])
    return NamedInterval(float(low), float(high), "bootstrap")
