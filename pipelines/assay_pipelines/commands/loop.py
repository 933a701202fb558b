"""`assay loop`: a policy is trained while labels are bought where they tell most, and its reward learns from them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.options import JsonOption, WorkspaceOption, emit

if TYPE_CHECKING:
    from assay_policy_training.training.run import TrainedPolicy


def register(app: typer.Typer) -> None:
    app.command("loop")(loop)


def loop(
    config: Annotated[Path | None, typer.Argument(metavar="LOOP.yaml", help="The loop: see --example.")] = None,
    example: Annotated[bool, typer.Option("--example", help="Print a commented configuration and stop.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Begin anew, also where a run of it is unfinished.")] = False,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Train a policy against a reward model that learns meanwhile: each few steps a selector picks pairs among the
    fresh rollouts, a verifier, a judge or people label them, and a refit takes over unless it does worse.

    One process does it all. Interrupted or killed at any moment, the same command goes on: same labels, same decisions,
    nothing asked twice. In the run's folder: labels.jsonl, events.jsonl, metrics.jsonl, rollouts.jsonl.

    Example: `assay loop --example > loop.yaml && assay loop loop.yaml`
    """
    from assay.errors import BadInputError, NotFoundError
    from assay_pipelines.online.config import EXAMPLE, load_loop

    if example:
        typer.echo(EXAMPLE.read_text(encoding="utf-8"), nl=False)
        return
    if config is None:
        raise BadInputError("name the loop's file, or print one to begin with: assay loop --example")
    settings = load_loop(config)
    from assay.workspace import Workspace
    from assay_pipelines.online.run import run_loop

    def started(folder: Path) -> None:
        typer.echo(f"run {folder.name} ({folder})", err=True)

    try:
        trained = run_loop(
            Workspace.find(workspace), settings, fresh=fresh, folder=config.absolute().parent, on_start=started
        )
    except KeyboardInterrupt:
        typer.echo(f"go on with: assay loop {config}", err=True)
        raise
    except BadInputError as error:
        raise error if error.file else BadInputError(str(error), file=config) from error
    except NotFoundError as error:
        raise NotFoundError(f"{config}, {error}") from error
    payload = _payload(trained)
    emit(payload, _text(trained, payload), as_json=as_json)


def _payload(trained: "TrainedPolicy") -> dict[str, Any]:
    from collections import Counter

    from assay_pipelines.online.journal import Journal

    events = Counter(row["kind"] for row in Journal(trained.folder).events.rows())
    last = trained.steps[-1] if trained.steps else {}
    names = ("labels_spent", "labels_waiting", "labels_cost", "contradictions", "refits", "swaps")
    return {
        "run": trained.run_id,
        "folder": str(trained.folder),
        "policy": str(trained.policy),
        "artifacts": {"policy": trained.policy_artifact, "rollouts": trained.rollouts_artifact},
        **{name: last.get(name) for name in names},
        "events": dict(events),
        **trained.metrics,
    }


def _text(trained: "TrainedPolicy", payload: dict[str, Any]) -> str:
    lines = [f"policy {trained.policy}", f"run    {trained.run_id} ({trained.folder})"]
    if trained.steps:
        counts = ("labels_spent", "labels_waiting", "contradictions", "refits", "swaps")
        figures = [f"{payload[name] or 0:g} {name.replace('_', ' ')}" for name in counts]
        lines.append(f"{payload['steps']} steps, {', '.join(figures)}, cost {payload['labels_cost'] or 0:g}")
    if payload["events"]:
        lines.append("events " + ", ".join(f"{kind} {count}" for kind, count in sorted(payload["events"].items())))
    if payload["stopped_early"]:
        lines.append(f"stopped: {payload['stopped_early']}")
    for name in ("reward_mean", "held_out_reward_mean"):
        listed = [row[name] for row in trained.steps if name in row]
        if listed:
            lines.append(f"{name} {listed[0]:.4f} at first, {listed[-1]:.4f} at last")
    return "\n".join(lines)
