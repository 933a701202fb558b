"""How far annotators agree: on pairs, with ties as a category and with ties dropped ("cannot decide" is no label), and
on what is no pair, by aspect for ratings, on steps, on spans, on the order of two responses.

Krippendorff's alpha there: interval for ratings, ordinal for steps, nominal for spans and orders. Spans are compared
character by character of the response, over those that anybody marked.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from assay.statistics.agreement import (
    AgreementCoefficients,
    CoefficientEstimate,
    agreement,
    alpha_estimate,
    percent_agreement,
)
from assay.statistics.intervals import RESAMPLES
from assay_pipelines.annotation.ledger import Ledger
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


#: What is compared (an aspect, "steps", "spans", "order"), the unit of comparison, the label.
_Label: TypeAlias = tuple[str, tuple[Any, ...], str]
_METRICS: dict[str, Literal["nominal", "ordinal", "interval"]] = {
    "steps": "ordinal",
    "spans": "nominal",
    "order": "nominal",
}


@dataclass(frozen=True)
class LabelAgreement:
    """`items`: units that two people or more labelled; others tell nothing. `percent`: of pairs of labels that are
    equal. `alpha`: undetermined where everybody always said the same."""

    what: str
    metric: str
    labels: int
    items: int
    percent: float | None
    alpha: CoefficientEstimate


def label_agreement(ledger: Ledger, queue: str, *, seed: int = 0, resamples: int = 1000) -> list[LabelAgreement]:
    """Of the standing answers of a queue's annotators; none for a queue of pairs. `queue`: its name."""
    with ledger.reading() as db:
        rows = db.execute(
            """SELECT v.item_id, v.annotator, l.labels
               FROM items i JOIN votes v USING (item_id) JOIN vote_labels l USING (judgment_id)
               WHERE i.queue = ? AND NOT i.is_check AND v.role = 'vote' AND v.counts AND v.withdrawn_at IS NULL
               ORDER BY v.at""",
            (queue,),
        ).fetchall()
    answers = [(row["item_id"], row["annotator"], json.loads(row["labels"])) for row in rows]
    units: dict[str, dict[tuple[Any, ...], dict[str, str]]] = {}
    for item, annotator, labels in answers:
        for what, unit, label in _labels(labels):
            units.setdefault(what, {}).setdefault((item, *unit), {})[annotator] = label
    if "spans" in units:
        for item, annotator, _ in answers:  # who marked nothing at a place said so
            for unit, by_annotator in units["spans"].items():
                if unit[0] == item:
                    by_annotator.setdefault(annotator, "")
    agreements = []
    for what, by_unit in sorted(units.items()):
        labelled = list(by_unit.values())
        metric = _METRICS.get(what, "interval")
        values = {label for unit in labelled for label in unit.values()}
        order = sorted(values) if metric == "nominal" else sorted(values, key=float)
        agreements.append(
            LabelAgreement(
                what,
                metric,
                labels=sum(map(len, labelled)),
                items=sum(len(unit) > 1 for unit in labelled),
                percent=percent_agreement(labelled),
                alpha=alpha_estimate(labelled, metric, order=order, seed=seed, resamples=resamples),
            )
        )
    return agreements


def _labels(labels: dict[str, Any]) -> Iterator[_Label]:
    for pair in labels.get("judgments", ()):
        yield "order", (pair["comparison_id"],), pair["answer"]
    for rating in labels.get("ratings", ()):
        if rating["value"] is not None:
            yield rating["aspect"], (rating["response_id"],), str(rating["value"])
    for mark in labels.get("marks", ()):
        if mark.get("step") is not None:
            yield "steps", (mark["response_id"], mark["step"]), str(mark["value"])
        else:
            for character in range(mark["start"], mark["end"]):
                yield "spans", (mark["response_id"], character), mark["label"]
