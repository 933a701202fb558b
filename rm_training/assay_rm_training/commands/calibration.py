"""`assay calibrate`: fit probabilities of rewards, measured on pairs left out of the fit."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli.options import DeviceOption, JsonOption, WorkspaceOption, emit
from assay.system.plurals import counted
from assay_rm_training.commands.run_options import LimitOption
from assay_serving.commands.engine_options import AllowFailedParityOption, TokenBudgetOption

if TYPE_CHECKING:
    from assay_rm_training.calibration import CalibrationReport
    from assay_rm_training.runs.calibrate import CalibrationOutcome


def register(app: typer.Typer) -> None:
    """Add the command `calibrate`."""
    app.command("calibrate")(calibrate)


def calibrate(
    model: Annotated[
        str, typer.Option(help="Reward model: a name or id of the workspace, a folder, an ensemble's file.")
    ],
    data: Annotated[str, typer.Option(help="Gold pairs: a snapshot of the workspace, or a file.")],
    method: Annotated[
        str, typer.Option(help="temperature, platt, isotonic, or auto: the best cross-validated likelihood.")
    ] = "auto",
    folds: Annotated[int, typer.Option(help="Parts of the prompts that are left out in turn.")] = 5,
    correct: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Calibrate rewards under this length correction.", show_default=False),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the folds, the order of pairs and the bootstrap.")] = 0,
    limit: LimitOption = 0,
    device: DeviceOption = "auto",
    token_budget: TokenBudgetOption = None,
    allow_failed_parity: AllowFailedParityOption = False,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Fit P(first beats second) on gold pairs, write it to the model's spec, update stored scores.

    The figures before and after are of pairs left out of the fit, with 95 % intervals; the model's version stays.

    Example: `assay calibrate --model helpful --data gold-holdout`
    """
    from assay.errors import NotFoundError
    from assay.workspace import Workspace
    from assay_rm_training.runs.calibrate import CalibrationConfig, calibrate_model

    here: Workspace | None = None
    try:
        here = Workspace.find(workspace)
    except NotFoundError:
        if workspace is not None:
            raise
    config = CalibrationConfig(
        model,
        data,
        method,  # type: ignore[arg-type]  # checked by the fit
        folds,
        seed,
        limit,
        correct,
        device,
        token_budget,
        allow_failed_parity,
    )
    outcome = calibrate_model(here, config)
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


def _show(outcome: CalibrationOutcome) -> None:
    from rich.console import Console
    from rich.table import Table

    from assay_rm_training.calibration.plot import reliability_lines

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
    for name, label in (
        ("ece", "calibration error, 10 equal bins (a, b]"),
        ("ece_equal_mass", "calibration error, 10 bins of equal count"),
        ("brier", "Brier score"),
        ("nll", "negative log-likelihood"),
    ):
        table.add_row(label, _cell(fitted_result.before, name), _cell(fitted_result.after, name))
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


def _cell(report: CalibrationReport, name: str) -> str:
    value, interval = asdict(report)[name], report.intervals.get(name)
    return f"{value:.4f} ({interval.low:.4f} to {interval.high:.4f})" if interval else f"{value:.4f}"
