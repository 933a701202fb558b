"""`assay web`: serves the workspace's pages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli.options import WorkspaceOption
from assay.errors import BadInputError

if TYPE_CHECKING:
    import socket

    from assay.http.listening import Tls
    from assay_web.service import WebService
    from assay_web.settings import RewardServer

LOOPBACK = ("127.0.0.1", "::1", "localhost")

HostOption = Annotated[str, typer.Option("--host", help="Address to listen on.")]
PortOption = Annotated[int, typer.Option("--port", min=0, max=65535, help="0 picks a free one.")]
OpenOption = Annotated[
    bool, typer.Option("--open", help="No accounts: everybody who reaches it may do everything. Loopback only.")
]
AllowedHostOption = Annotated[
    list[str] | None,
    typer.Option(
        "--allowed-host", help="Name that browsers call it by; repeatable. Others are refused.", show_default=False
    ),
]
ProxyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--proxy",
        metavar="ADDRESS",
        help="Address or network of a proxy in front, which is believed from whom and by which scheme a request came; "
        "repeatable.",
        show_default=False,
    ),
]
TlsCertOption = Annotated[Path | None, typer.Option("--tls-cert", help="Certificate (PEM): https.", show_default=False)]
TlsKeyOption = Annotated[Path | None, typer.Option("--tls-key", help="Its key (PEM).", show_default=False)]


def web(
    host: HostOption = "127.0.0.1",
    port: PortOption = 8080,
    open_access: OpenOption = False,
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
    allowed_host: AllowedHostOption = None,
    proxy: ProxyOption = None,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
    workspace: WorkspaceOption = None,
) -> None:
    """Serve the workspace's pages: annotation, curation, data, rewards, runs.

    At the first start it prints a link by which the first administrator makes an account.

    Example: `assay web --open`
    """
    from assay_web.settings import RewardServer

    servers = tuple(RewardServer(url.rstrip("/"), reward_key) for url in reward_server or ())
    tls = tls_of(tls_cert, tls_key)
    listening = claim_listener(host, port, open_access=open_access, proxies=proxy or ())
    try:
        run_web(
            listening,
            workspace=workspace,
            open_access=open_access,
            servers=servers,
            allowed_hosts=tuple(allowed_host or ()),
            proxies=tuple(proxy or ()),
            tls=tls,
        )
    finally:
        listening.close()


def claim_listener(host: str, port: int, *, open_access: bool, proxies: Sequence[str] = ()) -> socket.socket:
    """Claim the port before slow work. Raises BadInputError for an open server that other machines could reach."""
    from assay.http.listening import claim_port

    if open_access and host not in LOOPBACK:
        raise BadInputError(f"--open is for this machine alone, not for {host}: leave it out and make accounts")
    if open_access and proxies:
        raise BadInputError("--open is for this machine alone, and a proxy brings others: leave it out, make accounts")
    return claim_port(host, port)


def tls_of(cert: Path | None, key: Path | None) -> Tls | None:
    """Raises BadInputError and NotFoundError for files that are no certificate and its key."""
    from assay.http.listening import Tls

    if (cert is None) != (key is None):
        raise BadInputError("--tls-cert and --tls-key go together")
    if cert is None or key is None:
        return None
    tls = Tls(str(cert), str(key))
    tls.check()
    return tls


def run_web(
    listening: socket.socket,
    *,
    workspace: Path | None,
    open_access: bool,
    servers: tuple[RewardServer, ...],
    allowed_hosts: tuple[str, ...] = (),
    proxies: tuple[str, ...] = (),
    tls: Tls | None = None,
) -> None:
    """Serve on a claimed port until told to stop."""
    from assay.http.listening import url_of
    from assay.http.running import serve_until_stopped
    from assay.workspace import Workspace
    from assay_web.app import create_app
    from assay_web.server.page import MISSING
    from assay_web.settings import WebSettings

    local = listening.getsockname()[0] in LOOPBACK
    local_names = WebSettings.allowed_hosts
    settings = WebSettings(
        open_access=open_access,
        reward_servers=servers,
        secure_cookies=tls is not None,
        allowed_hosts=(*local_names, *allowed_hosts) if local or allowed_hosts else ("*",),
    )
    opened = Workspace.find(workspace)
    app = create_app(opened, settings)

    def ready() -> None:
        url = url_of(listening, tls=tls)
        typer.echo(f"{opened.root} at {url}", err=True)
        if not (settings.page / "index.html").is_file():
            typer.echo(MISSING, err=True)
        for line in access_lines(app.state.service, url):
            typer.echo(line, err=True)
        if not local and tls is None and not proxies:
            typer.echo(
                "passwords travel in the clear: give --tls-cert and --tls-key, or put a proxy before it", err=True
            )

    serve_until_stopped(app, listening, ready, tls=tls, proxies=proxies)


def access_lines(service: WebService, url: str) -> list[str]:
    """Lines about access to print at the start; creates the first administrator's link if there are no accounts."""
    from assay_web.accounts.accounts import has_accounts
    from assay_web.accounts.invitations import link_of, setup_token

    accounts = has_accounts(service.access)
    if service.settings.open_access:
        note = "the workspace's accounts play no part" if accounts else "no accounts"
        return [f"open access: {note}, everybody on this machine may do everything here"]
    if accounts:
        return []
    return [
        "no accounts yet. The first administrator makes one here, once, within a day:",
        f"  {link_of(url, setup_token(service.access))}",
    ]
