"""Answers on what is no pair: when two of them say the same, and what most say."""

from __future__ import annotations

from typing import Any

import pytest

from assay_pipelines.annotation.answer_match import consensus, in_words, matches


def rated(*values: float | None, high: float = 5) -> dict[str, Any]:
    names = ("helpfulness", "truth")
    pairs = zip(names, values, strict=False)
    return {"ratings": [{"aspect": name, "value": value, "low": 1.0, "high": high} for name, value in pairs]}


def steps(*values: float) -> dict[str, Any]:
    return {"marks": [{"step": n, "value": value} for n, value in enumerate(values)]}


def ranked(*answers: str) -> dict[str, Any]:
    pairs = (("r-1", "r-2"), ("r-1", "r-3"), ("r-2", "r-3"))
    return {
        "judgments": [
            {"comparison_id": f"c-{n}", "response_a": a, "response_b": b, "answer": answer}
            for n, ((a, b), answer) in enumerate(zip(pairs, answers, strict=True))
        ]
    }


SPAN: dict[str, Any] = {"marks": [{"step": None, "start": 0, "end": 3, "label": "slip"}]}


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (rated(3), rated(4), True),
        (rated(3), rated(5), False),
        (rated(3, 1), rated(3, 4), False),
        (rated(3, None), rated(3, 4), True),
        (rated(10, high=101), rated(35, high=101), True),
        (rated(10, high=101), rated(36, high=101), False),
        (steps(1, 0, -1), steps(1, 1, -1, 1), True),
        (steps(1, -1), steps(1, 1, -1), False),
        (steps(1, 1), steps(1, -1), False),
        (steps(1, 1), steps(1, 0), True),
        (ranked("A", "A", "A"), ranked("A", "A", "tie"), True),
        (ranked("A", "A", "A"), ranked("A", "A", "B"), False),
        (SPAN, {"marks": []}, True),
    ],
)
def test_two_answers_say_the_same(one: dict[str, Any], other: dict[str, Any], same: bool) -> None:
    assert matches(one, other) is same
    assert matches(other, one) is same


def test_what_most_say() -> None:
    assert consensus([]) is None
    assert consensus([rated(2)]) == rated(2)
    assert consensus([rated(1), rated(5)]) is None
    assert consensus([rated(1), rated(3), rated(5)]) is None
    assert consensus([rated(3), rated(4), rated(5)]) == rated(4)
    assert consensus([steps(1, -1), steps(-1), steps(1, -1)]) == steps(1, -1)


def test_answers_in_words() -> None:
    assert in_words(rated(4, None), []) == "helpfulness 4, truth cannot say"
    assert in_words(steps(1, 0), []) == "no wrong step"
    assert in_words(steps(1, -1), []) == "first wrong step: 2"
    assert in_words(SPAN, []) == "marked 1"
    assert in_words({"marks": []}, []) == "marked 0"
    assert in_words(ranked("B", "tie", "A"), ["r-3", "r-2", "r-1"]) == "B > A = C"
    assert in_words(ranked("A", "A", "A"), ["r-3", "r-2", "r-1"]) == "C > B > A"
