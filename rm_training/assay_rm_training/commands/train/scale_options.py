"""Further options of `assay train ...`: presets, parallelism, early stopping. Leaves out: the main options and the run
(`options.py`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import typer

from assay_rm_training.presets import PRESETS


class ScaleSettings(NamedTuple):
    """`settings`: fields of `TrainingConfig`; `final_data`: data of the final evaluation."""

    settings: dict[str, Any]
    preset: str | None
    final_data: str | None


def scale_options(
    preset: Annotated[
        str | None,
        typer.Option(help=f"Published settings: {', '.join(PRESETS)}. Explicit options override them."),
    ] = None,
    min_lr_ratio: Annotated[float, typer.Option(help="Final rate of a decaying schedule, as a share of --lr.")] = 0.0,
    decay_ratio: Annotated[float, typer.Option(help="Share of the steps in which wsd decays.")] = 0.2,
    batch_start: Annotated[int, typer.Option(help="First batch size, growing to --batch-size; 0 = no growth.")] = 0,
    batch_ramp_ratio: Annotated[float, typer.Option(help="Share of the run over which batches grow.")] = 0.1,
    optimizer: Annotated[str, typer.Option(help="adamw or adafactor.")] = "adamw",
    betas: Annotated[str, typer.Option(help="AdamW's betas, comma separated.")] = "0.9,0.98",
    eps: Annotated[float, typer.Option(help="AdamW's.")] = 1e-10,
    gradient_checkpointing: Annotated[
        bool, typer.Option("--gradient-checkpointing", help="Less memory, about a third more work, same gradients.")
    ] = False,
    parallel: Annotated[str, typer.Option(help="Under torchrun: ddp or fsdp; auto = ddp.")] = "auto",
    keep: Annotated[
        str, typer.Option(help="last or best: weights of the last step, or of the best evaluation.")
    ] = "last",
    metric: Annotated[str, typer.Option(help="Metric of --keep best and --patience: nll or accuracy.")] = "nll",
    patience: Annotated[int, typer.Option(help="Stop after this many evaluations without improvement; 0 = never.")] = 0,
    final_data: Annotated[
        str | None, typer.Option(help="Data of the final evaluation instead of --eval-data, by which steps are chosen.")
    ] = None,
    update_norm: Annotated[bool, typer.Option("--update-norm", help="Record the norm of each update.")] = False,
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
    """The settings, with the preset's where the command line does not set them."""
    if scale.preset is None:
        return scale.settings
    from assay_rm_training.presets import preset

    settings = {name: value for name, value in preset(scale.preset).settings.items() if not is_given(name)}
    return scale.settings | settings
