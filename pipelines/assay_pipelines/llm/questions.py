"""Comparisons of the store as questions to a model: texts, attributes, demonstrations, the order shown.

Leaves out: choosing demonstrations (`assay_pipelines.curation.loop.demonstrations`), answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from assay.browsing.candidates import Candidate, candidates_by_id, iter_candidates
from assay.data.pair_attributes import PairAttributes, load_attributes
from assay.data.snapshots import Selection
from assay.domain import Answer, Prompt, ShownOrder
from assay.ids import fraction
from assay.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Demonstration:
    """A comparison that people have labelled, shown to a judge as an example."""

    prompt: Prompt
    response_a: str
    response_b: str
    answer: Answer
    attributes: PairAttributes | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """One comparison as it is put to a judge."""

    comparison_id: str
    prompt: Prompt
    response_a: str
    response_b: str
    attributes: PairAttributes | None = None
    demonstrations: tuple[Demonstration, ...] = ()


def iter_questions(
    workspace: Workspace, selection: Selection, *, limit: int | None = None, with_attributes: bool = True
) -> Iterator[list[Question]]:
    """Pages of questions in the order of their ids, at most `limit` in all."""
    remaining = limit
    for page in iter_candidates(workspace, selection):
        candidates = page if remaining is None else page[:remaining]
        if candidates:
            yield _questions(workspace, candidates, with_attributes)
        if remaining is not None:
            remaining -= len(candidates)
            if remaining <= 0:
                return


def load_questions(
    workspace: Workspace, comparison_ids: Sequence[str], *, with_attributes: bool = True
) -> list[Question]:
    """The questions of these comparisons; unknown ids are left out."""
    return _questions(workspace, candidates_by_id(workspace, comparison_ids), with_attributes)


def _questions(workspace: Workspace, candidates: Sequence[Candidate], with_attributes: bool) -> list[Question]:
    attributes = load_attributes(workspace, [c.comparison_id for c in candidates]) if with_attributes else {}
    return [
        Question(c.comparison_id, c.prompt, c.response_a, c.response_b, attributes.get(c.comparison_id))
        for c in candidates
    ]


def orders(comparison: str, sample: int, seed: int, *, both: bool) -> tuple[ShownOrder, ...]:
    """In which order(s) a sample sees the two: both, or one drawn by hash so that it never depends on chance or on what
    else is asked. Later samples of one comparison alternate, which balances them."""
    if both:
        return ("AB", "BA")
    first = fraction(seed, "order", comparison) < 0.5
    return ("AB",) if first == (sample % 2 == 0) else ("BA",)
