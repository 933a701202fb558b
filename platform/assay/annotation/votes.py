"""What a set of votes comes to, for annotators, judges, parties and verdicts alike.

Covers: counting with optional weights, the threshold, the tie policy, and the margin of the result. Leaves out: who
votes, what an answer of a question type counts as, storage.

Every caller counts with `tally` and states its threshold and tie policy. What the votes A, A, B, tie come to:

    queues, recovery, resolution, stage 1 (annotators)     MAJORITY                     undecided: 2 of 4 is not more
    each party in `curation.conflicts`                     MAJORITY                     "split"
    one judge's samples (`merge_votes`)                    PLURALITY, equal votes: tie  A, confidence 0.5
    several judges (`merge_opinions`), stage 2             PLURALITY, then confidence   A, share 0.5
    silver labels of stage 1                               MAJORITY, then confidence    undecided: no label
    verdicts of a generative reward model                  PLURALITY                    A, agreement 0.5
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Generic, Literal, TypeAlias, TypeVar

from assay.domain import TIES, Answer

L = TypeVar("L", bound=Hashable)

#: What a vote on a pair counts as; `undecided`: the annotator looked at the pair and could not decide.
#: `answered`: a vote on what is no pair, which counts towards the overlap and decides nothing.
Outcome: TypeAlias = Literal["A", "B", "tie", "undecided", "answered"]

MAJORITY = 0.5  #: the share of the weight that the winner must exceed
PLURALITY = 0.0  #: the most weight wins, whatever its share
UNKNOWN_CONFIDENCE = 0.5  #: counted for a vote that states none
_EQUAL = 1e-9  # sums of weights that differ by less are equal: addition of floats depends on the order


@dataclass(frozen=True, slots=True)
class Tally(Generic[L]):
    """`winner` is None without a decision. `share`: the leading label's part of the weight, 0 without votes. `margin`:
    mean strength of the deciding votes that state one. `reason`: what decided, or why nothing did; "split": several
    labels lead; "threshold": the leading share does not exceed it."""

    winner: L | None
    share: float
    weights: Mapping[L, float]
    margin: float | None
    reason: Literal["votes", "confidence", "split", "threshold", "no votes"]


def tally(
    votes: Sequence[L | None],
    *,
    threshold: float,
    strengths: Sequence[float | None] | None = None,
    weights: Sequence[float] | None = None,
    confidences: Sequence[float | None] | None = None,
) -> Tally[L]:
    """Count the votes. None abstains, as does a vote of weight 0; the default weight is 1.

    Where several labels have the most weight, the larger sum of weight times confidence wins if `confidences` are
    passed (None states none); otherwise, and where these are equal too, there is no winner. The winner's share must
    exceed `threshold`.
    """
    mass: dict[L, float] = {}
    confident: dict[L, float] = {}
    for number, vote in enumerate(votes):
        weight = 1.0 if weights is None else weights[number]
        if vote is None or weight <= 0:
            continue
        confidence = None if confidences is None else confidences[number]
        mass[vote] = mass.get(vote, 0.0) + weight
        confident[vote] = confident.get(vote, 0.0) + weight * (UNKNOWN_CONFIDENCE if confidence is None else confidence)
    if not mass:
        return Tally(None, 0.0, mass, None, "no votes")
    share = min(1.0, max(mass.values()) / sum(mass.values()))
    leaders = _largest(mass)
    reason: Literal["votes", "confidence"] = "votes"
    if len(leaders) > 1 and confidences is not None:
        leaders, reason = _largest({label: confident[label] for label in leaders}), "confidence"
    if len(leaders) > 1:
        return Tally(None, share, mass, None, "split")
    winner = leaders[0]
    if share <= threshold:
        return Tally(None, share, mass, None, "threshold")
    deciding = [
        strength
        for number, strength in enumerate(strengths or ())
        if votes[number] == winner and strength is not None and (weights is None or weights[number] > 0)
    ]
    return Tally(winner, share, mass, fmean(deciding) if deciding else None, reason)


def preference(answer: Answer) -> Literal["A", "B", "tie"] | None:
    """The class that an answer counts in: all ties are one; None for a skip, which abstains."""
    return "tie" if answer in TIES else answer if answer in ("A", "B") else None


def _largest(weights: Mapping[L, float]) -> list[L]:
    most = max(weights.values())
    return [label for label, weight in weights.items() if weight >= most - _EQUAL]
