"""Checking the API key of a request.

Covers: plain keys of the command line, keys of the file, which is reloaded when it changes, comparison in constant
time, the key in a request's headers. Leaves out: the file (`key_store`), the scope that a route needs (`middleware`).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import logging
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from assay.errors import AssayError
from assay_serving.server.auth.key_store import SCOPES, KeyFile, id_of, read_keys
from assay_serving.server.core.scoring_backend import Client

logger = logging.getLogger("assay.serving")

CHECK_S = 1.0  #: how often the file is checked: a revoked key is refused after this time


@dataclass(frozen=True, slots=True)
class Access:
    """The client and the scopes of its key."""

    client: Client
    scopes: frozenset[str]


OPEN = Access(Client(), frozenset(SCOPES))  #: of every client where no keys are set


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
                Access(Client(entry.name, entry.requests_per_minute, entry.items_per_minute), frozenset(entry.scopes)),
            )
            for entry in keys.entries
        }


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
