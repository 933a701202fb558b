"""Objectives of scalar reward models: small pure functions, each with its formula, source, oracle and gradient check.

`pair` (Bradley-Terry and its variants), `ties`, `lists`, `regression`, `steps`, `regularisers`, `soft_labels`; and
`objective.Objective`, the frozen description of a pairwise loss that training reads.
"""

from __future__ import annotations

from assay_rm_training.objectives.objective import NAMES, Objective, PairLoss

__all__ = ["NAMES", "Objective", "PairLoss"]
