"""Inter-annotator agreement: percent, Cohen's and Fleiss' kappa, Krippendorff's alpha, each with a bootstrap interval.

Covers: nominal, ordinal and interval labels of any number of annotators with any of them missing. Leaves out: where
labels come from.

Sources. Cohen 1960, A coefficient of agreement for nominal scales. Fleiss 1971, Measuring nominal scale agreement
among many raters; with unequal numbers of raters per item its P_i and p_j are taken over the labels there are.
Krippendorff 2011, Computing Krippendorff's alpha-reliability: alpha = 1 - D_observed / D_expected over the coincidence
matrix.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from assay.errors import BadInputError
from assay.statistics.intervals import LEAST_CLUSTERS, RESAMPLES, Interval

Labels: TypeAlias = Sequence[Mapping[str, str]]  #: one mapping of annotator -> label for each item
Metric: TypeAlias = Literal["nominal", "ordinal", "interval"]
Array: TypeAlias = npt.NDArray[np.float64]

LEAST_SHARED = 10  #: items that two annotators must share for their Cohen's kappa to count in a report
_CELLS = 4_000_000  # numbers held at once by the bootstrap


@dataclass(frozen=True)
class CoefficientEstimate:
    """`value` is None where the data cannot tell: nothing to compare, or everybody always said the same."""

    value: float | None
    interval: Interval | None = None


@dataclass(frozen=True)
class AgreementCoefficients:
    """`items` have two labels or more; others tell nothing. `cohen`: the mean over pairs of annotators
    that share LEAST_SHARED items or more, weighted by the items they share."""

    items: int
    labels: int
    annotators: int
    percent: CoefficientEstimate
    cohen: CoefficientEstimate
    fleiss: CoefficientEstimate
    alpha: CoefficientEstimate

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def percent_agreement(labels: Labels) -> float | None:
    """Share of pairs of labels that are equal, averaged over items."""
    counts, _ = _counts(labels)
    return _value(_percent(_statistics(counts).sum(axis=0)))


def cohen_kappa(table: Sequence[Sequence[int]]) -> float | None:
    """Of two annotators: how many items got each pair of labels, one's in rows and the other's in columns [K, K].
    None where both always say one thing, or there is no item."""
    return _value(_cohen(np.array([table], dtype=np.float64))[0])


def krippendorff_alpha(labels: Labels, metric: Metric = "nominal", *, order: Sequence[str] = ()) -> float | None:
    """`order`: the values of an ordinal or interval scale, lowest first; for an interval scale they are numbers.

    Raises BadInputError for a label that is not in `order`.
    """
    counts, values = _counts(labels, order)
    distances = _distances(metric, values)
    return _value(_alpha(_statistics(counts).sum(axis=0), counts.shape[1], distances))


def alpha_estimate(
    labels: Labels, metric: Metric, *, order: Sequence[str], seed: int = 0, resamples: int = RESAMPLES
) -> CoefficientEstimate:
    """`krippendorff_alpha` with its 95 % interval."""
    counts, values = _counts(labels, order)
    statistics, k, distances = _statistics(counts), counts.shape[1], _distances(metric, values)
    total, sample = statistics.sum(axis=0), _resampled(statistics, seed, resamples)
    return _estimate(_alpha(total, k, distances), _alpha(sample, k, distances))


def agreement(labels: Labels, *, seed: int = 0, resamples: int = RESAMPLES) -> AgreementCoefficients:
    """Everything at once, with 95 % percentile intervals over resampled items."""
    counts, values = _counts(labels)
    statistics = _statistics(counts)
    k = counts.shape[1]
    nominal = _distances("nominal", values)
    total = statistics.sum(axis=0)
    sample = _resampled(statistics, seed, resamples)
    return AgreementCoefficients(
        items=len(counts),
        labels=int(counts.sum()),
        annotators=len({name for item in labels for name in item}),
        percent=_estimate(_percent(total), _percent(sample)),
        cohen=_cohen_estimate(labels, seed, resamples),
        fleiss=_estimate(_fleiss(total, k), _fleiss(sample, k)),
        alpha=_estimate(_alpha(total, k, nominal), _alpha(sample, k, nominal)),
    )


def _counts(labels: Labels, order: Sequence[str] = ()) -> tuple[Array, list[str]]:
    """Labels of each value [items with two or more, values], and the values."""
    values = list(order) or sorted({label for item in labels for label in item.values()})
    index = {value: n for n, value in enumerate(values)}
    usable = [item for item in labels if len(item) >= 2]
    counts = np.zeros((len(usable), max(1, len(values))))
    for row, item in enumerate(usable):
        for label in item.values():
            if label not in index:
                raise BadInputError(f"label {label!r} is not on the scale {', '.join(values)}")
            counts[row, index[label]] += 1
    return counts, values


def _statistics(counts: Array) -> Array:
    """What all coefficients are made of, one row per item, to be summed over items: 1, number of labels, P_i, counts
    [K], coincidences [K * K]. Coincidences: Krippendorff's n_c (n_k - [c = k]) / (m - 1)."""
    m = counts.sum(axis=1, keepdims=True)
    agreeing = (counts * (counts - 1)).sum(axis=1, keepdims=True) / np.maximum(m * (m - 1), 1)
    k = counts.shape[1]
    pairs = counts[:, :, None] * counts[:, None, :]
    pairs[:, np.arange(k), np.arange(k)] -= counts
    coincidences = pairs.reshape(len(counts), k * k) / np.maximum(m - 1, 1)
    return np.hstack([np.ones_like(m), m, agreeing, counts, coincidences])


def _percent(sums: Array) -> Array:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(sums[..., 2] / sums[..., 0])


def _fleiss(sums: Array, k: int) -> Array:
    with np.errstate(invalid="ignore", divide="ignore"):
        observed = sums[..., 2] / sums[..., 0]
        shares = sums[..., 3 : 3 + k] / sums[..., 1:2]
        expected = (shares**2).sum(axis=-1)
        return np.where(expected < 1 - 1e-12, (observed - expected) / (1 - expected), np.nan)


def _cohen(tables: Array) -> Array:
    """Of tables of two annotators' labels [P, K, K]; NaN where it is undefined."""
    shared = tables.sum(axis=(1, 2))
    n = np.maximum(shared, 1)
    observed = np.trace(tables, axis1=1, axis2=2) / n
    expected = (tables.sum(axis=1) * tables.sum(axis=2)).sum(axis=1) / n**2
    sound = (shared > 0) & (expected < 1 - 1e-12)
    return np.where(sound, (observed - expected) / np.where(sound, 1 - expected, 1.0), np.nan)


def _alpha(sums: Array, k: int, distances: Callable[[Array], Array]) -> Array:
    coincidences = sums[..., 3 + k :].reshape(*sums.shape[:-1], k, k)
    margins = coincidences.sum(axis=-1)
    n = margins.sum(axis=-1)
    delta = distances(margins)
    observed = (coincidences * delta).sum(axis=(-2, -1))
    expected = (margins[..., :, None] * margins[..., None, :] * delta).sum(axis=(-2, -1))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(expected > 0, 1 - (n - 1) * observed / expected, np.nan)


def _distances(metric: Metric, values: Sequence[str]) -> Callable[[Array], Array]:
    """Squared distances [..., K, K] from the margins [..., K]: only the ordinal ones depend on them."""
    k = max(1, len(values))
    if metric == "nominal":
        fixed = 1 - np.eye(k)
        return lambda _: fixed
    if metric == "interval":
        numbers = np.array([float(value) for value in values])
        squared = (numbers[:, None] - numbers[None, :]) ** 2
        return lambda _: squared

    def ordinal(margins: Array) -> Array:
        # (sum of the margins from c to k, less half of the two ends)^2
        upto = np.cumsum(margins, axis=-1) - margins / 2
        return np.asarray((upto[..., :, None] - upto[..., None, :]) ** 2)

    return ordinal


def _resampled(statistics: Array, seed: int, resamples: int) -> Array:
    """Sums of the statistics over resampled items [resamples, S]; NaN, which is "undetermined", for too few items."""
    items = len(statistics)
    rng = np.random.default_rng(seed)
    out = np.full((resamples, statistics.shape[1]), np.nan)
    if items < LEAST_CLUSTERS:
        return out
    step = max(1, _CELLS // items)
    for start in range(0, resamples, step):
        size = min(step, resamples - start)
        weights = rng.multinomial(items, np.full(items, 1 / items), size=size)
        out[start : start + size] = weights @ statistics
    return out


def _estimate(value: Array, sample: Array) -> CoefficientEstimate:
    number = _value(value)
    sound = sample[np.isfinite(sample)]
    if number is None or len(sound) < len(sample) / 2:
        return CoefficientEstimate(number)
    low, high = np.quantile(sound, [0.025, 0.975])
    return CoefficientEstimate(number, Interval(float(low), float(high)))


def _value(value: Array) -> float | None:
    return float(value) if np.isfinite(value) else None


@dataclass(frozen=True)
class _Pairs:
    """Every pair of labels of one item, from pairs of annotators that share `least` items or more. All of length N."""

    pair: npt.NDArray[np.int64]  #: number of the pair of annotators
    item: npt.NDArray[np.int64]
    cell: npt.NDArray[np.int64]  #: the two labels as one number, below k * k
    pairs: int
    k: int

    @classmethod
    def of(cls, labels: Labels, least: int) -> "_Pairs":
        values = sorted({label for item in labels for label in item.values()})
        index, k = {value: n for n, value in enumerate(values)}, max(1, len(values))
        cells: dict[tuple[str, str], list[tuple[int, int]]] = {}
        for number, item in enumerate(labels):
            for one, two in combinations(sorted(item), 2):
                cells.setdefault((one, two), []).append((number, index[item[one]] * k + index[item[two]]))
        pairs = [on_items for on_items in cells.values() if len(on_items) >= least]
        rows = [(n, item, cell) for n, on_items in enumerate(pairs) for item, cell in on_items]
        pair, item_, cell_ = np.array(rows, dtype=np.int64).reshape(-1, 3).T
        return cls(pair, item_, cell_, len(pairs), k)

    def kappa(self, weights: Array | None = None) -> float:
        """The mean over pairs of annotators, weighted by the items they share; `weights` [items]: how often each item
        counts. Pairs whose kappa is undefined, since both always say one thing, are left out; NaN if that is all."""
        size = self.pairs * self.k * self.k
        item_weights = None if weights is None else weights[self.item]
        counted = np.bincount(self.pair * self.k * self.k + self.cell, weights=item_weights, minlength=size)
        table = counted.reshape(self.pairs, self.k, self.k).astype(np.float64)
        kappas, shared = _cohen(table), table.sum(axis=(1, 2))
        sound = np.isfinite(kappas)
        if not sound.any():
            return float("nan")
        return float((kappas[sound] * shared[sound]).sum() / shared[sound].sum())


def _cohen_estimate(labels: Labels, seed: int, resamples: int) -> CoefficientEstimate:
    pairs = _Pairs.of(labels, LEAST_SHARED)
    rng = np.random.default_rng(seed)
    items = np.unique(pairs.item)
    sample = np.full(resamples, np.nan)
    for n in range(resamples if len(items) >= LEAST_CLUSTERS else 0):
        weights = np.zeros(len(labels))
        weights[items] = rng.multinomial(len(items), np.full(len(items), 1 / len(items)))
        sample[n] = pairs.kappa(weights)
    return _estimate(np.array(pairs.kappa()), sample)
