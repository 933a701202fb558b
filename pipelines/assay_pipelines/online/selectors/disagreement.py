"""Pairs on which the members of an ensemble disagree most.

Source: Christiano et al., arXiv 1706.03741 (recalled): the pairs whose predicted preference has the highest variance
over the ensemble. The spread of margins also ranks pairs high whose order no member doubts.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np

from assay.settings import CheckedSettings, Help
from assay_pipelines.online.selectors.candidates import Candidates, Floats, most_urgent
from assay_pipelines.online.selectors.kind import Pick
from assay_rm_training.calibration.measures import sigmoid


def agreement(members: Floats) -> Floats:
    """The larger share of members that put one response first, by the differences [n, k] -> [n] in [1/2, 1]; a member
    without a difference votes half for either. NaN where a member is missing."""
    share = (0.5 + 0.5 * np.sign(members)).mean(axis=1)
    return np.asarray(np.maximum(share, 1 - share), dtype=np.float64)


@dataclass(frozen=True)
class MemberDisagreement(CheckedSettings):
    """The largest standard deviation over members first, of the preference or of the margin; or the most even vote."""

    by: Annotated[
        Literal["preference", "margin", "order"],
        Help("preference: spread of P(first better). margin: of the margins. order: how even the votes are."),
    ] = "preference"

    needs: ClassVar[frozenset[str]] = frozenset({"members"})

    def choose(self, candidates: Candidates, count: int, rng: np.random.Generator) -> list[Pick]:
        assert candidates.members is not None
        members = candidates.difference(candidates.members)
        margin, chance = members.std(axis=1), sigmoid(members).std(axis=1)
        agreed = agreement(members)
        # agreements differ by at least 1 / (2 k) and a spread of preferences is at most 1/2: it orders only equals
        even = -agreed + chance / (2 * members.shape[1])
        urgency = {"preference": chance, "margin": margin, "order": even}[self.by]
        return [
            Pick(
                pair,
                {
                    "preference_spread": float(chance[pair]),
                    "spread": float(margin[pair]),
                    "agreement": float(agreed[pair]),
                },
            )
            for pair in most_urgent(urgency, count, rng)
        ]
