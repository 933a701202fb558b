"""Commands of reward-model training. Heavy imports happen inside the commands."""

from __future__ import annotations

import typer

from assay_rm_training.commands import (
    calibration,
    ensembles,
    evaluation,
    generative,
    merging,
    training,
    verification,
)
from assay_rm_training.length_bias import command as length_bias_command


def register(app: typer.Typer) -> None:
    """Add this part's commands to the application, one module per noun."""
    training.register(app)
    evaluation.register(app)
    generative.register(app)
    calibration.register(app)
    verification.register(app)
    ensembles.register(app)
    merging.register(app)
    length_bias_command.register(app)
