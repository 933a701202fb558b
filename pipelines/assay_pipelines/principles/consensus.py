"""Which principles annotators share, and which of them say the same (RLBFF, steps 5 and 6).

Covers: `consensus`, the test of every principle of one annotator against every other annotator of the response;
`merge`, one of each group of equal meaning. Vectors have length 1. Leaves out: where vectors and items come from
(`assay_pipelines.principles.filtering`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class ConsensusTest:
    """What the test says of one principle. `agreeing`: how many of the `other_annotators` have one near enough."""

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
    """For each annotator and each of their principles: has EVERY other annotator one whose cosine is above `threshold`?

    `vectors`: one [principles, dimension] matrix an annotator; an annotator without any still has to agree, so nothing
    of the others is kept. `answers`: with it the matching principle must have the same answer (our reading: RLBFF does
    not say what it does with annotators who agree on the principle and not on its fulfilment). `at_least`: so many
    others are enough, in place of every one (not RLBFF's rule; for feedback so short that no two texts name all).
    `alone`: whether what a single annotator says is kept; the rule says nothing of it. The test is per principle and no
    clique test: what supports a principle may itself be dropped.
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
    """For each row the index of the one that stands for it (itself, if it stands). Rows in order of preference: each
    joins the first standing one whose cosine is above `threshold`."""
    standing: list[int] = []
    stands_for: list[int] = []
    for i in range(len(vectors)):
        representative = next((s for s in standing if float(vectors[i] @ vectors[s]) > threshold), i)
        stands_for.append(representative)
        if representative == i:
            standing.append(i)
    return stands_for


def _best(
    mine: npt.NDArray[np.float32], theirs: npt.NDArray[np.float32], answer: str | None, answers: Sequence[str] | None
) -> float:
    """The highest cosine to another annotator's principles; -1 without any that counts."""
    if answers is not None:
        theirs = theirs[[i for i, other_answer in enumerate(answers) if other_answer == answer]]
    return float((theirs @ mine).max()) if len(theirs) else -1.0
