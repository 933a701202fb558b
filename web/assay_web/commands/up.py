"""`assay up`: the web pages and a reward server, started and stopped together."""

from __future__ import annotations

import os
import secrets
import signal
from types import FrameType
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from assay.cli.options import WorkspaceOption
from assay.cli.settings_options import settings_options
from assay.settings import arguments_of
from assay_serving.commands.engine_options import model_options
from assay_serving.model_config import ModelConfig
from assay_web.commands.web import WebOptions, run_web

if TYPE_CHECKING:
    from assay_web.server.reward_child import RewardChild

KEY = "ASSAY_API_KEY"
MODEL_OPTIONS = ("device", "dtype", "token_budget", "kind", "question", "allow_failed_parity", "engine")


@settings_options(WebOptions)
@model_options(MODEL_OPTIONS)
def up(
    options: WebOptions,
    loading: ModelConfig,
    models: Annotated[
        list[str], typer.Argument(metavar="RM...", help="Folder, hub id, or name of an artifact in the workspace.")
    ],
    name: Annotated[
        list[str] | None,
        typer.Option("--name", help="Name to serve under; repeat in the order of the models.", show_default=False),
    ] = None,
    rewards_host: Annotated[str, typer.Option(help="Address of the reward server.")] = "127.0.0.1",
    rewards_port: Annotated[int, typer.Option(min=0, max=65535, help="0 picks a free one.")] = 8000,
    workspace: WorkspaceOption = None,
) -> None:
    """Start a reward server and the web pages, which may ask it. Both end with Ctrl-C, and one with the other.

    The pages use a key of their own, or $ASSAY_API_KEY where it is set; trainers get theirs by `assay keys create`.
    More options for the reward server: `assay serve` and `assay web --rewards URL` in two terminals.

    Example: `assay up helpful --open`
    """
    from assay.errors import BackendError
    from assay.workspace import Workspace
    from assay_web.server.reward_child import RewardChild
    from assay_web.settings import RewardServer

    opened = Workspace.find(workspace)
    tls = options.tls()
    arguments = [*models, "--host", rewards_host, "--port", str(rewards_port), "--workspace", str(opened.root)]
    arguments += [part for each in name or () for part in ("--name", each)]
    arguments += arguments_of(loading, ModelConfig, MODEL_OPTIONS)
    keys = (os.environ.get(KEY) or secrets.token_urlsafe(32)).split()
    ended: list[int] = []

    def end_with(status: int) -> None:
        ended.append(status)
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, _terminated)
    child: RewardChild | None = None
    listening = options.claim()
    try:
        child = RewardChild(arguments, key=" ".join(keys))
        ready = child.wait_ready()
        typer.echo(f"reward server at {ready.url}: {', '.join(ready.models)}", err=True)
        child.when_it_ends(end_with)
        run_web(listening, options, tls, servers=(RewardServer(ready.url, keys[0]),), workspace=opened.root)
    finally:
        listening.close()
        if child is not None:
            child.stop()
        signal.signal(signal.SIGTERM, before)
    if ended:
        raise BackendError(f"the reward server ended with status {ended[0]}, and the web pages with it")


def _terminated(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)  # while the models load; the server has a handler of its own
