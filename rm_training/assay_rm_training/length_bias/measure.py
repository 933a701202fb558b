"""Measuring length bias: correlations, and accuracy by which side is longer, each with its interval.

Covers: numbers over scored pairs. Leaves out: corrections (`fit.py`), scoring.

A model may rightly prefer longer answers where annotators do, so measures are given relative to the labels: the partial
correlation controls for the label, and the win share of the longer side is given for both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from assay.errors import BadInputError
from assay.statistics.intervals import Interval, wilson

Floats = npt.NDArray[np.float64]
RESAMPLES = 400


@dataclass(frozen=True)
class Estimate:
    """A figure with its 95 % interval, by bootstrap over prompts or Wilson's, of `pairs` pairs."""

    value: float
    interval: Interval
    pairs: int


@dataclass(frozen=True)
class LengthBias:
    """None where a measure is undefined: nothing varies, or no pair is of that kind.

    `overall`, `within_prompt`, `given_label`: Pearson's correlation of reward and length over responses; within prompts
    (each prompt's means subtracted); and partial given the label, within prompts. `slope`: reward per 100 units of
    length, within prompts. `chosen_longer`, `chosen_shorter`, `equal`: accuracy of the pairs of that kind, a tie wrong.
    `longer_wins`: share of pairs of unequal length whose longer side the model prefers; `longer_chosen`: whose longer
    side the label prefers.
    """

    unit: str
    pairs: int
    overall: Estimate | None
    within_prompt: Estimate | None
    given_label: Estimate | None
    slope: Estimate | None
    chosen_longer: Estimate | None
    chosen_shorter: Estimate | None
    equal: Estimate | None
    longer_wins: Estimate | None
    longer_chosen: Estimate | None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def length_bias(
    rewards: tuple[Floats, Floats],
    lengths: tuple[Floats, Floats],
    groups: Sequence[str],
    *,
    unit: str = "tokens",
    seed: int = 0,
) -> LengthBias:
    """Rewards and lengths of the chosen [N] and of the rejected [N] sides; `groups` [N]: prompt ids.

    Raises BadInputError for no pairs.
    """
    (rc, rr), (lc, lr) = rewards, lengths
    if not len(rc):
        raise BadInputError("no scored pairs to measure length bias on")
    _, member = np.unique(np.asarray(groups), return_inverse=True)
    parts = np.split(np.argsort(member, kind="stable"), np.cumsum(np.bincount(member))[:-1])
    rng = np.random.default_rng(seed)
    draws = [rng.integers(len(parts), size=len(parts)) for _ in range(RESAMPLES)]

    def estimate(figure: Callable[[npt.NDArray[np.intp]], float | None]) -> Estimate | None:
        value = figure(np.arange(len(rc)))
        if value is None:
            return None
        resampled = [figure(np.concatenate([parts[i] for i in draw])) for draw in draws]
        finite = [x for x in resampled if x is not None]
        low, high = np.quantile(finite, [0.025, 0.975]) if finite else (value, value)
        return Estimate(value, Interval(float(low), float(high)), len(rc))

    def centred(rows: npt.NDArray[np.intp]) -> tuple[Floats, Floats, Floats]:
        """Reward, length and label (1 chosen, 0 rejected) of both sides, each prompt's mean taken off."""
        where = np.concatenate([member[rows], member[rows]])
        columns = (
            np.concatenate([rc[rows], rr[rows]]),
            np.concatenate([lc[rows], lr[rows]]),
            np.concatenate([np.ones(len(rows)), np.zeros(len(rows))]),
        )
        size = np.maximum(np.bincount(where), 1)
        r, length, label = (c - (np.bincount(where, weights=c) / size)[where] for c in columns)
        return r, length, label

    def partial(rows: npt.NDArray[np.intp]) -> float | None:
        r, length, label = centred(rows)
        return correlation(residual(r, label), residual(length, label))

    def slope(rows: npt.NDArray[np.intp]) -> float | None:
        r, length, _ = centred(rows)
        square = float(length @ length)
        return 100.0 * float(r @ length) / square if square > 0 else None

    right = rc > rr
    longer_preferred = np.where(lc > lr, right, rr > rc)
    return LengthBias(
        unit=unit,
        pairs=len(rc),
        overall=estimate(
            lambda rows: correlation(np.concatenate([rc[rows], rr[rows]]), np.concatenate([lc[rows], lr[rows]]))
        ),
        within_prompt=estimate(lambda rows: correlation(*centred(rows)[:2])),
        given_label=estimate(partial),
        slope=estimate(slope),
        chosen_longer=_share(right[lc > lr]),
        chosen_shorter=_share(right[lc < lr]),
        equal=_share(right[lc == lr]),
        longer_wins=_share(longer_preferred[lc != lr]),
        longer_chosen=_share((lc > lr)[lc != lr]),
    )


def correlation(x: Floats, y: Floats) -> float | None:
    """Pearson's; None where either does not vary."""
    x, y = x - x.mean(), y - y.mean()
    size = float(np.sqrt((x @ x) * (y @ y)))
    return float(x @ y) / size if size > 1e-12 * max(1.0, len(x)) else None


def residual(y: Floats, x: Floats) -> Floats:
    """Residual of y after linear regression on x."""
    x = x - x.mean()
    square = float(x @ x)
    return np.asarray(y - y.mean() - (x * (float(x @ y) / square) if square > 0 else 0.0))


def _share(outcomes: npt.NDArray[np.bool_]) -> Estimate | None:
    if not len(outcomes):
        return None
    return Estimate(float(outcomes.mean()), wilson(float(outcomes.sum()), len(outcomes)), len(outcomes))
