"""`assay train bt`: train a scalar reward model on preference pairs. The other methods have their own modules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from assay_rm_training.commands.train.generative import generative_rl, generative_sft
from assay_rm_training.commands.train.method import method
from assay_rm_training.commands.train.objectives import grm, lists, odin, ratings, steps
from assay_rm_training.commands.train.options import training_command
from assay_rm_training.commands.train.principle import principle
from assay_rm_training.commands.train.probe import probe
from assay_rm_training.objectives.losses import LOSSES

if TYPE_CHECKING:
    from assay_rm_training.methods.method import Method


def register(app: typer.Typer) -> None:
    """Add the group `train`."""
    group = typer.Typer(no_args_is_help=True, help="Train reward models.")
    group.command("bt")(training_command(bt))
    group.command("odin")(training_command(odin))
    group.command("grm")(training_command(grm))
    group.command("lists")(training_command(lists))
    group.command("ratings")(training_command(ratings))
    group.command("steps")(training_command(steps))
    group.command("principle")(training_command(principle))
    group.command("probe")(probe)
    group.command("generative-sft")(training_command(generative_sft))
    group.command("generative-rl")(generative_rl)
    group.command("method")(training_command(method))
    app.add_typer(group, name="train")


def bt(
    loss: Annotated[
        str,
        typer.Option(help=f"{LOSSES.help()}. rao_kupper and davidson learn from ties."),
    ] = "bradley_terry",
    centring: Annotated[float, typer.Option(help="Weight of (chosen + rejected)^2.")] = 0.01,
    squares: Annotated[float, typer.Option(help="Weight of chosen^2 + rejected^2.")] = 0.0,
    bound: Annotated[float, typer.Option(help="Weight of the log-barrier that keeps rewards within +-5.")] = 0.0,
    temperature: Annotated[float, typer.Option(help="Divides the difference of the rewards.")] = 1.0,
    label_smoothing: Annotated[float, typer.Option(help="Believed share of flipped labels, 0 to 0.5.")] = 0.0,
    soft_labels: Annotated[
        bool, typer.Option("--soft-labels", help="Learn P(chosen wins) from the annotators' votes.")
    ] = False,
    vote_prior: Annotated[float, typer.Option(help="Of --soft-labels: votes added to each side; 0 = none.")] = 0.5,
    positive: Annotated[
        float, typer.Option(help="Weight of -log sigmoid(mean chosen reward of a batch); a second forward pass.")
    ] = 0.0,
    margins: Annotated[bool, typer.Option("--margins", help="Use the pairs' margins in the loss.")] = False,
) -> Method:
    """Train a Bradley-Terry reward model, evaluate it, save it, and check that the saved model gives the same scores.

    --loss rao_kupper and davidson learn from ties; other losses leave them out.

    Example: `assay train bt --data gold --eval-data gold-holdout --base smollm2 --name helpful`
    """
    from assay_rm_training.methods.bradley_terry import BradleyTerry
    from assay_rm_training.objectives.objective import Objective

    objective = Objective(
        loss,
        label_smoothing=label_smoothing,
        centring=centring,
        temperature=temperature,
        use_margin=margins,
        soft_labels=soft_labels,
        squares=squares,
        bound=bound,
    )
    return BradleyTerry(objective, vote_prior=vote_prior, positive=positive)
