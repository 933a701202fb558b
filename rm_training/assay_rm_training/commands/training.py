"""`assay train bt`: train a scalar reward model on preference pairs. The other ways have modules of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from assay_rm_training.commands.generative import generative_rl, generative_sft
from assay_rm_training.commands.principle import principle
from assay_rm_training.commands.probe import probe
from assay_rm_training.commands.training_options import training_command

if TYPE_CHECKING:
    from assay_rm_training.methods import Method


def register(app: typer.Typer) -> None:
    """Add the group `train`."""
    group = typer.Typer(no_args_is_help=True, help="Train reward models.")
    group.command("bt")(training_command(bt))
    group.command("principle")(training_command(principle))
    group.command("probe")(probe)
    group.command("generative-sft")(training_command(generative_sft))
    group.command("generative-rl")(generative_rl)
    app.add_typer(group, name="train")


def bt(
    loss: Annotated[
        str, typer.Option(help="bradley_terry, focal, focal_internlm, hinge or margin_mse.")
    ] = "bradley_terry",
    centring: Annotated[float, typer.Option(help="Weight of (chosen + rejected)^2.")] = 0.01,
    label_smoothing: Annotated[float, typer.Option(help="Believed share of flipped labels, 0 to 0.5.")] = 0.0,
    margins: Annotated[bool, typer.Option("--margins", help="Use the pairs' margins in the loss.")] = False,
) -> Method:
    """Train a Bradley-Terry reward model; evaluate it, save it, prove that the saved one gives the same scores.

    Example: `assay train bt --data gold --eval-data gold-holdout --base smollm2 --name helpful`
    """
    from assay_rm_training.losses import Objective
    from assay_rm_training.pairwise import Pairwise

    return Pairwise(Objective(loss, label_smoothing=label_smoothing, centring=centring, use_margin=margins))
