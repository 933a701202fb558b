"""Measuring length bias: correlations, and accuracy by which side is longer, each with its interval.

Covers: numbers over scored pairs. Leaves out: corrections (`fit.py`), scoring.

A model may rightly prefer longer answers where annotators do, so measures are given relative to the labels: the partial
correlation controls for the label, and the win share of the longer side is given for both.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from assay.errors import BadInputError
from assay.statistics.intervals import (
    Interval,
    clustered_correlation,
    clustered_slope,
    share_interval,
    within_groups,
)

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """A figure with its 95 % interval by prompt, None where it is undetermined, of `pairs` pairs."""

    value: float
    interval: Interval | None
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
) -> LengthBias:
    """Rewards and lengths of the chosen [N] and of the rejected [N] sides; `groups` [N]: prompt ids.

    Raises BadInputError for no pairs.
    """
    (rc, rr), (lc, lr) = rewards, lengths
    if not len(rc):
        raise BadInputError("no scored pairs to measure length bias on")
    sides = [*groups, *groups]
    reward, length = np.concatenate([rc, rr]), np.concatenate([lc, lr])
    label = np.repeat([1.0, 0.0], len(rc))
    (r, n, of_label), _ = within_groups((reward, length, label), sides)
    right = rc > rr
    longer_preferred = np.where(lc > lr, right, rr > rc)

    def share(outcomes: npt.NDArray[np.bool_], rows: npt.NDArray[np.bool_]) -> Estimate | None:
        if not rows.any():
            return None
        values = outcomes[rows].astype(float)
        interval = share_interval(values, [group for group, used in zip(groups, rows, strict=True) if used])
        return Estimate(float(values.mean()), interval, len(values))

    return LengthBias(
        unit=unit,
        pairs=len(rc),
        overall=correlation_estimate(reward, length, sides, len(rc)),
        within_prompt=correlation_estimate(r, n, sides, len(rc)),
        given_label=correlation_estimate(residual(r, of_label), residual(n, of_label), sides, len(rc)),
        slope=slope_estimate(reward, length, sides, len(rc)),
        chosen_longer=share(right, lc > lr),
        chosen_shorter=share(right, lc < lr),
        equal=share(right, lc == lr),
        longer_wins=share(longer_preferred, lc != lr),
        longer_chosen=share(lc > lr, lc != lr),
    )


def correlation_estimate(reward: Floats, length: Floats, groups: Sequence[str], count: int) -> Estimate | None:
    """Pearson's correlation [N, N], None where either does not vary; `count`: what the estimate is said to be of."""
    value = correlation(reward, length)
    return None if value is None else Estimate(value, clustered_correlation(reward, length, groups), count)


def slope_estimate(reward: Floats, length: Floats, groups: Sequence[str], count: int) -> Estimate | None:
    """Reward per 100 units of length within groups [N]; None where no length varies within one."""
    (r, n), _ = within_groups((reward, length), groups)
    square = float(n @ n)
    if square <= 0:
        return None
    interval = clustered_slope(length / 100, reward, groups)
    return Estimate(100.0 * float(r @ n) / square, interval, count)


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
