"""How far people agree on what is no pair: by aspect for ratings, on steps, on spans, on the order of two responses.

Krippendorff's alpha: interval for ratings, ordinal for steps, nominal for spans and orders. Spans are compared
character by character of the response, over those that anybody marked.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from assay.statistics.agreement import CoefficientEstimate, alpha_estimate, percent_agreement
from assay_pipelines.annotation.ledger import Ledger

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
