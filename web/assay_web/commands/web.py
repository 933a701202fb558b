"""`assay web`: annotate, look and decide in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli.options import WorkspaceOption
from assay.errors import BadInputError

if TYPE_CHECKING:
    import socket

    from assay_web.server.settings import RewardServer

LOOPBACK = ("127.0.0.1", "::1", "localhost")


def web(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 picks a free one.")] = 8080,
    open_access: Annotated[
        bool, typer.Option("--open", help="No accounts: everybody who reaches it may do everything. Loopback only.")
    ] = False,
    reward_server: Annotated[
        list[str] | None,
        typer.Option(
            "--rewards",
            metavar="URL",
            help="Reward server that the pages may ask; repeatable.",
            show_default=False,
        ),
    ] = None,
    reward_key: Annotated[
        str | None,
        typer.Option("--rewards-key", envvar="ASSAY_API_KEY", help="Key of those servers.", show_default=False),
    ] = None,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(help="Name that browsers call it by; repeatable. Others are refused.", show_default=False),
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option("--tls-cert", help="Certificate (PEM): https.", show_default=False)
    ] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", help="Its key (PEM).", show_default=False)] = None,
    workspace: WorkspaceOption = None,
) -> None:
    """Serve the workspace's pages: annotation, curation, data, rewards, runs.

    Example: `assay web --open`
    """
    from assay_serving.listening import claim_port
    from assay_web.server.settings import RewardServer

    servers = tuple(RewardServer(url.rstrip("/"), reward_key) for url in reward_server or ())
    if open_access and host not in LOOPBACK:
        raise BadInputError(f"--open is for this machine alone, not for {host}: leave it out and make accounts")
    listening = claim_port(host, port)
    try:
        run_web(
            listening,
            workspace=workspace,
            open_access=open_access,
            servers=servers,
            allowed_hosts=tuple(allowed_host or ()),
            tls_files=(tls_cert, tls_key),
        )
    finally:
        listening.close()


def run_web(
    listening: socket.socket,
    *,
    workspace: Path | None,
    open_access: bool,
    servers: tuple[RewardServer, ...],
    allowed_hosts: tuple[str, ...] = (),
    tls_files: tuple[Path | None, Path | None] = (None, None),
) -> None:
    """Serve on a claimed port until told to stop."""
    from assay.workspace import Workspace
    from assay_serving.listening import Tls, url_of
    from assay_serving.process import serve_until_stopped
    from assay_web.server.app import create_app
    from assay_web.server.page import MISSING
    from assay_web.server.settings import WebSettings

    cert, key = tls_files
    if (cert is None) != (key is None):
        raise BadInputError("--tls-cert and --tls-key go together")
    tls = Tls(str(cert), str(key)) if cert and key else None
    if tls is not None:
        tls.check()
    host = listening.getsockname()[0]
    settings = WebSettings(
        open_access=open_access,
        reward_servers=servers,
        secure_cookies=tls is not None,
        allowed_hosts=allowed_hosts or (("*",) if host not in LOOPBACK else WebSettings.allowed_hosts),
    )
    found = Workspace.find(workspace)
    app = create_app(found, settings)

    def ready() -> None:
        typer.echo(f"{found.root} at {url_of(listening, tls=tls)}", err=True)
        if not (settings.page / "index.html").is_file():
            typer.echo(MISSING, err=True)
        if open_access:
            typer.echo("open access: no accounts, everybody on this machine may do everything here", err=True)

    serve_until_stopped(app, listening, ready, tls=tls)
