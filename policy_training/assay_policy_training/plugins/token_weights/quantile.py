"""Quantiles of any number of values (torch's own stops at 16 million)."""

from __future__ import annotations

from torch import Tensor


def quantile(values: Tensor, share: float, *, nearest: bool = False) -> float:
    """Of values [N], N >= 1: linear between the two neighbours, or the nearest of them."""
    ordered = values.double().sort().values
    position = share * (len(ordered) - 1)
    below = int(position)
    if nearest:
        return float(ordered[round(position)])
    above = min(below + 1, len(ordered) - 1)
    return float(ordered[below] + (position - below) * (ordered[above] - ordered[below]))
