"""Ranked lists of responses to one prompt: Plackett-Luce, and the expansion into pairs.

Covers: full and partial rankings; equal ranks are unordered. Leaves out: ties as outcomes (`ties.py`), reading lists
(`assay_rm_training.data.ranked_lists`).

Plackett-Luce (Luce 1959, Plackett 1975): the best is drawn with probability in proportion to exp(reward), then the next
among the rest, and so on; with two responses it is Bradley-Terry. Responses of equal rank: the loss is that of the
probability that some order of theirs happens, which is exact; so a list of equal ranks has loss 0, and ranks "1, then
all others equal" are a choice of the best.
"""

from collections.abc import Sequence
from itertools import groupby

import torch
import torch.nn.functional as F

#: Responses of one rank, with others below them: the exact sum over their orders visits 2^this subsets.
MOST_EQUAL = 8


def plackett_luce(rewards: torch.Tensor, ranks: Sequence[int]) -> torch.Tensor:
    """-log P(ranking), a scalar, of rewards [n] whose `ranks` are 1 for the best; equal ranks are unordered.

    Raises ValueError where more than MOST_EQUAL responses share a rank above the last.
    """
    terms: list[torch.Tensor] = []
    order = sorted(range(len(ranks)), key=lambda i: ranks[i])
    tiers = [list(members) for _, members in groupby(order, key=lambda i: ranks[i])]
    for number, tier in enumerate(tiers[:-1]):
        below = torch.logsumexp(rewards[[i for later in tiers[number + 1 :] for i in later]], dim=0)
        terms.append(-_log_ahead(rewards[tier], below))
    return torch.stack(terms).sum() if terms else rewards.sum() * 0


def stages(ranks: Sequence[int]) -> int:
    """Number of draws that a ranking determines: n - 1 for a full one, less with equal ranks."""
    last = max(ranks)
    return sum(1 for rank in ranks if rank != last)


def _log_ahead(tier: torch.Tensor, below: torch.Tensor) -> torch.Tensor:
    """log P(all of `tier` [m] are drawn before any of the rest), the rest's log-strength being the scalar `below`.

    Over subsets S of the tier still to be drawn: f(S) = sum over i in S of w_i / (W + w(S)) f(S without i), f({}) = 1,
    in logarithms. Every term is positive, so nothing cancels.
    """
    m = len(tier)
    if m == 1:
        return F.logsigmoid(tier[0] - below)
    if m > MOST_EQUAL:
        raise ValueError(f"{m} responses of one rank; at most {MOST_EQUAL} above the last rank")
    sums: list[torch.Tensor] = [tier.new_zeros(())]
    for subset in range(1, 1 << m):
        members = [i for i in range(m) if subset >> i & 1]
        total = torch.logsumexp(torch.cat([tier[members], below[None]]), dim=0)
        drawn = torch.stack([tier[i] - total + sums[subset ^ (1 << i)] for i in members])
        sums.append(torch.logsumexp(drawn, dim=0))
    return sums[-1]


def ordered_pairs(ranks: Sequence[int]) -> list[tuple[int, int]]:
    """(better, worse) of every two responses of different rank."""
    return [(i, j) for i in range(len(ranks)) for j in range(len(ranks)) if ranks[i] < ranks[j]]


def all_pairs(rewards: torch.Tensor, ranks: Sequence[int]) -> torch.Tensor:
    """Mean of Bradley-Terry over every ordered pair of the list, a scalar; equals are skipped (InstructGPT,
    arXiv 2203.02155; ImageReward, arXiv 2304.05977)."""
    pairs = ordered_pairs(ranks)
    if not pairs:
        return rewards.sum() * 0
    better, worse = ([pair[side] for pair in pairs] for side in (0, 1))
    return -F.logsigmoid(rewards[better] - rewards[worse]).mean()
