"""Which key a request carries, and what it opens.

Covers: plain keys of the command line, keys of the file, which is read again when it changes, comparing in constant
time, finding the key in a request's headers. Leaves out: the file (`keys`), which scope a route needs (`gate`).
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
from assay_serving.server.auth.key_store import SCOPES, Keys, id_of, read_keys
from assay_serving.server.core.scoring_backend import Client

logger = logging.getLogger("assay.serving")

LOOK_S = 1.0  #: how often the file is looked at: a revoked key opens nothing after this time


@dataclass(frozen=True, slots=True)
class Access:
    """Who asks and what its key opens."""

    client: Client
    scopes: frozenset[str]


OPEN = Access(Client(), frozenset(SCOPES))  #: of every caller, where no keys are set


@dataclass(frozen=True, slots=True)
class _Known:
    digest: str
    expires_at: float
    access: Access


class KeyRing:
    """The keys of one server. Raises NotFoundError or BadInputError for a file that cannot be used at the start; beside
    plain keys it may come later."""

    def __init__(
        self, plain: Sequence[str] = (), file: Path | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._file = file
        self._clock = clock
        #: False: no keys are set, and everybody may ask. A keys file without a key opens to nobody.
        self.needed = bool(plain) or file is not None
        names = ["api-key" if n == 0 else f"api-key-{n + 1}" for n in range(len(plain))]
        self._plain = [
            (_digest(key), Access(Client(name), frozenset(SCOPES))) for name, key in zip(names, plain, strict=True)
        ]
        self._keys = Keys("00" * hashlib.blake2b.SALT_SIZE)
        self._known: dict[str, _Known] = {}
        self._seen: tuple[int, ...] = ()
        self._next_look = -math.inf
        if file is not None:
            self._seen = _mark(file)
            if not plain or self._seen:
                self._take(read_keys(file))

    def find(self, key: str) -> Access | None:
        """What the key opens; None where it is unknown, revoked or expired."""
        if self._file is not None and self._clock() >= self._next_look:
            self._look()
        id_ = id_of(key)
        if id_ is not None and self._file is not None:
            known = self._known.get(id_)  # the id is no secret
            if known is None:
                return None
            fits = hmac.compare_digest(self._keys.hash_of(key), known.digest)
            return known.access if fits and time.time() < known.expires_at else None
        digest, found = _digest(key), None
        for own, access in self._plain:  # every one, each in constant time: no near miss shows
            if hmac.compare_digest(digest, own):
                found = access
        return found

    def _look(self) -> None:
        """Read the file again if it is another one. One that cannot be used leaves the keys as they are."""
        assert self._file is not None
        self._next_look = self._clock() + LOOK_S
        seen = _mark(self._file)
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._take(read_keys(self._file))
            logger.warning("keys file read again: %d keys", len(self._known))
        except AssayError as error:
            logger.error("keys file not usable, the %d keys from before stay: %s", len(self._known), error)

    def _take(self, keys: Keys) -> None:
        self._keys = keys
        self._known = {
            entry.id: _Known(
                entry.hash,
                entry.expires_at,
                Access(Client(entry.name, entry.requests_per_minute, entry.items_per_minute), frozenset(entry.scopes)),
            )
            for entry in keys.entries
        }


def key_in(authorization: str, x_api_key: str) -> str:
    """The key of a request's headers, empty where there is none.

    Bearer; Basic, which is what clients make of `http://anything:KEY@host` (the password, else the user name); a
    header of its own. Never the query: it is part of the address, which proxies write into their logs.
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
    """What changes whenever the file does; empty where it cannot be looked at."""
    try:
        found = os.stat(file)
    except OSError:
        return ()
    return (found.st_ino, found.st_mtime_ns, found.st_size, found.st_mode)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
