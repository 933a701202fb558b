"""Metrics of scored pairs: accuracy under a stated tie policy, baselines, length correlation.

Covers: numbers over arrays of rewards. Leaves out: scoring (`evaluation/pairs.py`), probabilities
(`calibration/measures.py`), intervals (`assay.statistics.intervals`).

Accuracy by slice of an evaluation set: source, category, length, longer side, label's margin. With an
interval and the length baseline.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from assay.domain import Comparison, PreferencePair, response_text
from assay.errors import BadInputError
from assay.statistics.intervals import Interval, share_interval, wilson
from assay_rm_training.data.encoded_dataset import Tags

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
    lengths = [[len(response_text(side)) for side in (p.chosen, p.rejected)] for p in pairs]
    return float(outcomes([a for a, _ in lengths], [b for _, b in lengths])[0].mean())


def majority_baseline(pairs: Sequence[PreferencePair]) -> float:
    """Accuracy of always answering the more frequent of A and B in canonical (content-hash) order: about 1/2."""
    second = sum(Comparison.of(p.prompt, p.chosen, p.rejected)[1] for p in pairs)
    return max(second, len(pairs) - second) / len(pairs)


def length_correlation(rewards: Sequence[float], lengths: Sequence[int]) -> float | None:
    """Pearson correlation of reward and response length over responses; None where either does not vary."""
    if len(rewards) < 2 or np.ptp(rewards) == 0 or np.ptp(lengths) == 0:
        return None
    return float(np.corrcoef(rewards, lengths)[0, 1])


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
    interval: Interval | None  #: by prompt; None: undetermined
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
                accuracy = float(right[members].mean())
                interval = share_interval(right[members], [tags[member].prompt for member in members])
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
