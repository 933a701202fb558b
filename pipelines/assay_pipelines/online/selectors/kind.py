"""What a selector is: a plug-in that picks the pairs worth a label among the responses of a step.

Covers: the registered kind with its built-in members, a pick with its reason, the refusal of a selector whose needs
are not met. Leaves out: the selectors, the labels.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from assay.errors import BadInputError
from assay.registry import Kind, made_by

if TYPE_CHECKING:
    import numpy as np

    from assay_pipelines.online.selectors.candidates import Candidates

#: What a selector may need beside the reward -> what supplies it.
SUPPLIED_BY: Mapping[str, str] = {
    "members": "an ensemble as the reward",
    "other": "a second reward",
    "features": "a reward with a frozen backbone",
    "posterior": "a head ensemble with a posterior as the reward",
    "logp": "a policy's rollouts",
    "logp_ref": "a reference policy",
}


@dataclass(frozen=True)
class Pick:
    """`pair`: which of the candidates. `why`: the numbers that it was chosen by."""

    pair: int
    why: Mapping[str, float]


class Selector(Protocol):
    """A dataclass of settings. `needs`: fields of `Candidates`, keys of `SUPPLIED_BY`."""

    @property
    def needs(self) -> frozenset[str]: ...
    def choose(self, candidates: "Candidates", count: int, rng: "np.random.Generator") -> list[Pick]:
        """At most `count` different pairs, the one most worth a label first. A pair that lacks a number that the
        selector reads (NaN) is never chosen."""
        ...


def require(selector: Selector, candidates: "Candidates") -> None:
    """Raises BadInputError where the candidates lack what the selector needs: what that is, and what supplies it."""
    if missing := sorted(need for need in selector.needs if getattr(candidates, need) is None):
        origin = made_by(selector)
        name = origin.name if origin else type(selector).__name__
        what = " and ".join(f"{need} ({SUPPLIED_BY[need]})" for need in missing)
        raise BadInputError(f"{name} needs {what}, which this run does not have", field="selector")


_HERE = "assay_pipelines.online.selectors"
SELECTORS: Kind[type[Selector]] = Kind(
    "selector",
    "Picks the pairs of a policy's responses that are worth a label.",
    {
        "random": f"{_HERE}.uniform:RandomPairs",
        "margin": f"{_HERE}.margin:SmallestMargin",
        "disagreement": f"{_HERE}.disagreement:MemberDisagreement",
        "two_reward": f"{_HERE}.two_reward:RewardDisagreement",
        "posterior": f"{_HERE}.posterior:PosteriorDraws",
        "information_gain": f"{_HERE}.information_gain:InformationGain",
        "optimism": f"{_HERE}.optimism:OptimisticChoice",
        "diversity": f"{_HERE}.diversity:DiversePairs",
    },
    requires=("needs", "choose"),
    option="selector",
)
