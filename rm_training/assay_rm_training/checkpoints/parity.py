"""Parity checks: a checkpoint gives the same scores however they are computed.

Covers: comparing two lists of scores, the checks that any engine allows (batch of 1 = batch of N, the engine's other
code paths such as padding on the other side), the verdict for the spec. Works on any `Scorer`. Leaves out: saving and
reloading (`checkpoint.py`), checking existing checkpoints (`runs/verify.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from assay.models.spec import ParityCheck
from assay.runs.progress_bar import Advance, silent
from assay.score import Score, ScoreResult
from assay_serving.scorer import ReadInOtherWays, ScoreItem, Scorer

#: Largest allowed |difference| of two rewards: this + this * |reward|. Float32 sums in another order differ by about
#: 1e-6 a layer; a lost head, a wrong template or a lost adapter by far more than this.
TOLERANCE = 1e-4
SAMPLE = 32  # responses compared
SAVED = "saved = loaded"  # as trained, adapters and all
ALONE = "batch 1 = batch N"


@dataclass(frozen=True)
class Parity:
    """Outcome of comparing two lists of scores: `largest` |difference| over `compared` responses."""

    passed: bool
    largest: float
    compared: int
    detail: str = ""

    def as_check(self, name: str) -> ParityCheck:
        return ParityCheck(name, self.passed, self.largest, self.compared, self.detail)


def compare(before: Sequence[ScoreResult], after: Sequence[ScoreResult], *, tolerance: float = TOLERANCE) -> Parity:
    """Equal within `tolerance` (absolute and relative), and failing on the same items. `largest` is over all pairs,
    `detail` names the first that differs."""
    largest, compared, detail = 0.0, 0, ""
    for number, (first, second) in enumerate(zip(before, after, strict=True), start=1):
        if isinstance(first, Score) and isinstance(second, Score):
            compared += 1
            gap = abs(first.reward - second.reward)
            largest = max(largest, gap)
            if gap > tolerance + tolerance * abs(first.reward):
                detail = detail or f"response {number}: {first.reward:.6g} != {second.reward:.6g}"
        elif isinstance(first, Score) != isinstance(second, Score):
            detail = detail or f"response {number} is scored by one and fails in the other"
    if not compared:
        detail = detail or "no response of the sample could be scored"
    return Parity(not detail, largest, compared, detail)


def check_scorer(
    scorer: Scorer, sample: Sequence[ScoreItem], *, tolerance: float = TOLERANCE, advance: Advance = silent
) -> list[ParityCheck]:
    """Checks of one loaded model: single = batched, and every other code path of the engine gives the same scores.
    `advance` counts responses."""
    batched = scorer.score(sample, advance)
    single = [scorer.score([item], advance)[0] for item in sample]
    checks = [compare(batched, single, tolerance=tolerance).as_check(ALONE)]
    if isinstance(scorer, ReadInOtherWays):
        for name, other in scorer.other_ways():
            checks.append(compare(batched, other.score(sample, advance), tolerance=tolerance).as_check(name))
    return checks


def verdict(checks: Sequence[ParityCheck]) -> str:
    """The spec's `parity`: "passed", or "failed: " with the first failed check; "unchecked" without checks."""
    failed = next((check for check in checks if not check.passed), None)
    if failed is not None:
        return f"failed: {failed.detail} ({failed.name})"
    return "passed" if checks else "unchecked"
