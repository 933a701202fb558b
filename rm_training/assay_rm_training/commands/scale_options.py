"""Options of `assay train ...` beyond the everyday ones: published settings, several processes, choosing a step.

Leaves out: the everyday options and the run (`training_options.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import typer

from assay_rm_training.presets import PRESETS


class ScaleSettings(NamedTuple):
    """`settings`: fields of `TrainingConfig`; `final_data`: what is evaluated on at the end."""

    settings: dict[str, Any]
    preset: str | None
    final_data: str | None


def scale_options(
    preset: Annotated[
        str | None,
        typer.Option(help=f"Published settings: {', '.join(PRESETS)}. Options given beside it win."),
    ] = None,
    min_lr_ratio: Annotated[float, typer.Option(help="What a falling schedule falls to, share of --lr.")] = 0.0,
    decay_ratio: Annotated[float, typer.Option(help="Share of the steps in which wsd falls.")] = 0.2,
    batch_start: Annotated[int, typer.Option(help="First batch size, growing to --batch-size; 0 = no growth.")] = 0,
    batch_ramp_ratio: Annotated[float, typer.Option(help="Share of the run over which batches grow.")] = 0.1,
    optimizer: Annotated[str, typer.Option(help="adamw or adafactor.")] = "adamw",
    betas: Annotated[str, typer.Option(help="AdamW's two, with a comma.")] = "0.9,0.98",
    eps: Annotated[float, typer.Option(help="AdamW's.")] = 1e-10,
    gradient_checkpointing: Annotated[
        bool, typer.Option("--gradient-checkpointing", help="Less memory, about a third more work, same gradients.")
    ] = False,
    parallel: Annotated[
        str, typer.Option(help="Under torchrun: ddp (copies) or fsdp (shares of the model); auto = ddp.")
    ] = "auto",
    keep: Annotated[
        str, typer.Option(help="End with the last step's weights, or the best evaluation's: best.")
    ] = "last",
    metric: Annotated[str, typer.Option(help="What --keep best and --patience go by: nll or accuracy.")] = "nll",
    patience: Annotated[int, typer.Option(help="Stop after so many evaluations without a better one; 0 = never.")] = 0,
    final_data: Annotated[
        str | None, typer.Option(help="Evaluate at the end on this instead of --eval-data, which steps are chosen by.")
    ] = None,
    update_norm: Annotated[
        bool, typer.Option("--update-norm", help="Measure how far each step moves the weights.")
    ] = False,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Also write TensorBoard events to the run.")
    ] = False,
) -> ScaleSettings:
    """Raises BadInputError for betas that are not two numbers."""
    from assay.errors import BadInputError

    try:
        first, second = (float(part) for part in betas.split(","))
    except ValueError as error:
        raise BadInputError(f"--betas takes two numbers with a comma, not {betas!r}") from error
    settings = {
        "min_lr_ratio": min_lr_ratio,
        "decay_ratio": decay_ratio,
        "batch_start": batch_start,
        "batch_ramp_ratio": batch_ramp_ratio,
        "optimizer": optimizer,
        "betas": (first, second),
        "eps": eps,
        "gradient_checkpointing": gradient_checkpointing,
        "parallel": parallel,
        "keep": keep,
        "metric": metric,
        "patience": patience,
        "preset": preset,
        "update_norm": update_norm,
        "tensorboard": tensorboard,
    }
    return ScaleSettings(settings, preset, final_data)


def with_preset(scale: ScaleSettings, is_given: Callable[[str], bool]) -> dict[str, Any]:
    """The settings, those of the preset among them where the command line says nothing else."""
    if scale.preset is None:
        return scale.settings
    from assay_rm_training.presets import preset

    settings = {name: value for name, value in preset(scale.preset).settings.items() if not is_given(name)}
    return scale.settings | settings
