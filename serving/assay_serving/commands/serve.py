"""`assay serve`: reward models behind HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.options import DeviceOption, JsonOption, WorkspaceOption
from assay_serving.commands.engine_options import (
    MODEL_OPTIONS,
    AllowFailedParityOption,
    CorrectOption,
    DtypeOption,
    EngineOption,
    EngineSettingsOption,
    KindOption,
    LengthOption,
    OpeningKeysOption,
    QuestionOption,
    TokenBudgetOption,
    engine_settings,
)
from assay_serving.commands.keys import KeysFileOption

if TYPE_CHECKING:
    import socket

    from assay_serving.scorer import ModelInfo
    from assay_serving.server.core.settings import ServerSettings
    from assay_serving.server.http.config_file import ServeConfig

LOOPBACK = ("127.0.0.1", "::1", "localhost")

#: Options and the fields of the configuration or of `ServerSettings` that they set.
_FIELDS = {
    "host": "host",
    "port": "port",
    "workers": "workers",
    "tls_cert": "tls_cert",
    "tls_key": "tls_key",
    "log_requests": "log_requests",
    "workspace": "workspace",
    "log_format": "log_format",
    "api_key": "api_keys",
    "keys_file": "keys_file",
    "open_health": "open_health",
    "allowed_host": "allowed_hosts",
    "model_folder": "model_folders",
    "max_queue": "max_queue_items",
    "request_timeout": "request_timeout_s",
    "cache": "cache_path",
}
_OF_MODELS = (*MODEL_OPTIONS, "policy_templates")


def serve(
    context: typer.Context,
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
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 picks a free one.")] = 8000,
    workers: Annotated[
        int, typer.Option(min=0, max=64, help="HTTP worker processes, beside the one with the models.")
    ] = 1,
    in_process: Annotated[bool, typer.Option("--in-process", help="One process for everything: --workers 0.")] = False,
    tls_cert: Annotated[
        Path | None, typer.Option("--tls-cert", help="Certificate (PEM): https.", show_default=False)
    ] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", help="Its key (PEM).", show_default=False)] = None,
    api_key: OpeningKeysOption = None,
    keys_file: KeysFileOption = None,
    open_health: Annotated[bool, typer.Option("--open-health", help="/healthz and /readyz need no key.")] = False,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(help="Host name of this server; repeatable. Requests for others are refused.", show_default=False),
    ] = None,
    model_folder: Annotated[
        list[str] | None,
        typer.Option(
            help="Folder that administrators may load models from, or hub:OWNER/NAME; repeatable.", show_default=False
        ),
    ] = None,
    dtype: DtypeOption = "float32",
    device: DeviceOption = "auto",
    token_budget: TokenBudgetOption = None,
    max_length: LengthOption = None,
    kind: KindOption = None,
    question: QuestionOption = None,
    allow_failed_parity: AllowFailedParityOption = False,
    correct: CorrectOption = None,
    engine: EngineOption = "transformers",
    engine_options: EngineSettingsOption = None,
    policy_templates: Annotated[
        list[str] | None,
        typer.Option(
            "--policy-template",
            metavar="MODEL",
            help="Policy whose rendered texts are scored, by its tokenizer's chat template; repeatable.",
            show_default=False,
        ),
    ] = None,
    max_queue: Annotated[int, typer.Option(min=1, help="Queued items per model; beyond it 503.")] = 8192,
    request_timeout: Annotated[float, typer.Option(min=0.001, help="Seconds until a request is answered 504.")] = 120.0,
    cache: Annotated[
        Path | None,
        typer.Option("--cache", help="Folder of scores that survive restarts.", show_default=False),
    ] = None,
    log_requests: Annotated[
        bool, typer.Option("--log-requests", help="One log line per request, without its text.")
    ] = False,
    log_format: Annotated[str, typer.Option(help="text or json.")] = "text",
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Serve reward models: POST conversations to /v1/score, get scores.

    One process runs the models, others HTTP; a process that ends is restarted. SIGTERM and Ctrl-C answer queued
    requests first.

    Example: `assay serve models/my-rm --port 8000`
    """
    from dataclasses import replace

    from assay.http.listening import claim_port, url_of
    from assay_serving.server.core.logs import configure_logs
    from assay_serving.server.http.config_file import config_of, read_config
    from assay_serving.server.http.config_file import example as example_file

    if example:
        typer.echo(example_file(), nl=False)
        return

    def is_set(option: str) -> bool:
        source = context.get_parameter_source(option)
        return source is not None and source.name not in ("DEFAULT", "DEFAULT_MAP")

    options = context.params
    values: dict[str, Any] = read_config(config) if config is not None else {}
    values |= {field: _plain(options[option]) for option, field in _FIELDS.items() if is_set(option)}
    if in_process:
        values["workers"] = 0
    values["models"] = _plans(models or [], name or [], values.get("models", ()), options, is_set)
    effective = config_of(values)
    effective = replace(effective, settings=_with_access_defaults(effective))
    configure_logs(effective.log_format, requests=effective.log_requests)
    tls = effective.tls
    if tls is not None:
        tls.check()
    listening = claim_port(effective.host, effective.port)  # before the models, which take minutes
    if effective.host not in LOOPBACK and not effective.settings.needs_key:
        warning = "anyone may score; administration is off"
        typer.echo(f"assay: {effective.host} is open to the network and no key is set: {warning}", err=True)
        effective = replace(effective, settings=replace(effective.settings, open_admin=False))
    url = url_of(listening, tls=tls)

    def announce(infos: list[ModelInfo]) -> None:
        if as_json:
            typer.echo(json.dumps({"url": url, "models": [info.to_dict() for info in infos]}))
            return
        typer.echo(f"serving {', '.join(info.name for info in infos)} at {url}  (Ctrl-C stops)")
        with_key = effective.settings.needs_key
        typer.echo(_example(url, infos[0], name_model=len(infos) > 1, with_key=with_key))

    if effective.workers == 0:
        _serve_here(effective, listening, announce)
    else:
        import asyncio

        from assay_serving.engine_process.supervisor import Supervisor

        asyncio.run(Supervisor(effective, listening, announce).run())


def _plans(
    models: list[str],
    names: list[str],
    of_file: tuple[Any, ...],
    options: dict[str, Any],
    is_set: Callable[[str], bool],
) -> tuple[Any, ...]:
    """The models of the command line, else those of the file, with the command line's options for all of them."""
    from dataclasses import replace

    from assay.errors import BadInputError
    from assay_serving.model_config import ModelConfig

    plans = tuple(ModelConfig(reference) for reference in models) or of_file
    if names and len(names) != len(plans):
        raise BadInputError(f"{len(names)} names for {len(plans)} models", field="--name")
    if not plans:
        raise BadInputError("name at least one model: assay serve RM, or --config FILE (--example prints one)")
    shared = {option: options[option] for option in _OF_MODELS if is_set(option)}
    if "engine_options" in shared:
        shared["engine_options"] = engine_settings(shared["engine_options"])
    if "policy_templates" in shared:
        shared["policy_templates"] = tuple(shared["policy_templates"])
    served_names = [{"served_as": name} for name in names] or [{}] * len(plans)
    return tuple(replace(plan, **shared, **served_name) for plan, served_name in zip(plans, served_names, strict=True))


def _with_access_defaults(config: ServeConfig) -> ServerSettings:
    """The settings with defaults for access: the workspace's keys; only this machine's host names for a server without
    keys. Raises NotFoundError or BadInputError for keys that cannot be used.
    """
    from dataclasses import replace

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
        number = len(read_keys(Path(settings.keys_file)).entries)
        typer.echo(f"keys: {number} in {settings.keys_file}", err=True)
    if settings.allowed_hosts is None and config.host in LOOPBACK and not settings.needs_key:
        settings = replace(settings, allowed_hosts=())
    return settings


def _serve_here(config: ServeConfig, listening: socket.socket, announce: Callable[[list[ModelInfo]], None]) -> None:
    """HTTP and the models in this process."""
    from assay.http.running import serve_until_stopped
    from assay_serving.engine_process.engine import load
    from assay_serving.server.app import app_of
    from assay_serving.server.in_process import InProcessBackend

    workspace = Path(config.workspace) if config.workspace else None
    scorers, plans = load(config.models, workspace)
    infos = [scorer.info for scorer in scorers.values()]
    backend = InProcessBackend(scorers, config.settings, plans=plans, workspace=workspace)
    scorers.clear()  # only the backend references a model, so that it can be unloaded
    serve_until_stopped(app_of(backend, settings=config.settings), listening, lambda: announce(infos), tls=config.tls)


def _plain(value: Any) -> Any:
    """As in the configuration: paths as text, lists as tuples."""
    if isinstance(value, Path):
        return str(value.absolute())
    return tuple(value) if isinstance(value, list) else value


def _example(url: str, info: ModelInfo, *, name_model: bool, with_key: bool) -> str:
    body: dict[str, object] = {"prompt": "Name a metal.", "responses": ["Gold.", "Glass."]}
    if info.kind == "principle":
        body["principle"] = "correctness"
    key = ' -H "Authorization: Bearer $ASSAY_API_KEY"' if with_key else ""
    sent = json.dumps({"model": info.name, **body} if name_model else body)
    return f"try: curl {url}/v1/score{key} -H 'Content-Type: application/json' -d '{sent}'"
