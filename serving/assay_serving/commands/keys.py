"""`assay keys`: API keys of the reward server: create, list, revoke."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.options import JsonOption, WorkspaceOption, emit

if TYPE_CHECKING:
    from assay_serving.server.auth.key_store import KeyEntry

KeysFileOption = Annotated[
    Path | None,
    typer.Option(
        "--keys-file",
        envvar="ASSAY_KEYS_FILE",
        help="File of API keys. Default: keys.json of the workspace.",
        show_default=False,
    ),
]


def register(app: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, help="API keys of the reward server: create, list, revoke.")
    group.command("create")(create)
    group.command("list")(list_keys)
    group.command("revoke")(revoke)
    app.add_typer(group, name="keys")


def create(
    name: Annotated[str, typer.Argument(help="Name of its user, shown in logs and metrics.")],
    scope: Annotated[
        list[str] | None, typer.Option(help="score, admin or read; repeatable. Every key may read.  [default: score]")
    ] = None,
    requests_per_minute: Annotated[float | None, typer.Option(help="Beyond it 429.", show_default=False)] = None,
    items_per_minute: Annotated[float | None, typer.Option(help="Beyond it 429.", show_default=False)] = None,
    models: Annotated[
        list[str] | None,
        typer.Option(
            help="Served name of a model that it may use; repeatable, or a,b. Default: all.", show_default=False
        ),
    ] = None,
    expires: Annotated[
        str | None, typer.Option(help="12h, 90d, 4w, or a date as 2030-01-31. Default: never.", show_default=False)
    ] = None,
    keys_file: KeysFileOption = None,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create an API key. It is printed once; only its hash is stored. A running server accepts it within a second.

    Example: `assay keys create trainer --scope score --requests-per-minute 600 --items-per-minute 20000 --expires 90d`
    """
    from assay_serving.server.auth.key_store import create_key

    path = locate_keys_file(keys_file, workspace)
    key, entry = create_key(
        path,
        name,
        scope or ["score"],
        requests_per_minute=requests_per_minute,
        items_per_minute=items_per_minute,
        expires=expires,
        models=None if models is None else [name.strip() for given in models for name in given.split(",")],
    )
    if not as_json:
        typer.echo(f"{_readable(entry)}\nshown once; {path} keeps only its hash", err=True)
    emit({"key": key, "file": str(path), **_public(entry)}, key, as_json=as_json)


def list_keys(keys_file: KeysFileOption = None, workspace: WorkspaceOption = None, as_json: JsonOption = False) -> None:
    """List the API keys: names, scopes, models and limits, never the keys.

    Example: `assay keys list`
    """
    from assay_serving.server.auth.key_store import read_keys

    path = locate_keys_file(keys_file, workspace)
    entries = read_keys(path).entries
    text = "\n".join(_readable(entry) for entry in entries) or f"no keys in {path}: the server accepts no request"
    emit({"file": str(path), "keys": [_public(entry) for entry in entries]}, text, as_json=as_json)


def revoke(
    name: Annotated[str, typer.Argument(help="Name or id of the key.")],
    keys_file: KeysFileOption = None,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Revoke an API key. A running server refuses it within a second.

    Example: `assay keys revoke trainer`
    """
    from assay_serving.server.auth.key_store import revoke_key

    path = locate_keys_file(keys_file, workspace)
    entry = revoke_key(path, name)
    emit(
        {"revoked": entry.name, "id": entry.id, "file": str(path)},
        f"revoked {entry.name} ({entry.id})",
        as_json=as_json,
    )


def locate_keys_file(keys_file: Path | None, workspace: Path | None) -> Path:
    """`keys_file`, else `keys.json` of the workspace. Raises NotFoundError where there is neither."""
    from assay.errors import NotFoundError
    from assay_serving.model_reference import find_workspace
    from assay_serving.server.auth.key_store import FILE

    if keys_file is not None:
        return keys_file.expanduser()
    opened = find_workspace(workspace)
    if opened is None:
        raise NotFoundError("no workspace here to keep keys in: name a file with --keys-file or ASSAY_KEYS_FILE")
    return opened.root / FILE


def _public(entry: "KeyEntry") -> dict[str, Any]:
    """The entry without its hash."""
    return {name: value for name, value in asdict(entry).items() if name != "hash"} | {"expired": _is_past(entry)}


def _readable(entry: "KeyEntry") -> str:
    rates = ((entry.requests_per_minute, "requests"), (entry.items_per_minute, "items"))
    limits = " and ".join(f"{rate:g} {what}" for rate, what in rates if rate is not None)
    until = "never expires" if entry.expires is None else f"expires {entry.expires}"
    if _is_past(entry):
        until = f"EXPIRED {entry.expires}"
    scopes = ", ".join(entry.scopes)
    models = "" if entry.models is None else f" with {', '.join(entry.models)} only"
    rate_limit = f"{limits} a minute" if limits else "no rate limit"
    return f"{entry.name} ({entry.id}): {scopes}{models}; {rate_limit}; {until}"


def _is_past(entry: "KeyEntry") -> bool:
    import time

    return time.time() >= entry.expires_at
