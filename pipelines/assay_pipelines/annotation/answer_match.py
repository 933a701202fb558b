"""Answers on what is no pair, beside each other: whether two say the same, what most of them say, an answer in words.

Two answers match where on every aspect that both rated they are at most a quarter of the scale apart (one point of 1 to
5), where the first wrong step is the same, and where no two responses stand in opposite orders. Spans have no such
rule: careful people mark different words, so all marks stand, none is known beforehand and nothing is adjudicated.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from assay_pipelines.annotation.question_types.ranking import LETTERS

#: As in `assay.annotation.item_answers`.
AnswerLabels: TypeAlias = Mapping[str, Sequence[Mapping[str, Any]]]
TOLERANCE = 0.25  #: of a scale


def matches(one: AnswerLabels, other: AnswerLabels) -> bool:
    orders = {pair["comparison_id"]: pair["answer"] for pair in one.get("judgments", ())}
    ratings = {rating["aspect"]: rating["value"] for rating in one.get("ratings", ())}
    return (
        all({orders.get(p["comparison_id"]), p["answer"]} != {"A", "B"} for p in other.get("judgments", ()))
        and all(_near(ratings.get(rating["aspect"]), rating) for rating in other.get("ratings", ()))
        and _first_wrong(one) == _first_wrong(other)
    )


def consensus(answers: Sequence[AnswerLabels]) -> AnswerLabels | None:
    """The one that more than half of them match, itself included; None where there is none."""
    matched = [(sum(matches(answer, other) for other in answers), answer) for answer in answers]
    most, best = max(matched, key=lambda pair: pair[0], default=(0, None))
    return best if 2 * most > len(answers) else None


def in_words(labels: AnswerLabels, response_ids: Sequence[str]) -> str:
    """`response_ids`: of the responses, in the order of the reader's screen."""
    if ratings := labels.get("ratings"):
        return ", ".join(
            f"{r['aspect']} {'cannot say' if r['value'] is None else format(r['value'], 'g')}" for r in ratings
        )
    if pairs := labels.get("judgments"):
        lost = [
            sum(
                pair[f"response_{'b' if pair['answer'] == 'A' else 'a'}"] == response
                for pair in pairs
                if pair["answer"] != "tie"
            )
            for response in response_ids
        ]
        groups = [
            [letter.upper() for letter, n in zip(LETTERS, lost, strict=False) if n == rank]
            for rank in sorted(set(lost))
        ]
        return " > ".join(" = ".join(group) for group in groups)
    marks = labels.get("marks", ())
    if any(mark.get("step") is None for mark in marks) or not marks:
        return f"marked {len(marks)}"
    wrong = _first_wrong(labels)
    return "no wrong step" if wrong is None else f"first wrong step: {wrong + 1}"


def _near(value: float | None, rating: Mapping[str, Any]) -> bool:
    if value is None or rating["value"] is None:
        return True
    return bool(abs(value - rating["value"]) <= TOLERANCE * (rating["high"] - rating["low"]))


def _first_wrong(labels: AnswerLabels) -> int | None:
    """The first step that is labelled wrong, from 0."""
    steps = (m["step"] for m in labels.get("marks", ()) if m.get("step") is not None and m["value"] < 0)
    return min(steps, default=None)
