"""The unbiased estimate of pass@k: whether one of k samples is right, from n of which c are.

Leaves out: which sample is right, averaging over prompts (`assay measure`).
"""

from math import comb

from assay.errors import BadInputError


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """1 - C(n - c, k) / C(n, k) (Chen et al. 2021, arXiv 2107.03374). Raises BadInputError unless c <= n and
    1 <= k <= n: with fewer samples than k there is no unbiased estimate."""
    if not (0 <= correct <= samples and 1 <= k <= samples):
        raise BadInputError(f"no pass@{k} from {samples} samples of which {correct} are right")
    return 1.0 - comb(samples - correct, k) / comb(samples, k)
