"""Commands of reward-model training. Heavy imports happen inside the commands."""

from __future__ import annotations

import typer

from assay_rm_training.commands import (
    calibration,
    ensembles,
    eval_judge,
    evaluation,
    length_bias,
    merging,
    verification,
)
from assay_rm_training.commands.train import group


def register(app: typer.Typer) -> None:
    """Add this part's commands to the application, one module per noun."""
    for module in (group, evaluation, eval_judge, calibration, verification, ensembles, merging, length_bias):
        module.register(app)
