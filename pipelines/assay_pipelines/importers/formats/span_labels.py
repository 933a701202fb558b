"""Labels of parts of a response that published sets keep in `meta` of the normalised form.

Covers: FActScore's sentences with their facts (`facts`), HaluEval's hallucinated passages (`spans`), Fine-Grained
RLHF's errors, missing facts and corrected answer (`feedback_on_prediction_1`). A passage that is not in the response
word for word has the whole response as its span. Leaves out: ratings (`ratings`), labels of steps (`solution_steps`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from assay.data.json_lines import RowError
from assay_pipelines.importers.rows import mark, rating


@dataclass
class SpanLabels:
    """What `meta` says of the first response. `corrected`: what an annotator made of it."""

    marks: list[dict[str, Any]] = field(default_factory=list)
    ratings: list[dict[str, Any]] = field(default_factory=list)
    corrected: str | None = None
    problems: list[RowError] = field(default_factory=list)


def span_labels(meta: Mapping[str, Any], response: str, *, kind: str, voter: str | None) -> SpanLabels:
    """`kind`, `voter`: the record's annotator."""
    out = SpanLabels()
    who = (kind, voter)
    for sentence in _objects(meta.get("facts")):
        characters = _characters_of(sentence.get("sentence"), response)
        for fact in _objects(sentence.get("facts")):
            _mark(out, characters, fact.get("label"), fact.get("text"), who, "meta.facts")
        if sentence.get("relevant") is False:
            _mark(out, characters, "irrelevant", None, who, "meta.facts")
    passages = meta.get("spans")
    for passage in passages if isinstance(passages, list) else ():
        _mark(out, _characters_of(passage, response), "hallucination", passage, who, "meta.spans")
    feedback = meta.get("feedback_on_prediction_1")
    if isinstance(feedback, dict):
        where = "meta.feedback_on_prediction_1"
        for error in _objects(feedback.get("errors")):
            place_of_error = (error.get("start"), error.get("end"))
            _mark(out, place_of_error, error.get("error type"), error.get("explanation"), who, where)
        for missing in _objects(feedback.get("missing-info")):
            passage = f"passage {missing.get('passage_id')}, sentences {missing.get('sentence_id')}"
            aspect = f"missing-info/{missing.get('error type')}"
            out.ratings.append(rating(aspect, True, rationale=passage, kind=kind, voter=voter))
        corrected = feedback.get("corrected-prediction")
        out.corrected = corrected if isinstance(corrected, str) and corrected.strip() else None
    return out


def _mark(
    out: SpanLabels,
    characters: tuple[Any, Any],
    label: object,
    rationale: object,
    who: tuple[str, str | None],
    where: str,
) -> None:
    start, end = characters
    if isinstance(label, str) and label and type(start) is int and type(end) is int and 0 <= start <= end:
        text = rationale if isinstance(rationale, str) and rationale else None
        out.marks.append(mark(start, end, label=label, rationale=text, kind=who[0], voter=who[1]))
    else:
        out.problems.append(RowError("a span without a label, or without its characters", field=where))


def _characters_of(passage: object, response: str) -> tuple[int, int]:
    start = response.find(passage) if isinstance(passage, str) and passage else -1
    return (start, start + len(str(passage))) if start >= 0 else (0, len(response))


def _objects(value: object) -> list[dict[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []
