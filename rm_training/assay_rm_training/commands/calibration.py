"""`assay calibrate`: fit probabilities of rewards, measured on pairs left out of the fit."""

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from assay.cli.options import JsonOption, WorkspaceOption, emit
from assay.cli.settings_options import settings_options
from assay.system.plurals import counted
from assay_rm_training.commands.train.options import WaiveOption
from assay_rm_training.run_settings import CalibrationConfig

if TYPE_CHECKING:
    from assay_rm_training.runs.calibrate import CalibrationOutcome


@settings_options(CalibrationConfig)
def calibrate(
    config: CalibrationConfig,
    waive_contamination: WaiveOption = None,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Fit P(first beats second) on gold pairs, write it to the model's spec, update stored scores.

    The figures before and after are of pairs left out of the fit, with 95 % intervals; the model's version stays.

    Example: `assay calibrate --model helpful --data gold-holdout`
    """
    from assay.workspace import Workspace
    from assay_rm_training.commands.train.options import waivers_of
    from assay_rm_training.runs.calibrate import calibrate_model

    outcome = calibrate_model(Workspace.find_optional(workspace), config, waivers=waivers_of(waive_contamination or []))
    if as_json:
        payload = {
            **outcome.calibrated.to_dict(),
            "model": outcome.model,
            "version": outcome.version,
            "pairs": outcome.pairs,
            "failures": outcome.failures,
            "written": str(outcome.written),
            "refreshed_scores": outcome.refreshed,
            "run_id": outcome.run_id,
            "trained_on": outcome.trained_on,
        }
        emit(payload, "", as_json=True)
    else:
        _show(outcome)


def _show(outcome: "CalibrationOutcome") -> None:
    from rich.console import Console
    from rich.table import Table

    from assay_rm_training.calibration.measures import MEASURES, measure_text, reliability_lines

    fitted_result = outcome.calibrated
    fitted = fitted_result.calibration
    typer.echo(
        f"{outcome.model}: {fitted.describe()}, by {fitted_result.chosen_by}, on {counted(outcome.pairs, 'pair')} of "
        f"{fitted.fitted_on}"
    )
    if outcome.trained_on:
        typer.echo("note: the model was trained on these pairs: its probabilities will be overconfident on others")
    if outcome.failures:
        typer.echo("left out: " + ", ".join(f"{n} ({code})" for code, n in outcome.failures.items()))
    if len(fitted_result.nll) > 1:
        typer.echo(
            "NLL on left-out folds: " + ", ".join(f"{name} {nll:.4f}" for name, nll in fitted_result.nll.items())
        )
    table = Table(
        "", "before", "after", title=f"on {fitted_result.folds} left-out folds by prompt (95 %)", title_justify="left"
    )
    before, after = asdict(fitted_result.before), asdict(fitted_result.after)
    for name, label in MEASURES.items():
        table.add_row(label, measure_text(before, name), measure_text(after, name))
    Console().print(table)
    for title, report in (("before", fitted_result.before), ("after", fitted_result.after)):
        typer.echo(f"reliability {title}: | said, o won, * both")
        for line in reliability_lines(report.bins):
            typer.echo(f"  {line}")
    typer.echo(f"calibration {fitted.id} written to {outcome.written}")
    if outcome.refreshed:
        typer.echo(f"{counted(outcome.refreshed, 'stored score')} took its probability")
    if outcome.run_id is not None:
        typer.echo(f"drawn: assay report {outcome.run_id}")
