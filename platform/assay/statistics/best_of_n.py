"""Expected gold score of the best of n samples by a proxy score, and how far best-of-n is from one sample.

Covers: the unbiased estimator over all subsets of size n of N samples (Gao et al., arXiv 2210.10760; as in the code of
Coste et al.), the KL of best-of-n: its bound, and its value where scores tie. Leaves out: curves over prompts, fitted
over-optimisation curves.
"""

import math

import numpy as np
import numpy.typing as npt

from assay.errors import BadInputError
from assay.statistics.intervals import Values


def expected_best(proxy: Values, gold: Values) -> npt.NDArray[np.float64]:
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
    out: npt.NDArray[np.float64] = _weights(len(scores)) @ ranked
    return out


def kl_best_of(n: int) -> float:
    """KL of best-of-n from one sample, ln n - (n - 1)/n nats: exact without ties, an upper bound in general."""
    if n < 1:
        raise BadInputError("best of n needs n >= 1")
    return math.log(n) - (n - 1) / n


def kl_with_ties(scores: Values, n: int) -> float:
    """Estimate, in nats, of the KL of best-of-n from one sample, from the scores of N samples; at most `kl_best_of`.

    With ties chosen from at random a response's probability ratio depends on its score alone: the KL is that of the
    highest of n scores from one score, here of the empirical distribution F: sum (F^n - F_below^n) ln of their ratio to
    the score's share. Too low where N is small: without ties it tends to `kl_best_of` from below.
    """
    if n < 1 or not len(scores):
        raise BadInputError("best of n needs n >= 1, and samples")
    _, counts = np.unique(np.asarray(scores, dtype=float), return_counts=True)
    shares = counts / counts.sum()
    chosen = np.diff(np.cumsum(shares) ** n, prepend=0.0)
    used = chosen > 0
    return float((chosen[used] * np.log(chosen[used] / shares[used])).sum())


def _weights(total: int) -> npt.NDArray[np.float64]:
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
