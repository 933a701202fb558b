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
        typer.Option("--config", help="YAML file with all of this; options go before it.", show_default=False),
    ] = None,
    example: Annotated[bool, typer.Option("--example", help="Print such a file, and stop.")] = False,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 picks a free one.")] = 8000,
    workers: Annotated[
        int, typer.Option(min=0, max=64, help="Processes that speak HTTP, beside the one that holds the models.")
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
        typer.Option(help="Name that clients call this server by; repeatable. Others are refused.", show_default=False),
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
            help="Policy whose rendered texts are to be scored: its tokenizer's chat template; repeatable.",
            show_default=False,
        ),
    ] = None,
    max_queue: Annotated[int, typer.Option(min=1, help="Waiting items per model; past it 503.")] = 8192,
    request_timeout: Annotated[float, typer.Option(min=0.001, help="Seconds until a request is answered 504.")] = 120.0,
    cache: Annotated[
        Path | None,
        typer.Option("--cache", help="Folder where scores are kept across restarts.", show_default=False),
    ] = None,
    log_requests: Annotated[bool, typer.Option("--log-requests", help="One line a request, without its text.")] = False,
    log_format: Annotated[str, typer.Option(help="text or json.")] = "text",
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Serve reward models: POST conversations to /v1/score, get scores.

    One process holds the models, others speak HTTP; one that ends is started again. SIGTERM and Ctrl-C answer what is
    queued first.

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

    def given(option: str) -> bool:
        source = context.get_parameter_source(option)
        return source is not None and source.name not in ("DEFAULT", "DEFAULT_MAP")

    options = context.params
    values: dict[str, Any] = read_config(config) if config is not None else {}
    values |= {field: _plain(options[option]) for option, field in _FIELDS.items() if given(option)}
    if in_process:
        values["workers"] = 0
    values["models"] = _plans(models or [], name or [], values.get("models", ()), options, given)
    settled = config_of(values)
    settled = replace(settled, settings=_guarded(settled))
    configure_logs(settled.log_format, requests=settled.log_requests)
    tls = settled.tls
    if tls is not None:
        tls.check()
    listening = claim_port(settled.host, settled.port)  # before the models, which take minutes
    if settled.host not in LOOPBACK and not settled.settings.needs_key:
        said = "anyone may score; administration is off"
        typer.echo(f"assay: {settled.host} is open to the network and no key is set: {said}", err=True)
        settled = replace(settled, settings=replace(settled.settings, open_admin=False))
    url = url_of(listening, tls=tls)

    def announce(infos: list[ModelInfo]) -> None:
        if as_json:
            typer.echo(json.dumps({"url": url, "models": [info.to_dict() for info in infos]}))
            return
        typer.echo(f"serving {', '.join(info.name for info in infos)} at {url}  (Ctrl-C stops)")
        with_key = settled.settings.needs_key
        typer.echo(_example(url, infos[0], named=len(infos) > 1, with_key=with_key))

    if settled.workers == 0:
        _serve_here(settled, listening, announce)
    else:
        import asyncio

        from assay_serving.engine_process.supervisor import Supervisor

        asyncio.run(Supervisor(settled, listening, announce).run())


def _plans(
    models: list[str],
    names: list[str],
    of_file: tuple[Any, ...],
    options: dict[str, Any],
    given: Callable[[str], bool],
) -> tuple[Any, ...]:
    """The models of the command line, else those of the file with what the command line says of all of them."""
    from dataclasses import replace

    from assay.errors import BadInputError
    from assay_serving.model_config import ModelConfig

    plans = tuple(ModelConfig(reference) for reference in models) or of_file
    if names and len(names) != len(plans):
        raise BadInputError(f"{len(names)} names for {len(plans)} models", field="--name")
    if not plans:
        raise BadInputError("name at least one model: assay serve RM, or --config FILE (--example prints one)")
    shared = {option: options[option] for option in _OF_MODELS if given(option)}
    if "engine_options" in shared:
        shared["engine_options"] = engine_settings(shared["engine_options"])
    if "policy_templates" in shared:
        shared["policy_templates"] = tuple(shared["policy_templates"])
    named = [{"served_as": name} for name in names] or [{}] * len(plans)
    return tuple(replace(plan, **shared, **own) for plan, own in zip(plans, named, strict=True))


def _guarded(config: ServeConfig) -> ServerSettings:
    """The settings with what keeps strangers out where nobody said how: a workspace's keys; the names of this machine
    only, where whoever reaches the port may score. Raises NotFoundError or BadInputError for keys that cannot be used.
    """
    from dataclasses import replace

    from assay_serving.model_reference import find_workspace
    from assay_serving.server.auth.key_store import FILE, read_keys

    settings = config.settings
    there = True
    if settings.keys_file is None:
        found = find_workspace(Path(config.workspace) if config.workspace else None)
        there = found is not None and (found.root / FILE).is_file()
        if found is not None and (there or settings.api_keys):  # beside a plain key, one made later is taken too
            settings = replace(settings, keys_file=str(found.root / FILE))
    if settings.keys_file is not None and there:
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
    host = InProcessBackend(scorers, config.settings, plans=plans, workspace=workspace)
    scorers.clear()  # the host alone holds a model, so that one can be unloaded
    serve_until_stopped(app_of(host, settings=config.settings), listening, lambda: announce(infos), tls=config.tls)


def _plain(value: Any) -> Any:
    """As the configuration has it: paths as text, lists as tuples."""
    if isinstance(value, Path):
        return str(value.absolute())
    return tuple(value) if isinstance(value, list) else value


def _example(url: str, info: ModelInfo, *, named: bool, with_key: bool) -> str:
    body: dict[str, object] = {"prompt": "Name a metal.", "responses": ["Gold.", "Glass."]}
    if info.kind == "principle":
        body["principle"] = "correctness"
    key = ' -H "Authorization: Bearer $ASSAY_API_KEY"' if with_key else ""
    sent = json.dumps({"model": info.name, **body} if named else body)
    return f"try: curl {url}/v1/score{key} -H 'Content-Type: application/json' -d '{sent}'"
