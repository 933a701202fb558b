"""`assay ensemble` and `assay merge`: one reward model from several, by their scores or their weights."""

import typer

from assay.cli.options import JsonOption, WorkspaceOption, emit
from assay.cli.settings_options import settings_options
from assay.system.plurals import counted
from assay_rm_training.run_settings import EnsembleConfig, MergeConfig


@settings_options(EnsembleConfig)
def ensemble(config: EnsembleConfig, workspace: WorkspaceOption = None, as_json: JsonOption = False) -> None:
    """Bring reward models to one scale and combine them; serve, score and evaluate the result like any model.

    Example: `assay ensemble rm-seed0 rm-seed1 rm-seed2 --data gold --combine uwo --name rm-ensemble`
    """
    from rich.console import Console
    from rich.table import Table

    from assay.workspace import Workspace
    from assay_rm_training.commands.evaluation_tables import print_rows
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
    if trained.uncertainty is not None:
        print_rows("", trained.uncertainty.rows())
    typer.echo(f"ensemble {trained.path} ({trained.artifact_id}), run {trained.run_id}")


def _accuracy(figures: list, index: int) -> tuple[str, str]:  # type: ignore[type-arg]
    from assay.statistics.intervals import interval_text

    if index >= len(figures):
        return "", ""
    accuracy = figures[index]
    return f"{accuracy.value:.4f}", interval_text(accuracy.interval)


@settings_options(MergeConfig)
def merge(config: MergeConfig, workspace: WorkspaceOption = None, as_json: JsonOption = False) -> None:
    """Average the weights of reward models (WARM), if no barrier lies between any two of them.

    Members must be of one base, template and head start; adapters are in their weights already. Exits with 2 and saves
    nothing where the accuracy between two members is significantly below the interpolation.

    Example: `assay merge rm-seed0 rm-seed1 rm-seed2 --data gold-holdout --name rm-warm`
    """
    from rich.console import Console
    from rich.table import Table

    from assay.errors import BadInputError
    from assay.statistics.intervals import interval_text
    from assay.workspace import Workspace
    from assay_rm_training.runs.merge import merge_models

    merged = merge_models(Workspace.find(workspace), config)
    if as_json:
        emit(merged.to_dict(), "", as_json=True)
    else:
        title = f"{counted(merged.pairs, 'pair')} of {config.data}"
        table = Table("", "accuracy", "interpolated", "difference (95 %)", title=title)
        for member, accuracy in merged.accuracies.items():
            table.add_row(member, f"{accuracy:.4f}", "", "")
        for s in merged.segments:
            barrier = f"{s.gap:+.4f} ({interval_text(s.interval, '+.4f')})" + (" BARRIER" if s.barrier else "")
            table.add_row(f"{s.first} to {s.second}, t {s.t:g}", f"{s.accuracy:.4f}", f"{s.interpolated:.4f}", barrier)
        gain = f"{merged.gain:+.4f} ({interval_text(merged.gain_interval, '+.4f')})"
        table.add_row("the average of all", f"{merged.average:.4f}", f"{merged.average - merged.gain:.4f}", gain)
        Console().print(table)
        if merged.path is not None:
            typer.echo(f"model {merged.path} ({merged.artifact_id}), run {merged.run_id}")
        for s in merged.barriers:
            typer.echo(f"assay: a barrier between {s.first} and {s.second}: they have no meaningful average", err=True)
    if merged.path is None:
        raise typer.Exit(BadInputError.exit_code)
