"""`assay serve-chat`: a language model behind OpenAI's chat route."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from assay.cli.options import DeviceOption, JsonOption, WorkspaceOption
from assay_serving.commands.serve import LOOPBACK, ServeOptions, keyless_hosts, serve_options
from assay_serving.server.core.settings import ServerSettings


@serve_options(("api_keys", "keys_file", "open_health"))
def serve_chat(
    access: ServeOptions,
    model: Annotated[
        str, typer.Option("--model", help="Folder, hub id, `smollm2`, `tiny`, or a name in the workspace.")
    ],
    name: Annotated[str | None, typer.Option(help="Name to serve under.", show_default=False)] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 picks a free one.")] = 8001,
    dtype: Annotated[str, typer.Option(help="float32, bfloat16, float16 or auto.")] = "auto",
    device: DeviceOption = "auto",
    max_waiting: Annotated[int, typer.Option(min=1, help="Waiting requests; past it 429.")] = 64,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Serve a language model for judges: POST /v1/chat/completions, one conversation at a time, no streaming.

    Example: `assay serve-chat --model smollm2 --port 8001`
    """
    from assay.http.listening import claim_port, url_of
    from assay.http.running import serve_until_stopped
    from assay.runs.record import locate_model
    from assay_serving.model_reference import find_workspace
    from assay_serving.server.auth.key_store import read_keys

    settings = ServerSettings(**access.values)
    listening = claim_port(host, port)  # before the model, which takes a while
    if settings.keys_file is not None:
        read_keys(Path(settings.keys_file))  # raises for one that cannot be used
    if host not in LOOPBACK and not settings.needs_key:
        typer.echo(f"assay: {host} is open to the network and no key is set: anyone may ask", err=True)

    from assay_serving.chat.generation import ChatModel, QueuedModel
    from assay_serving.server.chat_app import guarded_chat_app

    folder = locate_model(find_workspace(workspace), model, kinds=("policy",))[0]
    typer.echo(f"loading {model}", err=True)
    loaded = ChatModel.load(folder, device=device, dtype=dtype, served_as=name or (model if folder != model else None))
    url = url_of(listening)

    def announce() -> None:
        if as_json:
            typer.echo(json.dumps({"url": url, "model": loaded.name, "version": loaded.version}))
            return
        typer.echo(f"serving {loaded.name} at {url}/v1  (Ctrl-C stops)")
        typer.echo(f"try: assay judge run --judge openai --base-url {url}/v1 --model {loaded.name} --limit 10")

    if not settings.needs_key:
        settings = replace(settings, allowed_hosts=keyless_hosts(None))
    serve_until_stopped(guarded_chat_app(QueuedModel(loaded, max_waiting), settings), listening, announce)
