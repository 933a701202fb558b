"""Which principles annotators share, and which have the same meaning (RLBFF, steps 5 and 6). Vectors have length 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class ConsensusTest:
    """The result for one principle. `agreeing`: how many of the `other_annotators` have one above the threshold."""

    accepted: bool
    agreeing: int
    other_annotators: int


def consensus(
    vectors: Sequence[npt.NDArray[np.float32]],
    answers: Sequence[Sequence[str]] | None = None,
    *,
    threshold: float = 0.8,
    at_least: int | None = None,
    alone: bool = False,
) -> list[list[ConsensusTest]]:
    """For each annotator and principle: whether EVERY other annotator has one whose cosine is above `threshold`.

    `vectors`: one [principles, dimension] matrix per annotator; an annotator without principles agrees with none, so
    that no principle of the others is accepted. `answers`: if given, the matching principle must have the same answer
    (our reading: RLBFF does not specify annotators who agree on a principle but not on its fulfilment). `at_least`:
    this many others suffice (not RLBFF's rule; for feedback so short that no two texts name every principle).
    `alone`: whether principles of a single annotator are accepted, which RLBFF does not specify. The test is per
    principle, not a clique test: a supporting principle may itself be dropped.
    """
    other_annotators = len(vectors) - 1
    needed = other_annotators if at_least is None else min(at_least, other_annotators)
    tests: list[list[ConsensusTest]] = []
    for a, mine in enumerate(vectors):
        rows = []
        for i in range(len(mine)):
            agreeing = sum(
                _best(mine[i], theirs, answers[a][i] if answers else None, answers[b] if answers else None) > threshold
                for b, theirs in enumerate(vectors)
                if b != a
            )
            rows.append(ConsensusTest(agreeing >= needed if other_annotators else alone, agreeing, other_annotators))
        tests.append(rows)
    return tests


def merge(vectors: npt.NDArray[np.float32], *, threshold: float = 0.8) -> list[int]:
    """For each row the index of its representative, possibly itself. Rows are in order of preference: each joins the
    first representative whose cosine is above `threshold`."""
    representatives: list[int] = []
    representative_of: list[int] = []
    for i in range(len(vectors)):
        representative = next((s for s in representatives if float(vectors[i] @ vectors[s]) > threshold), i)
        representative_of.append(representative)
        if representative == i:
            representatives.append(i)
    return representative_of


def _best(
    mine: npt.NDArray[np.float32], theirs: npt.NDArray[np.float32], answer: str | None, answers: Sequence[str] | None
) -> float:
    """The highest cosine to another annotator's principles; -1 without any that counts."""
    if answers is not None:
        theirs = theirs[[i for i, other_answer in enumerate(answers) if other_answer == answer]]
    return float((theirs @ mine).max()) if len(theirs) else -1.0
