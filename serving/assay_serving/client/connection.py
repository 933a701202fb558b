"""Settings of both clients, and their connection pools."""

import os
import re
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from typing import Annotated, Generic, Literal, TypeVar
from urllib.parse import urlsplit

import httpx
from annotated_types import Ge, Gt

from assay.errors import BadInputError, NotFoundError
from assay.settings import check_settings
from assay_serving.client.retries import RetryPolicy

CONNECT_S = 5.0
TRY_S = 180.0  #: of one try, where neither it nor the whole request has a limit of its own
POOL_SIZE = 8  #: connections of one httpx pool, whose bookkeeping is quadratic: 64 in one cost 8 ms a request
KEEP_ALIVE_S = 30.0  #: shorter than the server's, so that no request meets a connection being closed

API_KEY_VARIABLE = "ASSAY_API_KEY"

C = TypeVar("C", httpx.Client, httpx.AsyncClient)
#: The end of an address that is a route's: the client adds the routes itself. Not `//score`: a host of that name.
_ROUTE = re.compile(
    r"(?<!/)((/v[12])?/(score(/evaluation)?|compare|principles|models|rank|rerank|classify|pooling|embeddings|get_reward"
    r"|reward|verify|slime|(de)?tokenize|chat/completions|health)|/v1)/?$"
)
PriorityName = Literal["interactive", "bulk"]


@dataclass(eq=False)
class ConnectionSettings:
    """`url`: of a server, or of several with the same model, separated by commas: each prompt has its home among them,
    and another one takes it while that is away. `model`: which one, where the server has several. `api_key`:
    $ASSAY_API_KEY where none is given. `timeout`: seconds of one try, None = as long as the deadline leaves;
    `deadline`: seconds of one request with all its tries and pauses, None = no limit, but 180 of one try; `retries`:
    tries after the first, where a retry can help. `priority`: interactive (the server's default) goes before bulk.
    `ca`: a file of certificate authorities for https, in place of the default ones.

    A failure of a whole request (server gone, queue full until the deadline, wrong key) raises an `AssayError`, or with
    `failures_in_place` becomes a `ScoreFailure` for each of that request's items, so that a training step keeps the
    scores it has and masks the rest.
    """

    url: str
    _: KW_ONLY
    api_key: str | None = field(default=None, repr=False)
    model: str | None = None
    timeout: Annotated[float | None, Gt(0)] = None
    deadline: Annotated[float | None, Gt(0)] = 600.0
    retries: Annotated[int, Ge(0)] = 5
    max_items_per_request: Annotated[int, Gt(0)] = 64
    max_concurrency: Annotated[int, Gt(0)] = 16
    failures_in_place: bool = False
    priority: PriorityName | None = None
    ca: str | None = None

    def __post_init__(self) -> None:
        check_settings(self)
        for url in self.urls:
            check_address(url, "url")
            if (base := _ROUTE.sub("", url)) != url:
                text = f"{url} is a route of a server, whose address is asked for: {base}"
                raise BadInputError(text, field="url")
            if self.urls.count(url) > 1:
                raise BadInputError(f"{url} is named twice", field="url")
        if not (self.key.isascii() and self.key.isprintable()):
            raise BadInputError("holds characters that no header can carry", field="api_key")

    @property
    def urls(self) -> list[str]:
        return split_urls(self.url)

    @property
    def key(self) -> str:
        """`api_key`, else $ASSAY_API_KEY, which is then in no copy or pickle of the settings."""
        return self.api_key if self.api_key is not None else os.environ.get(API_KEY_VARIABLE, "")

    @property
    def policy(self) -> RetryPolicy:
        return RetryPolicy(retries=self.retries, deadline=self.deadline)

    def timeout_within(self, remaining: float | None) -> httpx.Timeout:
        """Time limits of one try, within the deadline: at most `timeout`, and without one all that `remaining` leaves,
        since a try that timed out is not repeated."""
        limits = [limit for limit in (self.timeout, remaining) if limit is not None]
        seconds = max(0.001, min(limits, default=TRY_S))
        return httpx.Timeout(seconds, connect=min(CONNECT_S, seconds))

    def pools(self, client_class: Callable[..., C]) -> "Pools[C]":
        """Enough httpx clients for `max_concurrency` connections."""
        headers = {"User-Agent": "assay-reward-client"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        certificates = self.certificates()  # read once, not once a pool
        size = min(POOL_SIZE, self.max_concurrency)
        limits = httpx.Limits(max_connections=size, max_keepalive_connections=size, keepalive_expiry=KEEP_ALIVE_S)
        clients: list[C] = [
            client_class(
                base_url=self.urls[0],
                headers=headers,
                limits=limits,
                verify=certificates,
                trust_env=uses_proxy(*self.urls),
            )
            for _ in range(-(-self.max_concurrency // POOL_SIZE))
        ]
        return Pools(clients)

    def certificates(self) -> ssl.SSLContext:
        """Certificate authorities for https: those in `ca` only, else httpx's defaults.

        Raises NotFoundError for a missing file, BadInputError for one without certificates.
        """
        if self.ca is not None:
            try:
                return ssl.create_default_context(cafile=self.ca)
            except FileNotFoundError as error:
                raise NotFoundError(f"no such file: {self.ca}") from error
            except (OSError, ssl.SSLError) as error:
                raise BadInputError(f"no certificates to read: {error}", file=self.ca) from error
        if all(urlsplit(url).scheme == "http" for url in self.urls):
            return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # trusts none, and is cheap to create
        return httpx.create_ssl_context()


def check_address(url: str, field: str) -> None:
    """Raises BadInputError for anything but an http(s) address."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise BadInputError(f"not an http(s) address: {url!r}", field=field)


def uses_proxy(*urls: str) -> bool:
    """Whether httpx may take a proxy from the environment: none can reach this machine's own loopback address."""
    return any(urlsplit(url).hostname not in ("127.0.0.1", "::1", "localhost") for url in urls)


def split_urls(text: str) -> list[str]:
    """The addresses of equal servers, separated by commas."""
    return [url.strip().rstrip("/") for url in re.split(r",(?=\s*[a-z]+://)", text)]


class Pools(Generic[C]):
    """Several httpx clients; each request goes to the least busy one."""

    def __init__(self, clients: list[C]) -> None:
        self.clients: list[C] = clients
        self._busy = [0] * len(clients)
        self._lock = threading.Lock()

    @contextmanager
    def least_busy(self) -> Iterator[C]:
        with self._lock:
            index = self._busy.index(min(self._busy))
            self._busy[index] += 1
        try:
            yield self.clients[index]
        finally:
            with self._lock:
                self._busy[index] -= 1
