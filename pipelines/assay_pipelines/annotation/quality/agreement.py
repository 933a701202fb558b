"""How far annotators agree, with ties as a category and with ties dropped ("cannot decide" is no label)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from assay.statistics.agreement import AgreementCoefficients, CoefficientEstimate, agreement, alpha_estimate
from assay.statistics.intervals import RESAMPLES
from assay_pipelines.annotation.votes import QueueVote

SCALE = tuple(str(n) for n in range(-3, 4))  #: signed strength


@dataclass(frozen=True)
class AgreementReport:
    """`strength`: ordinal alpha of how much better the preferred response is, signed (A +, B -, tie 0), -3 to 3, over
    the items on which everybody who preferred one side said how much."""

    with_ties: AgreementCoefficients
    ties_dropped: AgreementCoefficients
    tie_rate: float  #: share of the labels
    strength: CoefficientEstimate
    strength_items: int


def agreement_of_votes(votes: Sequence[QueueVote], *, seed: int = 0, resamples: int = RESAMPLES) -> AgreementReport:
    """Agreement of votes on any number of comparisons. Of an annotator's votes on one comparison the last counts."""
    by_item: dict[str, dict[str, QueueVote]] = {}
    for vote in votes:
        if vote.role == "vote" and vote.outcome in ("A", "B", "tie"):
            by_item.setdefault(vote.comparison_id, {})[vote.annotator] = vote
    items = [by_item[comparison] for comparison in sorted(by_item)]
    labels = [{name: str(vote.outcome) for name, vote in item.items()} for item in items]
    sides = [{name: label for name, label in item.items() if label != "tie"} for item in labels]
    total = sum(len(item) for item in labels)
    strengths = [signed for item in items if (signed := _signed(item)) is not None]
    return AgreementReport(
        with_ties=agreement(labels, seed=seed, resamples=resamples),
        ties_dropped=agreement(sides, seed=seed, resamples=resamples),
        tie_rate=(total - sum(len(item) for item in sides)) / total if total else 0.0,
        strength=alpha_estimate(strengths, "ordinal", order=SCALE, seed=seed, resamples=resamples),
        strength_items=sum(len(item) > 1 for item in strengths),
    )


def _signed(item: Mapping[str, QueueVote]) -> dict[str, str] | None:
    """Signed strengths of an item on which every annotator who preferred one side stated one, and somebody did."""
    preferred = [vote for vote in item.values() if vote.outcome != "tie"]
    if not preferred or any(vote.strength is None for vote in preferred):
        return None
    signs = {"A": 1, "B": -1}
    return {name: str(signs.get(str(vote.outcome), 0) * (vote.strength or 0)) for name, vote in item.items()}
