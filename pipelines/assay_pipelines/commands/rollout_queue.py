"""`assay queue from-rollouts` and `effect`: a policy run's doubtful rollouts before people, and what came of it."""

from __future__ import annotations

from typing import Annotated

import typer

from assay.cli.options import JsonOption, WorkspaceOption, emit

_SIDES = {True: "against the reward", False: "with the reward", None: "-"}


def add(group: typer.Typer) -> None:
    """Add the commands to the group `queue`."""
    group.command("from-rollouts")(from_rollouts)
    group.command("effect")(effect)


def from_rollouts(
    run: Annotated[str, typer.Argument(help="Id of a policy run that was watched (`assay rl --watch`).")],
    name: Annotated[str, typer.Option(help="Of the queue. Default: rollouts-RUN.", show_default=False)] = "",
    limit: Annotated[int | None, typer.Option(min=1, help="The most doubtful so many. Default: all.")] = None,
    overlap: Annotated[int, typer.Option(min=1, help="How many people see each pair.")] = 1,
    gold_checks: Annotated[float, typer.Option(help="Share of known answers mixed in, from the gold pool.")] = 0.1,
    seed: Annotated[int, typer.Option(help="Seed of every order that is drawn.")] = 0,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Put before people the rollouts that the reward trained on and the held-out reward disagree about.

    Each pair is two responses of the policy to one prompt; the rewards' preferences are recorded as their judgments and
    not shown. Run again it adds what the policy run has found since.

    Example: `assay queue from-rollouts run-20261121-130202-cf034f --limit 100 --overlap 3`
    """
    from dataclasses import asdict

    from assay.runs.record import start_run
    from assay.workspace import Workspace
    from assay_pipelines.annotation.rollouts import queue_rollouts

    here, queue = Workspace.find(workspace), name or f"rollouts-{run}"
    settings = {"queue": queue, "policy_run": run, "limit": limit, "overlap": overlap, "gold_checks": gold_checks}
    with start_run(here, "queue-create", settings | {"seed": seed}, inputs={run: "run"}) as recorded:
        created = queue_rollouts(
            here, run, queue, recorded, limit=limit, overlap=overlap, gold_checks=gold_checks, seed=seed
        )
        recorded.metrics.update(suspects=created.suspects, new=created.new)
    emit(
        {"run": recorded.id, "suspects": created.suspects, "new": created.new, **asdict(created.queue)},
        f"{created.queue.name}: {created.suspects} pairs, {created.new} of them new to the store\n"
        f"vote with: assay annotate {queue} --as YOUR-NAME; then: assay queue resolve {queue}",
        as_json=as_json,
    )


def effect(
    queue: Annotated[str, typer.Argument(help="Name of the queue.")],
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show where a queue's decisions are now: which labels people overturned, which snapshots and models hold them.

    Example: `assay queue effect rollouts-run-20261121-130202-cf034f`
    """
    from assay.workspace import Workspace
    from assay_pipelines.annotation.rollouts import effects

    decisions = effects(Workspace.find(workspace), queue)
    lines = [
        f"{e.comparison_id}  {e.label or 'undecidable':<11}  "
        + ("rewards disagree" if e.contradictory else _SIDES[e.overturned]).ljust(18)
        + f"  {', '.join(e.snapshots) or 'in no snapshot'}  {', '.join(e.models) or 'in no model'}"
        for e in decisions
    ]
    models = sorted({model for e in decisions for model in e.models})
    overturned = sum(e.overturned is True for e in decisions)
    contradictory = sum(e.contradictory for e in decisions)
    counts = f"{len(decisions)} decisions, {overturned} against the reward trained on"
    counts += f", {contradictory} about which rewards of several runs disagree" if contradictory else ""
    total = f"{counts}; they changed: {', '.join(models) or 'no model yet'}"
    payload = {
        "decisions": [e.to_dict() for e in decisions],
        "overturned": overturned,
        "contradictory": contradictory,
        "models": models,
    }
    emit(payload, "\n".join([*lines, total]), as_json=as_json)
