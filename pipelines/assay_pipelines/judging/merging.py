"""From a judge's samples to its opinion, and from several judges' opinions to one answer; symmetric in A and B.

Within a judge, skips abstain unless there is nothing else; tie, both_good and both_bad count as one class. The class
with the most votes wins, and its share is the confidence. Where two classes have equally many votes, the answer is
`tie` (or `skip`, by option): a judge that chose the same position in both orders has no preference (the rule of
MT-bench, Zheng et al. 2023: a win is a win only in both orders).

Across judges, each answer counts with its judge's weight (1 by default). The most weight wins; where it is equal, the
larger sum of weight times confidence; where that is equal too, there is no answer.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, Protocol, TypeAlias

from assay.annotation.votes import PLURALITY, Tally, preference, tally
from assay.domain import Answer
from assay_pipelines.judging.judge import Opinion, Vote

Preference: TypeAlias = Literal["A", "B", "tie"]
#: The opinion of a judge whose votes are equally split, e.g. because it chose by position.
OnSplit: TypeAlias = Literal["tie", "skip"]


class OpinionLike(Protocol):
    @property
    def answer(self) -> Answer: ...
    @property
    def confidence(self) -> float | None: ...


def merge_votes(votes: Sequence[Vote], *, on_split: OnSplit = "tie") -> Opinion:
    """A judge's opinion: the most votes win, an equal split is `on_split`; A, A, B, tie comes to A with confidence 0.5.

    A single vote keeps its own confidence. Rationale and strength (the median, rounded down) are those of the votes for
    the answer. Raises ValueError without votes.
    """
    if not votes:
        raise ValueError("an opinion needs at least one vote")
    if len(votes) == 1:
        vote = votes[0]
        return Opinion(vote.answer, vote.confidence, tuple(votes), vote.rationale, vote.strength)
    counts: Tally[Preference] = tally([preference(vote.answer) for vote in votes], threshold=PLURALITY)
    if counts.reason == "no votes":
        return Opinion("skip", None, tuple(votes), next((v.rationale for v in votes if v.rationale), None))
    if counts.winner is None:
        split = ", ".join(f"{number:.0f} {label}" for label, number in sorted(counts.weights.items()))
        rationale = f"its votes are split: {split}"
        return Opinion(on_split, counts.share, tuple(votes), rationale, 0 if on_split == "tie" else None)
    supporters = [vote for vote in votes if preference(vote.answer) == counts.winner]
    strengths = sorted(vote.strength for vote in supporters if vote.strength is not None)
    return Opinion(
        _kind_of_tie(supporters) if counts.winner == "tie" else counts.winner,
        counts.share,
        tuple(votes),
        next((vote.rationale for vote in supporters if vote.rationale), None),
        strengths[(len(strengths) - 1) // 2] if strengths else None,
    )


def merge_opinions(
    opinions: Mapping[str, OpinionLike],
    *,
    weights: Mapping[str, float] | None = None,
    threshold: float = PLURALITY,
) -> Tally[Preference]:
    """One answer of several judges' opinions, by annotator: the most weight wins, then the most confidence.

    A judge without a weight counts 1. A, A, B, tie comes to A with share 0.5, and with the threshold MAJORITY to no
    answer.
    """
    return tally(
        [preference(opinion.answer) for opinion in opinions.values()],
        weights=[1.0 if weights is None else weights.get(annotator, 1.0) for annotator in opinions],
        confidences=[opinion.confidence for opinion in opinions.values()],
        threshold=threshold,
    )


def _kind_of_tie(votes: Iterable[Vote]) -> Answer:
    """both_good or both_bad where all votes agree, else tie."""
    kinds = {vote.answer for vote in votes}
    return kinds.pop() if len(kinds) == 1 else "tie"
