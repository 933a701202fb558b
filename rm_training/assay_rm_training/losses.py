"""The pairwise objective under its former name; `assay_rm_training.objectives` holds it."""

from __future__ import annotations

from assay_rm_training.objectives import NAMES, Objective, PairLoss
from assay_rm_training.objectives.pair import bradley_terry
from assay_rm_training.objectives.regularisers import centring

__all__ = ["NAMES", "Objective", "PairLoss", "bradley_terry", "centring"]
