"""`assay serve`: reward models behind HTTP."""

import json
import os
import signal
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.options import JsonOption, WorkspaceOption
from assay.cli.resume import is_given
from assay.cli.settings_options import Command, replace_parameter
from assay.errors import BadInputError
from assay.settings import fields_of
from assay_serving.commands.engine_options import MODEL_OPTIONS, model_options
from assay_serving.model_config import ModelConfig
from assay_serving.server.core.settings import FILES, ServeConfig, ServerSettings

if TYPE_CHECKING:
    import socket

    from assay_serving.scorer import ModelInfo

LOOPBACK = ("127.0.0.1", "::1", "localhost")

_FIELDS = [
    replace(field, type=Path | None) if field.name in FILES else field
    for field in (*fields_of(ServeConfig), *fields_of(ServerSettings))
    if field.help
]
_OF_MODELS = (*MODEL_OPTIONS, "policy_templates", "tools")


@dataclass(frozen=True)
class ServeOptions:
    """Fields of `ServeConfig` and `ServerSettings` by name, paths as text."""

    values: dict[str, Any]


def serve_options(names: Collection[str] | None = None) -> Callable[[Command], Command]:
    """Replace the parameter of type `ServeOptions` by its options, or those with these `names`."""

    def build(**values: Any) -> ServeOptions:
        paths = {name: str(value.absolute()) for name, value in values.items() if isinstance(value, Path)}
        return ServeOptions(values | paths)

    return replace_parameter(ServeOptions, [field for field in _FIELDS if names is None or field.name in names], build)


@serve_options()
@model_options(_OF_MODELS)
def serve(
    context: typer.Context,
    options: ServeOptions,
    shared: ModelConfig,
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RM...", help="Folder, hub id, or name of an artifact in the workspace.", show_default=False
        ),
    ] = None,
    name: Annotated[
        list[str] | None,
        typer.Option("--name", help="Name to serve under; repeat in the order of the models.", show_default=False),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", help="YAML file with all settings; options override it.", show_default=False),
    ] = None,
    example: Annotated[bool, typer.Option("--example", help="Print an example of such a file.")] = False,
    in_process: Annotated[bool, typer.Option("--in-process", help="One process for everything: --workers 0.")] = False,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Serve reward models: POST conversations to /v1/score, get scores.

    One process runs the models, others HTTP; a process that ends is restarted. SIGTERM and Ctrl-C answer queued
    requests first. SIGHUP reads the file again.

    Example: `assay serve models/my-rm --port 8000`
    """
    from assay.http.listening import claim_port, url_of
    from assay_serving.server.core.logs import configure_logs
    from assay_serving.server.http.config_file import config_of, read_config
    from assay_serving.server.http.config_file import example as example_file

    if example:
        typer.echo(example_file(), nl=False)
        return
    given = [option for option in context.params if is_given(context, option)]
    path = config.absolute() if config is not None else None

    def read() -> ServeConfig:
        values: dict[str, Any] = read_config(path) if path is not None else {}
        values |= {field: value for field, value in options.values.items() if field in given}
        if workspace is not None:
            values["workspace"] = str(workspace.absolute())
        if in_process:
            values["workers"] = 0
        plans = tuple(ModelConfig(reference) for reference in models or ()) or values.get("models", ())
        for_all = {option: getattr(shared, option) for option in _OF_MODELS if option in given}
        values["models"] = _with_names([replace(plan, **for_all) for plan in plans], name or [])
        effective = config_of(values)
        return replace(effective, settings=_with_access_defaults(effective))

    effective = read()
    _show_access(effective)
    configure_logs(effective.log_format, requests=effective.log_requests)
    tls = effective.tls
    if tls is not None:
        tls.check()
    listening = claim_port(effective.host, effective.port)  # before the models, which take minutes
    url = url_of(listening, tls=tls)

    def announce(infos: "list[ModelInfo]") -> None:
        if as_json:
            typer.echo(json.dumps({"url": url, "models": [info.to_dict() for info in infos]}))
            return
        typer.echo(f"serving {', '.join(info.name for info in infos)} at {url}  (Ctrl-C stops)")
        with_key = effective.settings.needs_key
        typer.echo(_example(url, infos[0], name_model=len(infos) > 1, with_key=with_key))

    if effective.workers == 0:
        _serve_here(effective, listening, announce, read)
    else:
        import asyncio

        from assay_serving.engine_process.supervisor import Supervisor

        asyncio.run(Supervisor(effective, listening, announce, read_again=read).run())


def _with_names(plans: Sequence[ModelConfig], names: Sequence[str]) -> tuple[ModelConfig, ...]:
    """The models with the names to serve them under. Raises BadInputError for none, and another number of names."""
    if names and len(names) != len(plans):
        raise BadInputError(f"{len(names)} names for {len(plans)} models", field="--name")
    if not plans:
        raise BadInputError("name at least one model: assay serve RM, or --config FILE (--example prints one)")
    if not names:
        return tuple(plans)
    return tuple(replace(plan, served_as=name) for plan, name in zip(plans, names, strict=True))


def _with_access_defaults(config: ServeConfig) -> ServerSettings:
    """The settings with defaults for access: the workspace's keys; for a server without keys only this machine's host
    names, and no administration over the network. Raises NotFoundError or BadInputError for keys that cannot be used.
    """
    from assay_serving.model_reference import find_workspace
    from assay_serving.server.auth.key_store import FILE, read_keys

    settings = config.settings
    has_keys = True
    if settings.keys_file is None:
        opened = find_workspace(Path(config.workspace) if config.workspace else None)
        has_keys = opened is not None and (opened.root / FILE).is_file()
        if opened is not None and (
            has_keys or settings.api_keys
        ):  # beside a plain key, one created later is accepted too
            settings = replace(settings, keys_file=str(opened.root / FILE))
    if settings.keys_file is not None and has_keys:
        read_keys(Path(settings.keys_file))
    if not settings.needs_key:
        open_admin = settings.open_admin and config.host in LOOPBACK
        settings = replace(settings, allowed_hosts=keyless_hosts(settings.allowed_hosts), open_admin=open_admin)
    return settings


def _show_access(config: ServeConfig) -> None:
    """Say on standard error who may use the server."""
    from assay_serving.server.auth.key_store import read_keys

    settings = config.settings
    if settings.keys_file is not None and Path(settings.keys_file).is_file():
        typer.echo(f"keys: {len(read_keys(Path(settings.keys_file)).entries)} in {settings.keys_file}", err=True)
    if config.host not in LOOPBACK and not settings.needs_key:
        warning = "anyone may score; administration is off"
        typer.echo(f"assay: {config.host} is open to the network and no key is set: {warning}", err=True)


def keyless_hosts(allowed: tuple[str, ...] | None) -> tuple[str, ...]:
    """Names that a server without keys answers to, beside localhost and addresses: any other may be a page's whose name
    was pointed here (DNS rebinding)."""
    import socket

    return (*(allowed or ()), socket.gethostname().lower())


def _serve_here(
    config: ServeConfig,
    listening: "socket.socket",
    announce: "Callable[[list[ModelInfo]], None]",
    read_again: Callable[[], ServeConfig],
) -> None:
    """HTTP and the models in this process."""
    import asyncio

    from assay.http.running import serve_until_stopped
    from assay_serving.engine_process.engine import load
    from assay_serving.server.app import app_of
    from assay_serving.server.core.reload import SIGNAL, ConfigChange, ModelChanges, Reloader, on_hangup
    from assay_serving.server.http.service import ScoringService
    from assay_serving.server.in_process import InProcessBackend

    workspace = Path(config.workspace) if config.workspace else None
    scorers, plans = load(config.models, workspace)
    infos = [scorer.info for scorer in scorers.values()]
    backend = InProcessBackend(scorers, config.settings, plans=plans, workspace=workspace)
    scorers.clear()  # only the backend references a model, so that it can be unloaded
    app = app_of(backend, settings=config.settings)
    service: ScoringService = app.state.service

    async def apply(change: ConfigChange) -> ModelChanges:
        changes = await backend.reload(change.config.settings, change.before, change.config.models)
        service.settings = change.config.settings
        return changes

    reloader = Reloader(config, read_again, apply)
    service.reload = reloader.reload

    def on_ready() -> None:
        stop = partial(os.kill, os.getpid(), signal.SIGTERM)
        on_hangup(asyncio.get_running_loop(), lambda: reloader.start(SIGNAL), stop)
        announce(infos)

    serve_until_stopped(app, listening, on_ready, tls=config.tls)


def _example(url: str, info: "ModelInfo", *, name_model: bool, with_key: bool) -> str:
    body: dict[str, object] = {"prompt": "Name a metal.", "responses": ["Gold.", "Glass."]}
    if info.kind == "principle":
        body["principle"] = "correctness"
    key = ' -H "Authorization: Bearer $ASSAY_API_KEY"' if with_key else ""
    sent = json.dumps({"model": info.name, **body} if name_model else body)
    return f"try: curl {url}/v1/score{key} -H 'Content-Type: application/json' -d '{sent}'"
