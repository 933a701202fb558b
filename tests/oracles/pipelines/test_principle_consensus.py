"""RLBFF's consensus rule on a two-dimensional example (unit vectors by their angle)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay_pipelines.principles.filtering import consensus, merge

ANGLES = {"p1": 0, "p2": 90, "q1": 20, "q2": 200, "s1": -15, "s2": 95}
ANNOTATORS = (("p1", "p2"), ("q1", "q2"), ("s1", "s2"))


def unit(*degrees: float) -> npt.NDArray[np.float32]:
    return np.array([[math.cos(math.radians(d)), math.sin(math.radians(d))] for d in degrees], dtype=np.float32)


VECTORS = [unit(*(ANGLES[name] for name in names)) for names in ANNOTATORS]


def kept(**settings: Any) -> set[str]:
    tests = consensus(VECTORS, **settings)
    pairs = [(n, t) for names, found in zip(ANNOTATORS, tests, strict=True) for n, t in zip(names, found, strict=True)]
    return {name for name, test in pairs if test.accepted}


@pytest.mark.parametrize(
    ("one", "other", "cosine"),
    [("p1", "q1", 0.939693), ("p1", "s1", 0.965926), ("q1", "s1", 0.819152), ("p2", "s2", 0.996195)],
)
def test_cosines(one: str, other: str, cosine: float) -> None:
    assert float(unit(ANGLES[one])[0] @ unit(ANGLES[other])[0]) == pytest.approx(cosine, abs=1e-6)


@pytest.mark.parametrize(("threshold", "names"), [(0.7, {"p1", "q1", "s1"}), (0.8, {"p1", "q1", "s1"}), (0.9, {"p1"})])
def test_every_other_annotator_must_agree(threshold: float, names: set[str]) -> None:
    """p2 goes at every threshold although one annotator agrees; at 0.9 p1 stands although what supports it does not."""
    assert kept(threshold=threshold) == names


def test_another_fulfilment_is_no_agreement() -> None:
    answers = [["yes", "no"], ["no", "no"], ["yes", "yes"]]
    assert kept(answers=answers) == set()
    assert kept(answers=[["yes", "no"], ["yes", "no"], ["yes", "yes"]]) == {"p1", "q1", "s1"}


def test_fewer_than_every_one_may_be_enough() -> None:
    assert kept(at_least=1) == {"p1", "q1", "s1", "p2", "s2"}
    found = consensus(VECTORS, at_least=1)[0][1]
    assert (found.agreeing, found.other_annotators) == (1, 2)


def test_one_annotator_is_no_consensus_unless_allowed() -> None:
    assert [t.accepted for t in consensus(VECTORS[:1])[0]] == [False, False]
    assert [t.accepted for t in consensus(VECTORS[:1], alone=True)[0]] == [True, True]


def test_an_annotator_without_principles_agrees_with_nothing() -> None:
    silent = np.empty((0, 2), dtype=np.float32)
    found = consensus([VECTORS[0], silent, VECTORS[2]], alone=True)
    assert [[t.accepted for t in one] for one in found] == [[False, False], [], [False, False]]


@given(st.lists(st.lists(st.integers(0, 359), max_size=4), min_size=2, max_size=4), st.floats(-1, 1), st.randoms())
def test_neither_the_order_of_annotators_nor_a_lower_threshold_loses_a_principle(
    degrees: list[list[int]], threshold: float, random: Any
) -> None:
    vectors = [unit(*one).reshape(-1, 2) for one in degrees]
    found = consensus(vectors, threshold=threshold)
    order = list(range(len(vectors)))
    random.shuffle(order)
    again = consensus([vectors[i] for i in order], threshold=threshold)
    assert [again[order.index(i)] for i in range(len(vectors))] == found
    lower = consensus(vectors, threshold=threshold - 0.1)
    for one, other in zip(found, lower, strict=True):
        assert all(b.accepted for a, b in zip(one, other, strict=True) if a.accepted)


def test_one_of_each_meaning_stands() -> None:
    assert merge(unit(0, 20, 90, 95, -15, 45)) == [0, 0, 2, 2, 0, 5]
    assert merge(unit(0, 20, 90), threshold=0.95) == [0, 1, 2]
    assert merge(np.empty((0, 2), dtype=np.float32)) == []
