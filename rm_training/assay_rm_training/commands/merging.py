"""`assay merge`: one reward model from several, by averaging their weights."""

from __future__ import annotations

from typing import Annotated

import typer

from assay.cli.options import DeviceOption, JsonOption, WorkspaceOption, emit
from assay.system.plurals import counted
from assay_rm_training.commands.run_options import ForceOption, LimitOption


def register(app: typer.Typer) -> None:
    """Add the command `merge`."""
    app.command("merge")(merge)


def merge(
    members: Annotated[
        list[str],
        typer.Argument(metavar="RM RM...", help="Reward models of one base: names of the workspace, folders."),
    ],
    data: Annotated[str, typer.Option(help="Held-out pairs of the barrier check: snapshot or file.")],
    name: Annotated[str, typer.Option(help="Name of the new model.")],
    point: Annotated[
        list[float] | None,
        typer.Option("--point", help="Share of the second member, 0 to 1; repeatable. Default: 0.5."),
    ] = None,
    limit: LimitOption = 0,
    seed: Annotated[int, typer.Option(help="Of the bootstrap.")] = 0,
    force: ForceOption = False,
    allow_barrier: Annotated[
        bool, typer.Option("--allow-barrier", help="Save the average even if accuracy falls between members.")
    ] = False,
    device: DeviceOption = "auto",
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Average the weights of reward models (WARM), if no barrier lies between any two of them.

    Members must be of one base, template and head start; adapters are in their weights already. Exits with 2 and saves
    nothing where the accuracy between two members is significantly below the interpolation.

    Example: `assay merge rm-seed0 rm-seed1 rm-seed2 --data gold-holdout --name rm-warm`
    """
    from rich.console import Console
    from rich.table import Table

    from assay.errors import BadInputError
    from assay.workspace import Workspace
    from assay_rm_training.runs.merge import MergeConfig, merge_models

    here = Workspace.find(workspace)
    points = tuple(point) if point else MergeConfig.points
    config = MergeConfig(tuple(members), data, name, points, limit, seed, device, force, allow_barrier)
    merged = merge_models(here, config)
    if as_json:
        emit(merged.to_dict(), "", as_json=True)
    else:
        table = Table(
            "", "accuracy", "interpolated", "difference (95 %)", title=f"{counted(merged.pairs, 'pair')} of {data}"
        )
        for member, accuracy in merged.accuracies.items():
            table.add_row(member, f"{accuracy:.4f}", "", "")
        for s in merged.segments:
            barrier = f"{s.gap:+.4f} ({s.interval.low:+.4f} to {s.interval.high:+.4f})" + (
                " BARRIER" if s.barrier else ""
            )
            table.add_row(f"{s.first} to {s.second}, t {s.t:g}", f"{s.accuracy:.4f}", f"{s.interpolated:.4f}", barrier)
        gain = f"{merged.gain:+.4f} ({merged.gain_interval.low:+.4f} to {merged.gain_interval.high:+.4f})"
        table.add_row("the average of all", f"{merged.average:.4f}", f"{merged.average - merged.gain:.4f}", gain)
        Console().print(table)
        if merged.path is not None:
            typer.echo(f"model {merged.path} ({merged.artifact_id}), run {merged.run_id}")
        for s in merged.barriers:
            typer.echo(f"assay: a barrier between {s.first} and {s.second}: they have no meaningful average", err=True)
    if merged.path is None:
        raise typer.Exit(BadInputError.exit_code)
