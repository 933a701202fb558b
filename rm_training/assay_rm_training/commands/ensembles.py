"""`assay ensemble`: combine reward models, with their disagreement as the uncertainty of scores."""

from __future__ import annotations

from typing import Annotated

import typer

from assay.cli.options import DeviceOption, JsonOption, WorkspaceOption, emit
from assay.system.plurals import counted
from assay_rm_training.commands.run_options import ForceOption
from assay_serving.commands.engine_options import AllowFailedParityOption


def register(app: typer.Typer) -> None:
    """Add the command `ensemble`."""
    app.command("ensemble")(ensemble)


def ensemble(
    members: Annotated[
        list[str], typer.Argument(metavar="RM RM...", help="Reward models: names in the workspace, folders, hub ids.")
    ],
    data: Annotated[str, typer.Option(help="Pairs whose responses set the common scale: snapshot or file.")],
    name: Annotated[str, typer.Option(help="Name of the ensemble.")],
    combine: Annotated[
        str,
        typer.Option(
            help="mean, min, uwo (mean - weight * variance), lower_bound (mean - weight * deviation) or kl_robust."
        ),
    ] = "mean",
    weight: Annotated[
        float,
        typer.Option(help="Of the variance in uwo (0.5 for best-of-n, 0.1 for PPO), of the deviation in lower_bound."),
    ] = 0.5,
    beta: Annotated[float, typer.Option(help="Of kl_robust: large is the mean, small the minimum.")] = 1.0,
    variance: Annotated[str, typer.Option(help="population (by k) or unbiased (by k - 1).")] = "population",
    scale: Annotated[str, typer.Option(help="standardised, or raw: the members are on one scale already.")] = (
        "standardised"
    ),
    eval_data: Annotated[
        str | None, typer.Option(help="Held-out pairs for its figures: snapshot or file.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option(help="Only the first N pairs of each; 0 = all.")] = 0,
    seed: Annotated[int, typer.Option(help="Of the bootstrap.")] = 0,
    force: ForceOption = False,
    allow_failed_parity: AllowFailedParityOption = False,
    device: DeviceOption = "auto",
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Bring reward models to one scale and combine them; serve, score and evaluate the result like any model.

    Example: `assay ensemble rm-seed0 rm-seed1 rm-seed2 --data gold --combine uwo --name rm-ensemble`
    """
    from rich.console import Console
    from rich.table import Table

    from assay.workspace import Workspace
    from assay_rm_training.runs.ensemble import EnsembleConfig, build_ensemble

    config = EnsembleConfig(
        tuple(members),
        data,
        name,
        combine,  # type: ignore[arg-type]  # checked by the description
        weight,
        beta,
        variance,  # type: ignore[arg-type]
        scale,  # type: ignore[arg-type]
        eval_data,
        limit,
        seed,
        device,
        force,
        allow_failed_parity,
    )
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
        title=f"scale of {counted(trained.responses, 'response')} of {data}",
    )
    figures = list(trained.accuracies.values())
    for index, member in enumerate(trained.spec.members):
        table.add_row(members[index], f"{member.mean:.4g}", f"{member.std:.4g}", *_accuracy(figures, index))
    table.add_row(f"{trained.path.name} ({combine})", "", "", *_accuracy(figures, len(members)))
    Console().print(table)
    if trained.unsure:
        uncertainties = ", ".join(f"{value:.3f}" for value in trained.unsure)
        typer.echo(f"accuracy by thirds of the pairs, from the least uncertain: {uncertainties}")
    typer.echo(f"ensemble {trained.path} ({trained.artifact_id}), run {trained.run_id}")


def _accuracy(figures: list, index: int) -> tuple[str, str]:  # type: ignore[type-arg]
    if index >= len(figures):
        return "", ""
    accuracy = figures[index]
    return f"{accuracy.value:.4f}", f"{accuracy.bootstrap.low:.4f} to {accuracy.bootstrap.high:.4f}"
