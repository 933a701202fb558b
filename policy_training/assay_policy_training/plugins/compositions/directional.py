"""Directional preference: several rewards projected on a direction that the user chooses.

Source: "Arithmetic Control of LLMs for Diverse User Preferences: Directional Preference Alignment with Multi-Objective
Rewards", arXiv 2402.18571. The direction is of unit length, else the reward's scale would change with it. Leaves out:
sampling directions and showing them to the policy (`contexts.direction`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from assay_policy_training.core.settings import Finite, RecipeSettings
from assay_policy_training.plugins.compositions.named import named_part


def direction(degrees: float) -> tuple[float, float]:
    """(cos, sin): how much the first and the second attribute count."""
    return math.cos(math.radians(degrees)), math.sin(math.radians(degrees))


def direction_text(degrees: float) -> tuple[int, int]:
    """The two whole numbers by which a prompt states the direction: 100 times its components."""
    first, second = direction(degrees)
    return round(100 * first), round(100 * second)


@dataclass(frozen=True)
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
