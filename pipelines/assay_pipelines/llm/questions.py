"""Comparisons of the store as questions to a model: texts, attributes, demonstrations, the order shown.

Leaves out: choosing demonstrations (`assay_pipelines.curation.loop.demonstrations`), answers.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from assay.browsing.candidates import Candidate, candidates_by_id, iter_candidates
from assay.data.pair_attributes import PairAttributes, load_attributes
from assay.data.snapshots import Selection
from assay.domain import Answer, Prompt, Response, ShownOrder
from assay.ids import fraction
from assay.workspace import Workspace

PAGE = 8_000  #: each page looks through narrow columns of the whole store for what is answered already


@dataclass(frozen=True, slots=True)
class Demonstration:
    """A comparison that people have labelled, shown to a judge as an example."""

    prompt: Prompt
    response_a: Response
    response_b: Response
    answer: Answer
    attributes: PairAttributes | None = None
    comparison_id: str | None = None  #: None: made up


@dataclass(frozen=True, slots=True)
class Question:
    """One comparison as it is put to a judge."""

    comparison_id: str
    prompt: Prompt
    response_a: Response
    response_b: Response
    attributes: PairAttributes | None = None
    demonstrations: tuple[Demonstration, ...] = ()


def iter_questions(workspace: Workspace, selection: Selection, *, limit: int | None = None) -> Iterator[list[Question]]:
    """Pages of questions in the order of their ids, at most `limit` in all."""
    remaining = limit
    for page in iter_candidates(workspace, selection, page=PAGE if limit is None else min(limit, PAGE)):
        candidates = page if remaining is None else page[:remaining]
        if candidates:
            yield questions_of(workspace, candidates)
        if remaining is not None:
            remaining -= len(candidates)
            if remaining <= 0:
                return


def load_questions(workspace: Workspace, comparison_ids: Sequence[str]) -> list[Question]:
    """The questions of these comparisons; unknown ids are left out."""
    return questions_of(workspace, candidates_by_id(workspace, comparison_ids))


def questions_of(
    workspace: Workspace, candidates: Sequence[Candidate], shown: Mapping[str, Sequence[Demonstration]] | None = None
) -> list[Question]:
    """With the attributes that the store has. `shown`: demonstrations by comparison id."""
    attributes, shown = load_attributes(workspace, [c.comparison_id for c in candidates]), shown or {}
    return [
        Question(c.comparison_id, c.prompt, c.response_a, c.response_b, attributes.get(id_), tuple(shown.get(id_, ())))
        for c in candidates
        for id_ in [c.comparison_id]
    ]


def orders(comparison: str, sample: int, seed: int, *, both: bool) -> tuple[ShownOrder, ...]:
    """In which order(s) a sample sees the two: both, or one drawn by hash so that it never depends on chance or on what
    else is asked. Later samples of one comparison alternate, which balances them."""
    if both:
        return ("AB", "BA")
    first = fraction(seed, "order", comparison) < 0.5
    return ("AB",) if first == (sample % 2 == 0) else ("BA",)
