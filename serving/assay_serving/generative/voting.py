"""Combining verdicts: mean of probabilities, both orders of a pair, voting at k.

Covers: plain functions on labels and numbers, each with its tie rule. Leaves out: requesting verdicts, counting
labels (`assay.annotation.votes`).

Sources: position swap and its three rules, JudgeBench's and RewardBench's scripts; mean of
probabilities, arXiv 2408.15240.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from assay.statistics.logistic import log_sigmoid

#: One order's decision on a pair, in the pair's own labels; None: no verdict could be read.
Decision: TypeAlias = Literal["A", "B", "tie"] | None


def mean_log_odds(log_odds: Sequence[float]) -> float:
    """Log-odds of the mean probability of votes given by their log-odds, finite for finite votes.

    The mean is of probabilities, not of log-odds: one very sure vote does not outweigh the others (arXiv 2408.15240).
    One vote comes back as it is.
    """
    if len(log_odds) == 1:
        return log_odds[0]
    return _log_sum([log_sigmoid(r) for r in log_odds]) - _log_sum([log_sigmoid(-r) for r in log_odds])


def expected_rating(logp: Mapping[str, float]) -> float:
    """sum of v * P(v) over the ratings, P renormalised over them."""
    top = max(logp.values())
    weights = {int(label): math.exp(value - top) for label, value in logp.items()}
    return sum(value * weight for value, weight in weights.items()) / sum(weights.values())


def unpermute(by_position: Sequence[float], order: Sequence[int]) -> list[float]:
    """Values by position to values by response: position j showed response `order[j]`. Raises ValueError if `order` is
    no permutation of the positions."""
    if sorted(order) != list(range(len(by_position))):
        raise ValueError(f"{list(order)} is no order of {len(by_position)} responses")
    values = [math.nan] * len(by_position)
    for position, response in enumerate(order):
        values[response] = by_position[position]
    return values


def both_orders(first_shown_wins: float, first_shown_wins_swapped: float) -> float:
    """P(A) from P(the first shown wins) when A was shown first and when B was."""
    return (first_shown_wins + 1.0 - first_shown_wins_swapped) / 2.0


def right_by_and(first: Decision, second: Decision, label: str) -> bool:
    """Rule AND: both orders right. `second` is un-swapped: in the same labels as `first`."""
    return first == label and second == label


def right_by_sum(first: Decision, second: Decision, label: str) -> bool:
    """Rule SUM (JudgeBench): +1 right, -1 the opposite, 0 tie or none, by order; right if the sum is above 0."""
    return sum(0 if d not in ("A", "B") else 1 if d == label else -1 for d in (first, second)) > 0


def majority_at(right: int, wrong: int, none: int, k: int) -> float:
    """Expected credit of the majority of k votes drawn without replacement from n = right + wrong + none votes, of
    which `none` could not be read and count for nobody; a tie is worth 0.5, no readable vote at all nothing. Exact.
    Raises ValueError for k > n."""
    total = right + wrong + none
    if not 1 <= k <= total:
        raise ValueError(f"cannot draw {k} of {total} votes")
    credit = 0.0
    for i in range(min(right, k) + 1):
        for j in range(min(wrong, k - i) + 1):
            worth = 1.0 if i > j else 0.5 if i == j > 0 else 0.0
            credit += worth * math.comb(right, i) * math.comb(wrong, j) * math.comb(none, k - i - j)
    return credit / math.comb(total, k)


def _log_sum(values: Sequence[float]) -> float:
    top = max(values)
    return top + math.log(sum(math.exp(value - top) for value in values))
