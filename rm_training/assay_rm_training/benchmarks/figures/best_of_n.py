"""Expected gold score of the best of n samples by a proxy score, estimated without bias from a list of N samples.

Covers: the curve over prompts with its intervals. Leaves out: the estimator (`assay.statistics.best_of_n`), fitted
over-optimisation curves.
"""

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np

from assay.statistics.best_of_n import expected_best, kl_best_of
from assay_rm_training.benchmarks.benchmark import CurvePoint, cluster_of
from assay_rm_training.benchmarks.item import BenchmarkItem, Outcome
from assay_rm_training.benchmarks.strata import Stratum, mean_interval, means

#: Prompt, proxy and gold score of each sample.
ScoredList: TypeAlias = tuple[str, Sequence[float], Sequence[float]]


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
