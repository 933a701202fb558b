"""Rate limits on sign-ins: leaky buckets of failures in the access file.

Three buckets apply: per account and address, per address, and per account over all addresses. The last is much larger
and skips addresses the account has signed in from, so that others cannot lock its owner out. Each attempt takes one
from each; the right password returns it. Unknown names have buckets too, so that a refusal does not reveal which names
exist. Leaves out: passwords.
"""

import math
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from ipaddress import IPv6Address, ip_address

from assay.errors import RateLimitError
from assay_web.accounts.access_file import AccessFile
from assay_web.accounts.accounts import plain_name
from assay_web.settings import SignInLimits

MOST_KEPT = 10_000  #: buckets; the least used are deleted first
KNOWN_S = 90 * 86400.0  #: how long an address counts as known for an account
NAME_BITS = 16  #: of a name's digest that are stored: a password may be typed as a name


@dataclass(frozen=True)
class _Bucket:
    key: str
    most: int
    refill_s: float

    def used(self, db: sqlite3.Connection, now: float) -> float:
        row = db.execute("SELECT used, at FROM attempts WHERE key = ?", (self.key,)).fetchone()
        if row is None:
            return 0.0
        used, at = float(row["used"]), float(row["at"])
        # A clock that was set back must not lock users out.
        return 0.0 if at > now + 1 else max(0.0, used - max(0.0, now - at) * self.most / self.refill_s)


class SignInAttempts:
    """The buckets of a workspace, shared by its servers and kept over restarts. Thread-safe."""

    def __init__(self, access: AccessFile, limits: SignInLimits, *, clock: Callable[[], float] = time.time) -> None:
        self.limits = limits
        self._access = access
        self._clock = clock

    def take(self, name: str, address: str) -> None:
        """Call before checking the password. Raises RateLimitError with the time to wait, and then takes nothing."""
        now = self._clock()
        with self._access.writing(durable=False) as db:
            usage = [(bucket, bucket.used(db, now)) for bucket in self._buckets(db, name, address, now)]
            wait = max((used + 1 - bucket.most) * bucket.refill_s / bucket.most for bucket, used in usage)
            if wait > 1e-6:
                seconds = math.ceil(wait)
                raise RateLimitError(f"too many attempts to sign in: try again in {seconds} s", retry_after=wait)
            for bucket, used in usage:
                _keep(db, bucket, used + 1, now)
            self._forget(db, now)

    def give_back(self, name: str, address: str) -> None:
        """Call after the right password; the address is known from now on."""
        now, account = self._clock(), _account_key(name)
        with self._access.writing(durable=False) as db:
            for bucket in self._buckets(db, name, address, now):
                _keep(db, bucket, max(0.0, bucket.used(db, now) - 1), now)
            db.execute("INSERT OR REPLACE INTO known_addresses VALUES (?, ?, ?)", (account, network_of(address), now))

    def _buckets(self, db: sqlite3.Connection, name: str, address: str, now: float) -> list[_Bucket]:
        limits, network = self.limits, network_of(address)
        marked = sha256(_account_key(name).encode()).hexdigest()[: NAME_BITS // 4]
        buckets = [
            _Bucket(f"pair {marked} {network}", limits.by_pair, limits.refill_s),
            _Bucket(f"address {network}", limits.by_address, limits.refill_s),
        ]
        query = "SELECT 1 FROM known_addresses WHERE name = ? AND network = ? AND at > ?"
        if db.execute(query, (_account_key(name), network, now - KNOWN_S)).fetchone() is None:
            buckets.append(_Bucket(f"account {marked}", limits.by_account, limits.account_refill_s))
        return buckets

    def _forget(self, db: sqlite3.Connection, now: float) -> None:
        """Delete refilled buckets, and the least used ones if there are still too many."""
        longest = max(self.limits.refill_s, self.limits.account_refill_s)
        db.execute("DELETE FROM attempts WHERE at < ?", (now - longest,))
        db.execute("DELETE FROM known_addresses WHERE at < ?", (now - KNOWN_S,))
        (count,) = db.execute("SELECT count(*) FROM attempts").fetchone()
        if count > MOST_KEPT:
            query = "DELETE FROM attempts WHERE key IN (SELECT key FROM attempts ORDER BY used, at LIMIT ?)"
            db.execute(query, (count - MOST_KEPT // 2,))


def _keep(db: sqlite3.Connection, bucket: _Bucket, used: float, now: float) -> None:
    db.execute("INSERT OR REPLACE INTO attempts VALUES (?, ?, ?)", (bucket.key, used, now))


def _account_key(name: str) -> str:
    """The account's name as sign-in compares it."""
    return plain_name(name).casefold()


def network_of(address: str) -> str:
    """The network of one client: an IPv4 address, or the first 64 bits of an IPv6 address."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(IPv6Address(int(parsed) >> 64 << 64))
    return str(parsed)
