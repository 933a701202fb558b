"""Soft labels from the spread of annotators.

Covers: the probability that the chosen side wins, from counted votes and a prior. Leaves out: counting votes
(`assay.data.voted_pairs`), the loss (`pair.bradley_terry_soft`).
"""

from __future__ import annotations

from assay.errors import BadInputError


def vote_target(chosen: float, rejected: float, ties: float = 0.0, *, prior: float = 0.5) -> float:
    """P(chosen wins) = (n_chosen + n_ties / 2 + a) / (n + 2a): the mean of a Beta posterior under Beta(a, a).

    A tie is half a vote for each. a = 1/2 is Jeffreys' prior: a single vote gives 0.75, five of five 0.92; a = 0 uses
    the shares unchanged. Raises BadInputError without votes and prior.
    """
    counted = chosen + rejected + ties
    if min(chosen, rejected, ties, prior) < 0 or counted + prior <= 0:
        raise BadInputError(f"no probability from {chosen}:{rejected}, {ties} ties and prior {prior}")
    return (chosen + ties / 2 + prior) / (counted + 2 * prior)
