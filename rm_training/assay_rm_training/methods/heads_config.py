"""Settings of an ensemble of heads, each declared once for whoever fits one. Imports nothing heavy.

Leaves out: fitting, and what the methods are (`head_ensemble.py`).
"""

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Lt

from assay.settings import CheckedSettings, Help

HeadsMethod = Annotated[Literal["bootstrap", "laplace", "prior"], Help("How the heads come to differ.")]
Members = Annotated[int, Ge(2), Help("Heads.")]
HeadsPenalty = Annotated[float | None, Gt(0), Lt(math.inf), Help("Penalty; by cross-validation without one.")]


@dataclass(frozen=True)
class HeadsConfig(CheckedSettings):
    """`l2`: for features of deviation 1, as in `ProbeConfig`; None: chosen by cross-validation over prompts."""

    method: HeadsMethod = "laplace"
    members: Members = 8
    l2: HeadsPenalty = None
    seed: Annotated[int, Ge(0), Help("Of the draws.")] = 0
