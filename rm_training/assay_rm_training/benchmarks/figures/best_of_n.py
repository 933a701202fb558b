"""Expected gold score of the best of n samples by a proxy score, estimated without bias from a list of N samples.

Covers: the estimator over all subsets of size n (Gao et al., arXiv 2210.10760; as in the code of Coste et al.), the KL
of best-of-n. Leaves out: fitted over-optimisation curves.
"""

import math
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np

from assay.errors import BadInputError
from assay_rm_training.benchmarks.benchmark import CurvePoint, cluster_of
from assay_rm_training.benchmarks.item import BenchmarkItem, Outcome
from assay_rm_training.benchmarks.strata import Floats, Stratum, mean_interval, means

#: Prompt, proxy and gold score of each sample.
ScoredList: TypeAlias = tuple[str, Sequence[float], Sequence[float]]


def expected_best(proxy: Sequence[float] | Floats, gold: Sequence[float] | Floats) -> Floats:
    """Expected gold of the sample with the highest proxy score among n of the N, for n = 1..N; shape [N].

    E[gold@n] = sum_{i >= n} C(i-1, n-1) / C(N, n) g_(i), i the rank by proxy, ascending. Samples with equal proxy
    scores share their mean gold: the expectation over a random choice among them.
    """
    scores, values = np.asarray(proxy, dtype=float), np.asarray(gold, dtype=float)
    if not len(scores) or scores.shape != values.shape:
        raise BadInputError("best of n needs samples, each with a proxy and a gold score")
    _, level = np.unique(scores, return_inverse=True)
    shared = np.bincount(level, weights=values) / np.bincount(level)
    ranked = shared[np.sort(level)]
    out: Floats = _weights(len(scores)) @ ranked
    return out


def kl_best_of(n: int) -> float:
    """KL of best-of-n from one sample, ln n - (n - 1)/n nats: exact without ties, an upper bound in general."""
    if n < 1:
        raise BadInputError("best of n needs n >= 1")
    return math.log(n) - (n - 1) / n


def scored_lists(members: Iterable[tuple[BenchmarkItem, Outcome]]) -> list[ScoredList]:
    return [(cluster_of(i), o.scores, i.gold) for i, o in members if o.scores is not None]


def curve(lists: Sequence[ScoredList], *, seed: int = 0) -> list[CurvePoint]:
    """Mean over lists of `expected_best`, for n up to the longest; (prompt, proxy, gold) of each list.

    A point at n is the mean over lists with at least n samples.
    """
    if not lists:
        return []
    expected = [(cluster, expected_best(proxy, gold)) for cluster, proxy, gold in lists]
    longest = max(len(values) for _, values in expected)
    columns = [str(n) for n in range(1, longest + 1)]
    rows = [
        (cluster, np.pad(values, (0, longest - len(values)), constant_values=np.nan)) for cluster, values in expected
    ]
    stratum = Stratum.of("best_of_n", columns, rows)  # type: ignore[arg-type]
    assert stratum is not None
    plain = means([stratum])
    present = ~np.isnan(stratum.values)
    clusters = np.asarray(stratum.clusters)
    return [
        CurvePoint(
            n,
            float(plain[key][0]),
            kl_best_of(n),
            int(present[:, n - 1].sum()),
            mean_interval(stratum.values[present[:, n - 1], n - 1].tolist(), clusters[present[:, n - 1]].tolist()),
        )
        for n, key in enumerate(stratum.keys(), start=1)
    ]


def _weights(total: int) -> Floats:
    """[N, N]: in row n - 1, the weight of each ascending rank in E[gold@n]."""
    ranks = np.arange(1, total + 1)
    log_factorial = np.array([math.lgamma(k + 1) for k in range(total + 1)])
    out = np.zeros((total, total))
    for n in range(1, total + 1):
        i = ranks[n - 1 :]
        log_weight = (
            log_factorial[i - 1]
            - log_factorial[n - 1]
            - log_factorial[i - n]
            - (log_factorial[total] - log_factorial[n] - log_factorial[total - n])
        )
        out[n - 1, n - 1 :] = np.exp(log_weight)
    return out
