"""What the person who starts the web server decides."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from assay.http.request_body import BodyLimits

#: The page as `web/build_frontend.py` makes it; a wheel carries it.
BUILT_PAGE = Path(__file__).resolve().parent / "static"
#: Names another build of the page, for those who work on it.
PAGE_ENVIRONMENT = "ASSAY_WEB_PAGE"


def page_folder() -> Path:
    folder = os.environ.get(PAGE_ENVIRONMENT)
    return Path(folder) if folder else BUILT_PAGE


@dataclass(frozen=True)
class RewardServer:
    """A running reward server (`assay serve`) that the pages may ask. The key stays on this side."""

    url: str
    key: str | None = None


@dataclass(frozen=True)
class SignInLimits:
    """Failures in a row that are let through, and the seconds after which as many are again. `by_pair`: of an account
    from one address. `by_account`: of an account from all addresses that it has not signed in from."""

    by_pair: int = 10
    by_address: int = 30
    refill_s: float = 900.0
    by_account: int = 100
    account_refill_s: float = 3600.0


@dataclass(frozen=True)
class PasswordCost:
    """Of one argon2id hash. The defaults are RFC 9106's second choice: 64 MiB, 3 passes, 4 lanes.

    Hashes made at another cost stay valid, and are made anew when their owner signs in next.
    """

    passes: int = 3
    memory_kib: int = 64 * 1024
    lanes: int = 4


@dataclass(frozen=True)
class WebSettings:
    """`open_access`: nobody signs in, everybody may do everything; only ever on loopback. `allowed_hosts`: names that
    browsers may call this server by, "*" for any. `secure_cookies`: sent over https only."""

    open_access: bool = False
    allowed_hosts: tuple[str, ...] = ("127.0.0.1", "localhost", "[::1]")
    secure_cookies: bool = False
    reward_servers: tuple[RewardServer, ...] = ()
    page: Path = field(default_factory=page_folder)
    password_cost: PasswordCost = field(default_factory=PasswordCost)
    sign_in_limits: SignInLimits = field(default_factory=SignInLimits)
    body_limits: BodyLimits = field(default_factory=BodyLimits)
    session_idle_s: float = 12 * 3600.0  #: a session ends after so long without a request
    session_s: float = 14 * 86400.0  #: and after so long in any case
    store_wait_s: float = 3.0  #: for a page that reads the store; then it says who holds it
    header_timeout_s: float = 15.0  #: until a connection must have sent its request's headers
    fold_every_s: float = 5.0  #: between attempts to put votes into the store
