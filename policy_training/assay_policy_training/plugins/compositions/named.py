"""Parts by name, and their means over a step, for compositions that name several."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from assay.errors import BadInputError


def named_part(parts: Mapping[str, Tensor], name: str, *, field: str = "reward") -> Tensor:
    """[B] float64. Raises BadInputError for a part that no source gives; `field`: the key that names it."""
    if name not in parts:
        raise BadInputError(f"no reward part {name!r}; the sources give {', '.join(sorted(parts))}", field=field)
    return parts[name].double()


def part_mean(parts: Mapping[str, Tensor], name: str, *, field: str = "reward") -> float | None:
    """Mean over the rows that have it; None where none has. See `named_part`."""
    values = named_part(parts, name, field=field)
    present = values[~values.isnan()]
    return float(present.mean()) if len(present) else None


def weighted_sum(parts: Mapping[str, Tensor], weights: Mapping[str, float]) -> Tensor:
    """[B] sum of weight x part; a part of weight 0 may be missing."""
    counted = [weight * named_part(parts, name) for name, weight in weights.items() if weight != 0]
    if counted:
        return torch.stack(counted).sum(0)
    first = named_part(parts, next(iter(weights)))
    return torch.zeros_like(first)


def check_numbers(values: Mapping[str, float], what: str, *, section: str = "reward") -> None:
    """Raises BadInputError unless there is at least one and all are finite. `what`: the setting, of that section."""
    if not values:
        raise BadInputError("name at least one reward part", field=f"{section}.{what}")
    for name, value in values.items():
        if not math.isfinite(value):
            raise BadInputError(f"{name!r} must be finite, not {value}", field=f"{section}.{what}")


def check_positive(values: Iterable[tuple[str, float]], *, section: str = "reward") -> None:
    """Raises BadInputError naming the first setting that is not above 0."""
    for name, value in values:
        if not value > 0:
            raise BadInputError(f"must be above 0, not {value}", field=f"{section}.{name}")
