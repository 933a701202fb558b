"""Settings of the web server: access, limits, reward servers."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from assay.backups.schedule import BackupSchedule
from assay.http.request_body import BodyLimits


@dataclass(frozen=True)
class UploadLimits:
    """`most_bytes`: of one file. `spare_bytes`: of the disk that uploads leave free, for votes and the store."""

    most_bytes: int = 100 << 30
    spare_bytes: int = 1 << 30


#: The page as built by `web/build_frontend.py`; included in the wheel.
BUILT_PAGE = Path(__file__).resolve().parent / "static"
#: Environment variable with the folder of another build of the page, for development.
PAGE_ENVIRONMENT = "ASSAY_WEB_PAGE"


def page_folder() -> Path:
    folder = os.environ.get(PAGE_ENVIRONMENT)
    return Path(folder) if folder else BUILT_PAGE


@dataclass(frozen=True)
class RewardServer:
    """A running reward server (`assay serve`) that the pages may query. Its key is never sent to browsers."""

    url: str
    key: str | None = None


@dataclass(frozen=True)
class SignInLimits:
    """Failures allowed in a row, and the seconds after which the allowance is full again. `by_pair`: of an account
    from one address. `by_account`: of an account from all addresses that it has not signed in from."""

    by_pair: int = 10
    by_address: int = 30
    refill_s: float = 900.0
    by_account: int = 100
    account_refill_s: float = 3600.0


@dataclass(frozen=True)
class PasswordCost:
    """Cost of one argon2id hash. Defaults: the second recommended option of RFC 9106 (64 MiB, 3 passes, 4 lanes).

    Hashes of another cost stay valid and are recomputed at the next sign-in.
    """

    passes: int = 3
    memory_kib: int = 64 * 1024
    lanes: int = 4


@dataclass(frozen=True)
class OidcSettings:
    """An OpenID provider to sign in by. `issuer`: as its tokens name it. `name_claim`: of a new account's name.
    `role_claim`: whose values `roles` turns into roles, at each sign-in; None: administrators give roles here.
    `default_role`: where no value has one; None: then nobody comes in. `project`: that new accounts are members of.
    `label`: what the button calls it."""

    issuer: str
    client_id: str
    client_secret: str | None = None
    scope: str = "openid profile email"
    name_claim: str = "preferred_username"
    role_claim: str | None = None
    roles: tuple[tuple[str, Literal["viewer", "annotator", "curator", "admin"]], ...] = ()
    default_role: Literal["viewer", "annotator", "curator", "admin"] | None = None
    project: str = "default"
    label: str = "single sign-on"


@dataclass(frozen=True)
class WebSettings:
    """`open_access`: no accounts, every visitor is an administrator; loopback only. `allowed_hosts`: accepted names
    in the Host header, "*" for any. `secure_cookies`: cookies are sent over https only."""

    open_access: bool = False
    allowed_hosts: tuple[str, ...] = ("127.0.0.1", "localhost", "[::1]")
    secure_cookies: bool = False
    reward_servers: tuple[RewardServer, ...] = ()
    oidc: OidcSettings | None = None
    page: Path = field(default_factory=page_folder)
    password_cost: PasswordCost = field(default_factory=PasswordCost)
    sign_in_limits: SignInLimits = field(default_factory=SignInLimits)
    body_limits: BodyLimits = field(default_factory=BodyLimits)
    session_idle_s: float = 12 * 3600.0  #: a session ends after this long without a request
    session_s: float = 14 * 86400.0  #: and after this long in any case
    store_wait_s: float = 3.0  #: how long a page waits for the store before it reports the holder
    header_timeout_s: float = 15.0  #: within which a connection must send its request headers
    uploads: UploadLimits = field(default_factory=UploadLimits)
    import_roots: tuple[Path, ...] = ()  #: folders beside the workspace whose files curators may import
    backups: BackupSchedule = field(default_factory=BackupSchedule)
    webhooks_every_s: float = 5.0  #: between looks for events that webhooks are told
    fold_every_s: float = 5.0  #: between attempts to fold votes into the store
