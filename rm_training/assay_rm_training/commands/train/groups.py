"""`assay train groups`: one reward model a group of annotators, where the groups are found in their votes."""

from typing import Annotated

import typer

from assay.cli.options import DeviceOption, JsonOption, WorkspaceOption, emit
from assay_rm_training.commands.train.options import ForceOption, WaiveOption


def groups(
    data: Annotated[str, typer.Option(help="Snapshot, or a file of rows with `ratings.votes`, or with `annotator`.")],
    base: Annotated[str, typer.Option(help="smollm2, tiny, a folder or a hub id; its weights are frozen.")] = "smollm2",
    groups: Annotated[int, typer.Option(help="Groups of annotators.")] = 2,
    hard: Annotated[
        bool, typer.Option("--hard", help="An annotator belongs to one group; else to each with a probability.")
    ] = False,
    restarts: Annotated[int, typer.Option(help="Random starts, of which the likeliest is kept.")] = 8,
    l2: Annotated[float | None, typer.Option("--l2", help="Penalty. Default: chosen on a fifth of the pairs.")] = None,
    least_votes: Annotated[int, typer.Option(help="Annotators with fewer votes are left out.")] = 5,
    combine: Annotated[
        str, typer.Option(help="The reward: mean, min (the worst-off group's), uwo, lower_bound or kl_robust.")
    ] = "min",
    name: Annotated[str | None, typer.Option(help="Name of the new model. Default: BASE-DATA-groups.")] = None,
    force: ForceOption = False,
    seed: Annotated[int, typer.Option(help="Of the random starts.")] = 0,
    max_length: Annotated[int | None, typer.Option(help="Tokens of a conversation. Default: the base's own.")] = None,
    waive: WaiveOption = None,
    device: DeviceOption = "auto",
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find groups of annotators in their votes, and fit a Bradley-Terry head for each on a frozen model (MaxMin-RLHF).

    A score has the groups' rewards as its parts member-0 (the largest group), member-1, ..., which a policy can be
    trained against with --reward parts:URL and the recipe maxmin. Says whether the groups predict held-out votes
    better than one head does.

    Example: `assay train groups --data votes.jsonl --groups 2 --base smollm2 --name groups`
    """
    from assay.runs.record import locate_model
    from assay.workspace import Workspace
    from assay_rm_training.commands.train.options import waivers_of
    from assay_rm_training.data.annotator_votes import load_annotator_votes
    from assay_rm_training.methods.annotator_groups import GroupsConfig
    from assay_rm_training.runs.groups import ANNOTATORS, GroupsPlan, train_groups
    from assay_rm_training.runs.train import default_name
    from assay_serving.engines.aggregation import MemberAggregation

    here = Workspace.find(workspace)
    plan = GroupsPlan(
        GroupsConfig(groups, "hard" if hard else "soft", restarts, l2, seed),
        locate_model(here, base)[0],
        data,
        name or f"{default_name(base, data)}-groups",
        least_votes,
        max_length,
        device,
        force,
        MemberAggregation(combine),  # type: ignore[arg-type]  # checked by the class
    )
    trained = train_groups(here, plan, load_annotator_votes(here, data), waivers=waivers_of(waive or []))
    metrics = trained.metrics
    if as_json:
        model = {"model": trained.path.name, "path": str(trained.path), "artifact_id": trained.artifact_id}
        emit({**model, "run_id": trained.run_id, **metrics}, "", as_json=True)
        return
    typer.echo(
        f"{trained.path.name}: {metrics['votes']} votes of {metrics['annotators']} annotators "
        f"({metrics['annotators_left_out']} left out: under {least_votes} votes, or none that fits); "
        f"penalty {metrics['l2']:g}"
    )
    for number, (share, of) in enumerate(zip(metrics["shares"], metrics["votes_by_group"], strict=True)):
        typer.echo(f"  member-{number}  {share:.1%} of the annotators, {of:.0f} votes")
    typer.echo(f"  {metrics['certain']:.1%} of the annotators belong to one group with P > 0.9")
    if (held := metrics["held_out"]) is not None:
        better = "the groups" if held["nll"] < held["single_nll"] else "ONE HEAD, so these votes show no such groups"
        typer.echo(
            f"held out ({held['votes']} votes): groups NLL {held['nll']:.4f}, accuracy {held['accuracy']:.3f}; "
            f"one head {held['single_nll']:.4f}, {held['single_accuracy']:.3f}: better by {better}"
        )
    typer.echo(f"model {trained.path} ({trained.artifact_id}), run {trained.run_id}; {ANNOTATORS} in its folder")
