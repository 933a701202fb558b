"""Metrics of scored pairs: accuracy under a stated tie policy, baselines, length correlation.

Covers: numbers over arrays of rewards. Leaves out: scoring (`evaluation/pairs.py`), probabilities
(`calibration/measures.py`), intervals (`assay.statistics.intervals`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from assay.domain import Comparison, PreferencePair
from assay.errors import BadInputError
from assay.statistics.intervals import Interval, share_interval, wilson

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Accuracy:
    """Share of pairs whose chosen side has the higher reward. A tie is wrong; `half_credit` counts it 1/2."""

    value: float
    half_credit: float
    ties: int
    pairs: int
    wilson: Interval
    interval: Interval | None  #: over groups of pairs that share a prompt; None: undetermined, too few of them
    groups: int


def outcomes(chosen: Sequence[float] | Floats, rejected: Sequence[float] | Floats) -> tuple[Floats, Floats]:
    """Per pair [N]: 1.0 where correct (a tie is wrong), and the same with 1/2 for a tie. Compare float32 rewards."""
    d = np.asarray(chosen, dtype=float) - np.asarray(rejected, dtype=float)
    strict = (d > 0).astype(float)
    return strict, strict + 0.5 * (d == 0)


def pair_accuracy(
    chosen: Sequence[float] | Floats,
    rejected: Sequence[float] | Floats,
    groups: Sequence[str],
    *,
    seed: int = 0,
) -> Accuracy:
    """Rewards [N] and [N] with each pair's group (prompt id). Raises BadInputError for no pairs."""
    strict, half = outcomes(chosen, rejected)
    if not len(strict):
        raise BadInputError("no scored pairs to take an accuracy of")
    return Accuracy(
        value=float(strict.mean()),
        half_credit=float(half.mean()),
        ties=round(2 * float((half - strict).sum())),
        pairs=len(strict),
        wilson=wilson(float(strict.sum()), len(strict)),
        interval=share_interval(strict.tolist(), groups),
        groups=len(set(groups)),
    )


def length_baseline(pairs: Sequence[PreferencePair]) -> float:
    """Accuracy of choosing the longer response (characters); equal length counts as wrong."""
    return float(outcomes([len(p.chosen) for p in pairs], [len(p.rejected) for p in pairs])[0].mean())


def majority_baseline(pairs: Sequence[PreferencePair]) -> float:
    """Accuracy of always answering the more frequent of A and B in canonical (content-hash) order: about 1/2."""
    second = sum(Comparison.of(p.prompt, p.chosen, p.rejected)[1] for p in pairs)
    return max(second, len(pairs) - second) / len(pairs)


def length_correlation(rewards: Sequence[float], lengths: Sequence[int]) -> float | None:
    """Pearson correlation of reward and response length over responses; None where either does not vary."""
    if len(rewards) < 2 or np.ptp(rewards) == 0 or np.ptp(lengths) == 0:
        return None
    return float(np.corrcoef(rewards, lengths)[0, 1])
