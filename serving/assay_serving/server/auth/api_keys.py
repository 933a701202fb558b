"""API keys of requests: checking a key, and its rate limits.

Covers: plain keys of the command line, keys of the file, which is reloaded when it changes, comparison in constant
time, the key in a request's headers; requests and items per minute and key as token buckets, with counters. Leaves out:
the file (`key_store`), the scope that a route needs (`middleware`), the bound of the queue (`batching`).

Rate limits run in the process of the models, so that they are exact however many processes accept requests. A bucket
holds one minute's worth and refills evenly, so that a trainer may send its whole batch at once: in any span of t
minutes a key gets at most (1 + t) times its rate.
"""

import base64
import binascii
import hashlib
import hmac
import logging
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter

from assay.errors import AssayError, BadInputError, BusyError, RateLimitError
from assay_serving.server.auth.key_store import ID, PREFIX, SCOPES, KeyFile, read_keys
from assay_serving.server.core.scoring_backend import Client

logger = logging.getLogger("assay.serving")

CHECK_S = 1.0  #: how often the file is checked: a revoked key is refused after this time


@dataclass(frozen=True, slots=True)
class Access:
    """The client and the scopes of its key."""

    client: Client
    scopes: frozenset[str]


OPEN = Access(Client(), frozenset(SCOPES))  #: of every client where no keys are set
PROBE = Access(Client(models=()), frozenset())  #: of health probes without a key where keys are set: sees no model


@dataclass(frozen=True, slots=True)
class _StoredKey:
    digest: str
    expires_at: float
    access: Access


class KeyRing:
    """The keys of one server. Raises NotFoundError or BadInputError for a file that cannot be used at the start; beside
    plain keys it may be created later."""

    def __init__(
        self, plain: Sequence[str] = (), file: Path | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._file = file
        self._clock = clock
        #: False: no keys are set, and every request is accepted. A keys file without keys accepts none.
        self.needed = bool(plain) or file is not None
        names = ["api-key" if n == 0 else f"api-key-{n + 1}" for n in range(len(plain))]
        self._plain = [
            (_digest(key), Access(Client(name), frozenset(SCOPES))) for name, key in zip(names, plain, strict=True)
        ]
        self._keys = KeyFile("00" * hashlib.blake2b.SALT_SIZE)
        self._stored: dict[str, _StoredKey] = {}
        self._seen: tuple[int, ...] = ()
        self._next_check = -math.inf
        if file is not None:
            self._seen = _mark(file)
            if not plain or self._seen:
                self._take(read_keys(file))

    def find(self, key: str) -> Access | None:
        """The access of a key; None where it is unknown, revoked or expired."""
        if self._file is not None and self._clock() >= self._next_check:
            self._reload()
        id_ = id_of(key)
        if id_ is not None and self._file is not None:
            stored = self._stored.get(id_)  # the id is not secret
            if stored is None:
                return None
            matches = hmac.compare_digest(self._keys.hash_of(key), stored.digest)
            return stored.access if matches and time.time() < stored.expires_at else None
        digest, match = _digest(key), None
        for plain_digest, access in self._plain:  # all of them, each in constant time
            if hmac.compare_digest(digest, plain_digest):
                match = access
        return match

    def _reload(self) -> None:
        """Reload the file if it has changed. A file that cannot be used leaves the keys as they are."""
        assert self._file is not None
        self._next_check = self._clock() + CHECK_S
        seen = _mark(self._file)
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._take(read_keys(self._file))
            logger.warning("keys file reloaded: %d keys", len(self._stored))
        except AssayError as error:
            logger.error("keys file not usable, the previous %d keys stay: %s", len(self._stored), error)

    def _take(self, keys: KeyFile) -> None:
        self._keys = keys
        self._stored = {
            entry.id: _StoredKey(
                entry.hash,
                entry.expires_at,
                Access(
                    Client(entry.name, entry.requests_per_minute, entry.items_per_minute, entry.models),
                    frozenset(entry.scopes),
                ),
            )
            for entry in keys.entries
        }


class _Bucket:
    """`rate`: tokens a minute, and the most it holds (one at least: less than one a minute is still one at a time)."""

    def __init__(self, rate: float, now: float) -> None:
        self.rate, self.most, self.held, self.at = rate, max(rate, 1.0), max(rate, 1.0), now

    def refill(self, rate: float, now: float) -> None:
        if rate != self.rate:  # the key has a new limit; what was used stays used
            most = max(rate, 1.0)
            self.held += most - self.most
            self.rate, self.most = rate, most
        self.held = min(self.most, self.held + (now - self.at) * rate / 60)
        self.at = now


class RateLimits:
    """The buckets of all keys. Labels of the counters are names of keys, of which there are as many as keys."""

    def __init__(
        self, registry: CollectorRegistry | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._buckets: dict[tuple[str, str], _Bucket] = {}
        registry = registry if registry is not None else CollectorRegistry()
        self._requests = Counter(
            "assay_client_requests", "Requests within their key's limits", ["client"], registry=registry
        )
        self._items = Counter("assay_client_items", "Items within their key's limits", ["client"], registry=registry)
        self._refused = Counter(
            "assay_client_refused", "Requests over their key's limits", ["client"], registry=registry
        )

    def reserve(self, client: Client, items: int) -> None:
        """Count one request of `items`; raises as `spend`."""
        self.spend(client, items)
        self._requests.labels(client.name).inc()
        self._items.labels(client.name).inc(items)

    def spend(self, client: Client, items: int) -> None:
        """Take one request of `items` off the limits, or raise RateLimitError, which consumes nothing and says when to
        retry.

        Raises BadInputError for a request that has more items than the key gets in a minute: it can never pass.
        """
        costs: list[tuple[str, float, float]] = []
        if client.requests_per_minute is not None:
            costs.append(("requests", client.requests_per_minute, 1.0))
        if client.items_per_minute is not None:
            costs.append(("items", client.items_per_minute, float(items)))
        if costs:
            self._spend(client.name, costs)

    @contextmanager
    def reserved(self, client: Client, items: int) -> Iterator[None]:
        """`reserve`, and `refund` where the block raises BusyError: the request was not processed."""
        self.reserve(client, items)
        try:
            yield
        except BusyError:
            self.refund(client, items)
            raise

    def refund(self, client: Client, items: int) -> None:
        """Undo a `reserve` for a request that was then not accepted, e.g. because the queue was full."""
        for what, amount in (("requests", 1.0), ("items", float(items))):
            if (bucket := self._buckets.get((client.name, what))) is not None:
                bucket.held = min(bucket.most, bucket.held + amount)

    def _spend(self, name: str, costs: list[tuple[str, float, float]]) -> None:
        now = self._clock()
        buckets: list[tuple[_Bucket, float]] = []
        wait, limit = 0.0, ""
        for what, rate, amount in costs:
            bucket = self._buckets.get((name, what))
            if bucket is None:
                bucket = self._buckets[name, what] = _Bucket(rate, now)
            bucket.refill(rate, now)
            if amount > bucket.most:
                raise BadInputError(f"{amount:.0f} items in one request; the key {name} may score {rate:g} a minute")
            buckets.append((bucket, amount))
            if (seconds := (amount - bucket.held) * 60 / rate) > max(wait, 1e-6):  # ignore rounding errors
                wait, limit = seconds, f"{rate:g} {what} a minute"
        if limit:
            self._refused.labels(name).inc()
            raise RateLimitError(f"the key {name} may use {limit}", retry_after=wait)
        for bucket, amount in buckets:
            bucket.held -= amount


def id_of(key: str) -> str | None:
    """The public part of an Assay key, None for any other text."""
    parts = key.split("_", 2)
    return parts[1] if len(parts) == 3 and key.startswith(PREFIX) and ID.fullmatch(parts[1]) else None


def key_in(authorization: str, x_api_key: str) -> str:
    """The key in a request's headers, empty where there is none.

    Bearer; Basic, which clients send for `http://anything:KEY@host` (the password, else the user name); X-API-Key.
    Never the query string: proxies write it into their logs.
    """
    scheme, _, token = authorization.partition(" ")
    scheme = scheme.lower()
    if scheme == "bearer":
        return token.strip()
    if scheme == "basic":
        try:
            user, _, password = base64.b64decode(token.strip(), validate=True).decode("utf-8").partition(":")
        except (binascii.Error, ValueError):
            return ""
        return password or user
    return x_api_key.strip()


def _mark(file: Path) -> tuple[int, ...]:
    """Changes whenever the file does; empty where it cannot be read."""
    try:
        status = os.stat(file)
    except OSError:
        return ()
    return (status.st_ino, status.st_mtime_ns, status.st_size, status.st_mode)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
