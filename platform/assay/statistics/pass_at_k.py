"""The unbiased estimate of pass@k: whether one of k samples is right, from n of which c are.

Leaves out: which sample is right, intervals over prompts (`intervals`).
"""

from collections.abc import Mapping
from math import comb

from assay.errors import BadInputError


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """1 - C(n - c, k) / C(n, k) (Chen et al. 2021, arXiv 2107.03374). Raises BadInputError unless c <= n and
    1 <= k <= n: with fewer samples than k there is no unbiased estimate."""
    if not (0 <= correct <= samples and 1 <= k <= samples):
        raise BadInputError(f"no pass@{k} from {samples} samples of which {correct} are right")
    return 1.0 - comb(samples - correct, k) / comb(samples, k)


def estimates_at(verdicts: Mapping[str, tuple[int, int]], k: int) -> dict[str, float]:
    """Prompt -> its pass@k, from (samples, correct) of each; prompts with fewer than k samples are left out."""
    return {prompt: pass_at_k(n, c, k) for prompt, (n, c) in verdicts.items() if n >= k}


def powers_to(most: int) -> list[int]:
    """1, 2, 4, ... up to `most`: the k that figures are shown for."""
    return [2**power for power in range(most.bit_length())]
