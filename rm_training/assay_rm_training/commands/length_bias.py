"""`assay length-bias`: measure length bias, and fit a named correction that the model keeps."""

from typing import TYPE_CHECKING

import typer

from assay.cli.options import JsonOption, WorkspaceOption, emit
from assay.cli.settings_options import settings_options
from assay.system.plurals import counted
from assay_rm_training.run_settings import LengthBiasConfig

if TYPE_CHECKING:
    from assay_rm_training.length_bias.run import LengthBiasRun


@settings_options(LengthBiasConfig)
def bias(config: LengthBiasConfig, workspace: WorkspaceOption = None, as_json: JsonOption = False) -> None:
    """Report how rewards follow length; fit a correction and measure it on prompts left out of the fit.

    No correction is applied by default: `assay score`, `serve` and `eval` apply it with `--correct NAME`.

    Example: `assay length-bias --model helpful --data gold-holdout --fit linear --write shorter`
    """
    from assay.workspace import Workspace
    from assay_rm_training.length_bias.run import measure_length_bias

    report = measure_length_bias(Workspace.find_optional(workspace), config)
    if as_json:
        emit(report.to_dict(), "", as_json=True)
    else:
        _show(report)


def _show(report: "LengthBiasRun") -> None:
    from rich.console import Console
    from rich.table import Table

    from assay.statistics.intervals import interval_text
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
        f"{effect.after:.4f} after, {effect.change:+.4f} ({interval_text(effect.interval, '+.4f')})"
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
