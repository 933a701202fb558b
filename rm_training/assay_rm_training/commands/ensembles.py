"""`assay ensemble`: combine reward models, with their disagreement as the uncertainty of scores."""

from __future__ import annotations

import typer

from assay.cli.options import JsonOption, WorkspaceOption, emit
from assay.cli.settings_options import settings_options
from assay.system.plurals import counted
from assay_rm_training.run_settings import EnsembleConfig


def register(app: typer.Typer) -> None:
    """Add the command `ensemble`."""
    app.command("ensemble")(ensemble)


@settings_options(EnsembleConfig)
def ensemble(config: EnsembleConfig, workspace: WorkspaceOption = None, as_json: JsonOption = False) -> None:
    """Bring reward models to one scale and combine them; serve, score and evaluate the result like any model.

    Example: `assay ensemble rm-seed0 rm-seed1 rm-seed2 --data gold --combine uwo --name rm-ensemble`
    """
    from rich.console import Console
    from rich.table import Table

    from assay.workspace import Workspace
    from assay_rm_training.runs.ensemble import build_ensemble

    trained = build_ensemble(Workspace.find(workspace), config)
    if as_json:
        emit(trained.to_dict(), "", as_json=True)
        return
    table = Table(
        "member",
        "mean",
        "std",
        "accuracy",
        "95 %",
        title=f"scale of {counted(trained.responses, 'response')} of {config.data}",
    )
    figures = list(trained.accuracies.values())
    for index, member in enumerate(trained.spec.members):
        table.add_row(config.members[index], f"{member.mean:.4g}", f"{member.std:.4g}", *_accuracy(figures, index))
    table.add_row(f"{trained.path.name} ({config.combine})", "", "", *_accuracy(figures, len(config.members)))
    Console().print(table)
    if trained.unsure:
        uncertainties = ", ".join(f"{value:.3f}" for value in trained.unsure)
        typer.echo(f"accuracy by thirds of the pairs, from the least uncertain: {uncertainties}")
    typer.echo(f"ensemble {trained.path} ({trained.artifact_id}), run {trained.run_id}")


def _accuracy(figures: list, index: int) -> tuple[str, str]:  # type: ignore[type-arg]
    from assay.statistics.intervals import interval_text

    if index >= len(figures):
        return "", ""
    accuracy = figures[index]
    return f"{accuracy.value:.4f}", interval_text(accuracy.interval)
