"""`assay length-bias`: measure length bias, and fit a named correction that the model keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli.options import DeviceOption, JsonOption, WorkspaceOption, emit
from assay.system.plurals import counted
from assay_rm_training.commands.run_options import LimitOption
from assay_serving.commands.engine_options import AllowFailedParityOption

if TYPE_CHECKING:
    from assay_rm_training.length_bias.run import LengthBiasRun


def register(app: typer.Typer) -> None:
    """Add the command `length-bias`."""
    app.command("length-bias")(bias)


def bias(
    model: Annotated[
        str, typer.Option(help="Reward model: a name or id of the workspace, a folder, a hub id, a server's URL.")
    ],
    data: Annotated[str, typer.Option(help="Pairs: a snapshot of the workspace, or a file.")],
    fit: Annotated[
        str | None,
        typer.Option(help="Also fit a correction: linear, lowess or penalty (fixed numbers).", show_default=False),
    ] = None,
    write: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Keep it in the model's spec; used by --correct NAME.", show_default=False),
    ] = None,
    mixing: Annotated[float, typer.Option(help="Share of the fitted curve subtracted, 0 to 1.")] = 1.0,
    per_category: Annotated[
        bool, typer.Option("--per-category", help="A curve for each category with 50 responses or more.")
    ] = False,
    rate: Annotated[float, typer.Option(help="Of the penalty, per unit of length.")] = 0.01,
    free: Annotated[float, typer.Option(help="Length without penalty.")] = 300.0,
    ceiling: Annotated[
        float | None, typer.Option(help="Cut rewards here before the penalty.", show_default=False)
    ] = None,
    unit: Annotated[str, typer.Option(help="Of length: tokens or characters.")] = "tokens",
    limit: LimitOption = 0,
    seed: Annotated[int, typer.Option(help="Of folds and bootstrap.")] = 0,
    allow_failed_parity: AllowFailedParityOption = False,
    device: DeviceOption = "auto",
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Report how rewards follow length; fit a correction and measure it on prompts left out of the fit.

    No correction is applied by default: `assay score`, `serve` and `eval` apply it with `--correct NAME`.

    Example: `assay length-bias --model helpful --data gold-holdout --fit linear --write shorter`
    """
    from assay.errors import NotFoundError
    from assay.workspace import Workspace
    from assay_rm_training.length_bias.run import LengthBiasConfig, measure_length_bias

    here: Workspace | None = None
    try:
        here = Workspace.find(workspace)
    except NotFoundError:
        if workspace is not None:
            raise
    config = LengthBiasConfig(
        model,
        data,
        fit,  # type: ignore[arg-type]  # checked by the correction
        write,
        mixing,
        per_category,
        rate,
        free,
        ceiling,
        unit,  # type: ignore[arg-type]
        limit,
        seed,
        device,
        allow_failed_parity,
    )
    report = measure_length_bias(here, config)
    if as_json:
        emit(report.to_dict(), "", as_json=True)
    else:
        _show(report)


def _show(report: LengthBiasRun) -> None:
    from rich.console import Console
    from rich.table import Table

    from assay_rm_training.length_bias.run import figures, written

    pairs = counted(report.bias.pairs, "pair")
    title = f"{report.model}: {pairs}, {report.failed} could not be scored; length in {report.bias.unit}"
    table = Table("", "value", "95 %", "pairs", title=title, title_justify="left")
    for name, estimate in figures(report.bias):
        table.add_row(name, *written(estimate))
    Console().print(table)
    if report.correction is None or report.effect is None:
        return
    effect = report.effect
    form = f"{report.correction.form}, mixing {report.correction.mixing:g}"
    typer.echo(
        f"{form}, on {effect.folds} left-out parts of the prompts: accuracy {effect.before:.4f} before, "
        f"{effect.after:.4f} after, {effect.change:+.4f} ({effect.interval.low:+.4f} to {effect.interval.high:+.4f})"
    )
    if effect.bias_before.within_prompt is not None and effect.bias_after.within_prompt is not None:
        before, after = effect.bias_before.within_prompt.value, effect.bias_after.within_prompt.value
        typer.echo(f"correlation within prompts {before:.3f} before, {after:.3f} after")
    if len(effect.by_mixing) > 1:
        typer.echo("accuracy by mixing: " + ", ".join(f"{m:g} {a:.4f}" for m, a in effect.by_mixing.items()))
    if report.written is not None:
        typer.echo(
            f"kept as {report.correction.name!r} in {report.written}; use it with --correct {report.correction.name}"
        )
