"""`assay web`: serves the workspace's pages."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from annotated_types import Ge, Gt, Le

from assay.cli.options import WorkspaceOption
from assay.cli.settings_options import settings_options
from assay.errors import BackendError, BadInputError
from assay.settings import Help, check_settings

if TYPE_CHECKING:
    import socket

    from assay.backups.schedule import BackupSchedule
    from assay.http.listening import Tls
    from assay_web.service import WebService
    from assay_web.settings import OidcSettings, RewardServer

LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True)
class WebOptions:
    """Where the pages are served, and to whom."""

    host: Annotated[str, Help("Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, Ge(0), Le(65535), Help("0 picks a free one.")] = 8080
    open_access: Annotated[
        bool, Help("No accounts: everybody who reaches it may do everything. Loopback only.", "--open")
    ] = False
    allowed_hosts: Annotated[
        tuple[str, ...], Help("Name that browsers call it by; repeatable. Others are refused.", "--allowed-host")
    ] = ()
    proxies: Annotated[
        tuple[str, ...],
        Help(
            "Address or network of a proxy in front, which is believed from whom and by which scheme a request came; "
            "repeatable.",
            "--proxy",
            metavar="ADDRESS",
        ),
    ] = ()
    import_roots: Annotated[
        tuple[Path, ...],
        Help(
            "Folder whose files curators may import, beside uploads and the workspace's folder data; repeatable.",
            "--import-root",
            metavar="FOLDER",
        ),
    ] = ()
    upload_limit: Annotated[float, Gt(0), Help("Size that an uploaded file may have, in GB.")] = 100.0
    tls_cert: Annotated[Path | None, Help("Certificate (PEM): https.")] = None
    tls_key: Annotated[Path | None, Help("Its key (PEM).")] = None
    oidc_issuer: Annotated[
        str | None, Help("OpenID provider to sign in by, as its tokens name it.", envvar="ASSAY_OIDC_ISSUER")
    ] = None
    oidc_client_id: Annotated[str | None, Help("Of this server there.", envvar="ASSAY_OIDC_CLIENT_ID")] = None
    oidc_name_claim: Annotated[str, Help("Claim with the name of a new account.")] = "preferred_username"
    oidc_role_claim: Annotated[str | None, Help("Claim whose values give roles, at each sign-in.")] = None
    oidc_roles: Annotated[
        tuple[str, ...], Help("Role of who has a value of that claim; repeatable.", "--oidc-role", metavar="VALUE=ROLE")
    ] = ()
    oidc_default_role: Annotated[
        Literal["viewer", "annotator", "curator", "admin"] | None,
        Help("Role without such a value. Default: nobody comes in without one."),
    ] = None
    oidc_project: Annotated[str, Help("Project that new accounts are members of.")] = "default"
    oidc_label: Annotated[str, Help("What the button calls the provider.")] = "single sign-on"
    backup_every: Annotated[float, Ge(0), Help("Hours between backups of the workspace; 0 makes none.")] = 0.0
    backup_to: Annotated[Path | None, Help("Folder of the backups; default: backups/ in the workspace.")] = None
    backup_keep: Annotated[int, Ge(1), Help("Backups that stay; older ones are removed.")] = 7

    def __post_init__(self) -> None:
        check_settings(self)
        alone = "--open is for this machine alone"
        if self.open_access and self.host not in LOOPBACK:
            raise BadInputError(f"{alone}, not for {self.host}: leave it out and make accounts")
        if self.open_access and self.proxies:
            raise BadInputError(f"{alone}, and a proxy brings others: leave it out, make accounts")
        if self.open_access and self.oidc_issuer is not None:
            raise BadInputError(f"{alone}, without accounts: leave it out to sign in by a provider")
        if (self.oidc_issuer is None) != (self.oidc_client_id is None):
            raise BadInputError("--oidc-issuer and --oidc-client-id go together")
        if missing := next((root for root in self.import_roots if not root.is_dir()), None):
            raise BadInputError("is no folder", file=missing)
        if (self.tls_cert is None) != (self.tls_key is None):
            raise BadInputError("--tls-cert and --tls-key go together")

    def tls(self) -> Tls | None:
        """Raises BadInputError and NotFoundError for files that are no certificate and its key."""
        from assay.http.listening import Tls

        if self.tls_cert is None or self.tls_key is None:
            return None
        tls = Tls(str(self.tls_cert), str(self.tls_key))
        tls.check()
        return tls

    def oidc(self) -> OidcSettings | None:
        """The client's secret is $ASSAY_OIDC_CLIENT_SECRET: process listings show options. Raises BadInputError;
        BackendError without the packages."""
        if self.oidc_issuer is None or self.oidc_client_id is None:
            return None
        import os
        from importlib.util import find_spec

        from assay_web.accounts.provider import require_secure
        from assay_web.settings import OidcSettings

        if any(find_spec(package) is None for package in ("authlib", "joserfc", "requests")):
            raise BackendError("signing in by a provider needs the extra `oidc`: pip install 'assay[oidc]'")
        require_secure(self.oidc_issuer, "--oidc-issuer")
        roles: list[Any] = [tuple(pair.rpartition("=")[::2]) for pair in self.oidc_roles]
        for value, role in roles:
            if not value or role not in ("viewer", "annotator", "curator", "admin"):
                raise BadInputError("VALUE=ROLE, with one of viewer, annotator, curator, admin", field="--oidc-role")
        if roles and self.oidc_role_claim is None:
            raise BadInputError("name the claim that has these values: --oidc-role-claim", field="--oidc-role")
        if not roles and self.oidc_default_role is None:
            raise BadInputError("nobody could come in: give --oidc-default-role, or --oidc-role-claim and --oidc-role")
        return OidcSettings(
            self.oidc_issuer,
            self.oidc_client_id,
            os.environ.get("ASSAY_OIDC_CLIENT_SECRET") or None,
            name_claim=self.oidc_name_claim,
            role_claim=self.oidc_role_claim,
            roles=tuple(roles),
            default_role=self.oidc_default_role,
            project=self.oidc_project,
            label=self.oidc_label,
        )

    def backups(self) -> BackupSchedule:
        from assay.backups.schedule import BackupSchedule

        return BackupSchedule(self.backup_every, self.backup_to, self.backup_keep)

    def claim(self) -> socket.socket:
        """The port, claimed before slow work."""
        from assay.http.listening import claim_port

        return claim_port(self.host, self.port)


@settings_options(WebOptions)
def web(
    options: WebOptions,
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
    workspace: WorkspaceOption = None,
) -> None:
    """Serve the workspace's pages: annotation, curation, data, rewards, runs.

    At the first start it prints a link by which the first administrator makes an account.

    Example: `assay web --open`
    """
    from assay_web.settings import RewardServer

    servers = tuple(RewardServer(url.rstrip("/"), reward_key) for url in reward_server or ())
    tls = options.tls()
    with closing(options.claim()) as listening:
        run_web(listening, options, tls, servers=servers, workspace=workspace)


def run_web(
    listening: socket.socket,
    options: WebOptions,
    tls: Tls | None,
    *,
    servers: tuple[RewardServer, ...],
    workspace: Path | None,
) -> None:
    """Serve on a claimed port until told to stop."""
    from assay.http.listening import url_of
    from assay.http.running import serve_until_stopped
    from assay.workspace import Workspace
    from assay_web.app import create_app
    from assay_web.server.page import MISSING
    from assay_web.settings import UploadLimits, WebSettings

    local = listening.getsockname()[0] in LOOPBACK
    local_names = WebSettings.allowed_hosts
    settings = WebSettings(
        open_access=options.open_access,
        reward_servers=servers,
        backups=options.backups(),
        oidc=options.oidc(),
        uploads=UploadLimits(most_bytes=int(options.upload_limit * 10**9)),
        import_roots=tuple(root.resolve() for root in options.import_roots),
        secure_cookies=tls is not None,
        allowed_hosts=(*local_names, *options.allowed_hosts) if local or options.allowed_hosts else ("*",),
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
        if not local and tls is None and not options.proxies:
            typer.echo(
                "passwords travel in the clear: give --tls-cert and --tls-key, or put a proxy before it", err=True
            )

    serve_until_stopped(app, listening, ready, tls=tls, proxies=options.proxies)


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
