"""Parts by name, and their means over a step, for compositions that name several."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from assay.errors import BadInputError


def named_part(parts: Mapping[str, Tensor], name: str) -> Tensor:
    """[B] float64. Raises BadInputError for a part that no source gives."""
    if name not in parts:
        raise BadInputError(f"no reward part {name!r}; the sources give {', '.join(sorted(parts))}", field="reward")
    return parts[name].double()


def part_mean(parts: Mapping[str, Tensor], name: str) -> float | None:
    """Mean over the rows that have it; None where none has."""
    values = named_part(parts, name)
    present = values[~values.isnan()]
    return float(present.mean()) if len(present) else None


def weighted_sum(parts: Mapping[str, Tensor], weights: Mapping[str, float]) -> Tensor:
    """[B] sum of weight x part; a part of weight 0 may be missing."""
    counted = [weight * named_part(parts, name) for name, weight in weights.items() if weight != 0]
    if counted:
        return torch.stack(counted).sum(0)
    first = named_part(parts, next(iter(weights)))
    return torch.zeros_like(first)


def check_numbers(values: Mapping[str, float], what: str) -> None:
    """Raises BadInputError unless there is at least one and all are finite."""
    if not values:
        raise BadInputError("name at least one reward part", field=f"reward.{what}")
    for name, value in values.items():
        if not math.isfinite(value):
            raise BadInputError(f"{name!r} must be finite, not {value}", field=f"reward.{what}")


def check_positive(values: Iterable[tuple[str, float]]) -> None:
    """Raises BadInputError naming the first setting that is not above 0."""
    for name, value in values:
        if not value > 0:
            raise BadInputError(f"must be above 0, not {value}", field=f"reward.{name}")
