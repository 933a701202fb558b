"""`assay serve-environment`: an environment for agents and trainers of other projects. Heavy imports are inside."""

from pathlib import Path
from typing import Annotated

import typer

from assay.cli.options import WorkspaceOption


def register(app: typer.Typer) -> None:
    app.command("serve-environment")(serve_environment)


def serve_environment(
    prompts: Annotated[list[str], typer.Option(metavar="SOURCE", help="Its tasks, as in assay rl; repeatable.")],
    recipe: Annotated[str, typer.Option(help="Whose environment and limits: a name, or a YAML file.")] = "grpo",
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="As in assay rl, e.g. environment.kind=tools.", show_default=False
        ),
    ] = None,
    rows: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write the tasks as rows of NeMo-Gym's data.", show_default=False),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 picks a free one.")] = 8002,
    seed: Annotated[int, typer.Option(help="Of the tasks' episodes.")] = 0,
    workspace: WorkspaceOption = None,
) -> None:
    """Serve an environment: a resource server of NeMo-Gym, and the WebSocket of OpenEnv's servers, at one address.

    There are no keys: it is for this machine, or a network whose members may run its tools.

    Example: `assay serve-environment --set environment.kind=tools --prompts arithmetic:64 --rows tasks.jsonl`
    """
    import asyncio
    import json

    from assay.errors import BadInputError
    from assay.http.listening import claim_port, url_of
    from assay.http.running import serve_until_stopped
    from assay_policy_training.outside_trainers.app import environment_app
    from assay_policy_training.outside_trainers.nemo_gym import nemo_gym_rows
    from assay_policy_training.outside_trainers.sessions import Sessions
    from assay_policy_training.plugins.prompts.mixtures import load_mixture
    from assay_policy_training.recipe.loading import load_recipe
    from assay_serving.commands.serve import LOOPBACK
    from assay_serving.model_reference import find_workspace

    chosen = load_recipe(recipe, overrides or ())
    if chosen.environment is None:
        raise BadInputError("the recipe has none: --set environment.kind=NAME", field="environment")
    items = load_mixture(prompts, seed=seed, split="train", workspace=find_workspace(workspace))
    sessions = Sessions(chosen.environment, items, chosen.episodes, seed=seed)
    listening = claim_port(host, port)
    if rows is not None:
        lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in asyncio.run(nemo_gym_rows(sessions))]
        rows.write_text("".join(lines), encoding="utf-8")
        typer.echo(f"{len(items)} tasks: {rows}", err=True)
    if host not in LOOPBACK:
        typer.echo(f"assay: {host} is open to the network, and there are no keys: anyone may ask", err=True)
    name, url = type(chosen.environment).__name__, url_of(listening)
    app = environment_app(sessions, local=host in LOOPBACK)
    serve_until_stopped(app, listening, lambda: typer.echo(f"serving {name} at {url}  (Ctrl-C stops)"))
