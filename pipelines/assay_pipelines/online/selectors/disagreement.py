"""Pairs on which the members of an ensemble disagree most, by their margins or by their votes on the order."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np

from assay.settings import Help, check_settings
from assay_pipelines.online.selectors.candidates import Candidates, Floats, most_urgent
from assay_pipelines.online.selectors.kind import Pick


def spread(members: Floats) -> Floats:
    """Standard deviation (ddof 0) over members of the differences [n, k] -> [n]. Constants of single members cancel."""
    return np.asarray(members.std(axis=1), dtype=np.float64)


def agreement(members: Floats) -> Floats:
    """The larger share of members that put one response first, by the differences [n, k] -> [n] in [1/2, 1]; a member
    without a difference votes half for either. NaN where a member is missing."""
    share = (0.5 + 0.5 * np.sign(members)).mean(axis=1)
    return np.asarray(np.maximum(share, 1 - share), dtype=np.float64)


@dataclass(frozen=True)
class MemberDisagreement:
    """The pairs with the largest spread of the members' margins first, or with the most even vote, equals by spread."""

    by: Annotated[
        Literal["margin", "order"], Help("margin: spread of the members' margins. order: how even their votes are.")
    ] = "margin"

    needs: ClassVar[frozenset[str]] = frozenset({"members"})

    def __post_init__(self) -> None:
        check_settings(self)

    def choose(self, candidates: Candidates, count: int, rng: np.random.Generator) -> list[Pick]:
        assert candidates.members is not None
        members = candidates.difference(candidates.members)
        spreads, agreements = spread(members), agreement(members)
        # agreements differ by at least 1 / (2 k), so the spread, in [0, 1) by itself, orders only equals
        even = -agreements + spreads / (1 + spreads) / (4 * members.shape[1])
        urgency = spreads if self.by == "margin" else even
        return [
            Pick(pair, {"spread": float(spreads[pair]), "agreement": float(agreements[pair])})
            for pair in most_urgent(urgency, count, rng)
        ]
