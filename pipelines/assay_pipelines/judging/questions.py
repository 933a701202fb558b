"""Comparisons of the store as questions: texts and attributes.

Leaves out: demonstrations, which retrieval adds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from assay.data.pair_attributes import load_attributes
from assay.data.snapshots import Selection
from assay.workspace import Workspace
from assay_pipelines.curation.candidates import Candidate, candidates_by_id, iter_candidates
from assay_pipelines.judging.judge import Question


def iter_questions(
    workspace: Workspace, selection: Selection, *, limit: int | None = None, with_attributes: bool = True
) -> Iterator[list[Question]]:
    """Pages of questions in the order of their ids, at most `limit` in all."""
    left = limit
    for page in iter_candidates(workspace, selection):
        taken = page if left is None else page[:left]
        if taken:
            yield _questions(workspace, taken, with_attributes)
        if left is not None:
            left -= len(taken)
            if left <= 0:
                return


def load_questions(
    workspace: Workspace, comparison_ids: Sequence[str], *, with_attributes: bool = True
) -> list[Question]:
    """The questions of these comparisons; unknown ids are left out."""
    return _questions(workspace, candidates_by_id(workspace, comparison_ids), with_attributes)


def _questions(workspace: Workspace, candidates: Sequence[Candidate], with_attributes: bool) -> list[Question]:
    known = load_attributes(workspace, [c.comparison_id for c in candidates]) if with_attributes else {}
    return [
        Question(c.comparison_id, c.prompt, c.response_a, c.response_b, known.get(c.comparison_id)) for c in candidates
    ]
