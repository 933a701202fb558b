"""Accuracy by slice of an evaluation set: source, category, length, longer side, label's margin.

Covers: the slices, their accuracy with an interval, the length baseline. Leaves out: the metrics of the full set
(`metrics.py`, `calibration/measures.py`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from assay.statistics.intervals import Interval, wilson
from assay_rm_training.data.encoded_dataset import Tags
from assay_rm_training.evaluation.metrics import outcomes

Floats = npt.NDArray[np.float64]

LENGTHS = (250, 1000, 4000)  #: edges of the length buckets, in characters of the longer response
_LEVELS = 5  #: label margins of at most so many values are slices as they are; more are cut at their quartiles


@dataclass(frozen=True)
class Slice:
    """Accuracy (a tie is wrong) of the scored pairs of one part; `length`: of choosing the longer; `margin`: mean
    chosen - rejected."""

    by: str
    name: str
    pairs: int
    accuracy: float
    wilson: Interval
    length: float
    margin: float


def slices(tags: Sequence[Tags], margins: Sequence[float] | Floats) -> tuple[Slice, ...]:
    """Of pairs [N] and their chosen - rejected [N]. Sources and categories come largest first, the rest in its order;
    a division with one part is left out."""
    d = np.asarray(margins, dtype=float)
    right = outcomes(d, np.zeros_like(d))[0]
    longer = np.array([tag.chosen > tag.rejected for tag in tags], dtype=float)
    parts_of_all: list[Slice] = []
    for by, (name_of, order) in _divisions(tags).items():
        parts: dict[str, list[int]] = defaultdict(list)
        for number, tag in enumerate(tags):
            if (name := name_of(tag)) is not None:
                parts[name].append(number)
        if len(parts) < 2:
            continue
        for name in order if order else sorted(parts, key=lambda part: (-len(parts[part]), part)):
            if members := parts.get(name):
                accuracy, interval = float(right[members].mean()), wilson(float(right[members].sum()), len(members))
                means = float(longer[members].mean()), float(d[members].mean())
                parts_of_all.append(Slice(by, name, len(members), accuracy, interval, *means))
    return tuple(parts_of_all)


def _divisions(tags: Sequence[Tags]) -> dict[str, tuple[Callable[[Tags], str | None], Sequence[str]]]:
    """Criterion -> (name of a pair's part, None for none; all names in order, or empty: largest first)."""
    lengths = _names([0, *LENGTHS], " characters")
    margin_name, margins = _margins([tag.margin for tag in tags if tag.margin is not None])
    return {
        "source": (lambda tag: tag.source, ()),
        "category": (lambda tag: tag.category, ()),
        "length": (lambda tag: lengths[int(np.searchsorted(LENGTHS, max(tag.chosen, tag.rejected), "right"))], lengths),
        "longer": (_longer, ("chosen is longer", "rejected is longer", "equal length")),
        "margin": (lambda tag: None if tag.margin is None else margin_name(tag.margin), margins),
    }


def _longer(tag: Tags) -> str:
    if tag.chosen == tag.rejected:
        return "equal length"
    return "chosen is longer" if tag.chosen > tag.rejected else "rejected is longer"


def _margins(margins: Sequence[float]) -> tuple[Callable[[float], str], list[str]]:
    """Name of a label's margin, and all names: the values themselves where they are few, else quarters of the pairs."""
    levels = sorted(set(margins))
    if len(levels) <= _LEVELS:
        return (lambda margin: f"{margin:g}"), [f"{level:g}" for level in levels]
    edges = np.unique(np.quantile(margins, [0, 0.25, 0.5, 0.75])).tolist()
    names = _names(edges, "")
    return (lambda margin: names[int(np.searchsorted(edges[1:], margin, "right"))]), names


def _names(edges: Sequence[float], unit: str) -> list[str]:
    """`0 to 250 characters`, ..., `4000 or more characters`: a value on an edge is in the upper part."""
    return [*(f"{low:g} to {high:g}{unit}" for low, high in pairwise(edges)), f"{edges[-1]:g} or more{unit}"]
