"""Sums of reward parts by name: with weights, or projected on a direction.

Leaves out: sums whose weights move with training, gates and the like on a whole step (the other compositions here);
compositions that a server makes (`assay_serving.composition`).

Directional preference: several rewards projected on a direction that the user chooses. Source: "Arithmetic Control of
LLMs for Diverse User Preferences: Directional Preference Alignment with Multi-Objective Rewards", arXiv 2402.18571. The
direction is of unit length, else the reward's scale would change with it. Leaves out: sampling directions and showing
them to the policy (`contexts.direction`).
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import field

import torch
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.settings import Finite, RecipeSettings


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


class Composition(RecipeSettings, section="reward"):
    """reward = sum of weight x part. No weights given: every part counts once.

    A part of weight 0 is recorded and not counted, so it may be missing; a counted one that is missing makes the
    reward missing.
    """

    weights: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, weight in self.weights.items():
            if not math.isfinite(weight):
                raise BadInputError(f"weight of {name!r} must be finite, not {weight}", field="reward.weights")

    def __call__(self, parts: Mapping[str, Tensor]) -> Tensor:
        """[B] float64. Raises BadInputError for a weight whose part no source gives."""
        weights = self.weights or dict.fromkeys(parts, 1.0)
        values = {name: named_part(parts, name, field="reward.weights") for name in weights}
        counted = [weight * values[name] for name, weight in weights.items() if weight != 0]
        if not counted:
            raise BadInputError("every reward part has weight 0", field="reward.weights")
        return torch.stack(counted).sum(0)


def direction(degrees: float) -> tuple[float, float]:
    """(cos, sin): how much the first and the second attribute count."""
    return math.cos(math.radians(degrees)), math.sin(math.radians(degrees))


def direction_text(degrees: float) -> tuple[int, int]:
    """The two whole numbers by which a prompt states the direction: 100 times its components."""
    first, second = direction(degrees)
    return round(100 * first), round(100 * second)


class Directional(RecipeSettings, section="reward"):
    """S3: cos(t) first + sin(t) second. t is `degrees`, or each row's own, from the part `degrees_part` (a row without
    one is missing)."""

    first: str = "helpfulness"
    second: str = "verbosity"
    degrees: Finite = -15.0
    degrees_part: str | None = None

    def __call__(self, parts: Mapping[str, Tensor]) -> Tensor:
        first, second = named_part(parts, self.first), named_part(parts, self.second)
        if self.degrees_part is None:
            c, s = direction(self.degrees)
            return c * first + s * second
        angle = torch.deg2rad(named_part(parts, self.degrees_part))
        return angle.cos() * first + angle.sin() * second
