"""Ranking accuracy of a principle model on pairs of responses that fulfil and violate the same principle.

Covers: making the pairs from judged rows, their accuracy, pooled and per principle, beside the length baseline. Leaves
out: scoring, the benchmark of such pairs (`benchmarks/protocols/principlebench.py`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from assay.statistics.intervals import Interval, share_interval
from assay_rm_training.data.principle_rows import PrincipleRow, principle_key, prompt_key


class OppositePair(NamedTuple):
    """Numbers of two rows with the same prompt and principle: one fulfils it, the other does not."""

    satisfying: int
    violating: int
    principle: str
    prompt: str
    longer: float  #: 1.0 where the satisfying response has more characters


@dataclass(frozen=True)
class OppositePairs:
    """Accuracy of ranking the satisfying response higher; a tie is wrong. `principle_mean`: unweighted over principles;
    `interval`: of the pooled accuracy, by prompt; None: undetermined, too few prompts."""

    pairs: int
    accuracy: float
    interval: Interval | None
    principle_mean: float
    principles: int
    length_baseline: float
    by_principle: dict[str, tuple[int, float]]  #: principle -> (pairs, accuracy)


def opposite_pairs(rows: Sequence[PrincipleRow]) -> list[OppositePair]:
    """Every pair of a fulfilling and a violating response to one prompt under one principle, in the rows' order."""
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    for number, row in enumerate(rows):
        groups[prompt_key(row.prompt), principle_key(row.principle)].append(number)
    pairs = []
    for (prompt, _), members in groups.items():
        principle = rows[members[0]].principle
        for yes in (n for n in members if rows[n].fulfilled):
            for no in (n for n in members if not rows[n].fulfilled and rows[n].response != rows[yes].response):
                longer = float(len(rows[yes].response) > len(rows[no].response))
                pairs.append(OppositePair(yes, no, principle, prompt, longer))
    return pairs


def pair_figures(pairs: Sequence[OppositePair], rewards: Sequence[float], *, seed: int = 0) -> OppositePairs | None:
    """Figures of one reward a row [rows]; None where there is no pair."""
    if not pairs:
        return None
    right = [float(rewards[pair.satisfying] > rewards[pair.violating]) for pair in pairs]
    names = {principle_key(pair.principle): pair.principle for pair in reversed(pairs)}
    of: dict[str, list[float]] = defaultdict(list)
    for pair, value in zip(pairs, right, strict=True):
        of[principle_key(pair.principle)].append(value)
    return OppositePairs(
        pairs=len(pairs),
        accuracy=float(np.mean(right)),
        interval=share_interval(right, [pair.prompt for pair in pairs]),
        principle_mean=float(np.mean([np.mean(values) for values in of.values()])),
        principles=len(of),
        length_baseline=float(np.mean([pair.longer for pair in pairs])),
        by_principle={names[key]: (len(values), float(np.mean(values))) for key, values in of.items()},
    )
