"""How often somebody may try to sign in, by account and by address: buckets of failures that refill evenly.

A failure takes one from both; a success gives them back. Names without an account have buckets like the others, so
that being refused says nothing of which names there are. Leaves out: passwords.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address

from assay.errors import RateLimitError
from assay_web.access.accounts import plain_name

MOST_KEPT = 10_000  #: buckets; full ones are dropped first


@dataclass(frozen=True)
class SignInLimits:
    """Failures in a row that are let through, and the seconds after which as many are again."""

    by_account: int = 10
    by_address: int = 30
    refill_s: float = 900.0


class Attempts:
    """The buckets of one server, in memory: a restart forgets them. Threads may share it."""

    def __init__(self, limits: SignInLimits, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self._clock = clock
        self._turn = threading.Lock()
        self._used: dict[tuple[str, str], tuple[float, float]] = {}  #: how much was taken, as of when

    def take(self, name: str, address: str) -> None:
        """Before the password is looked at. Raises RateLimitError, which takes nothing, and says when to come back."""
        now = self._clock()
        with self._turn:
            wait = 0.0
            found = []
            for key, most in self._buckets(name, address):
                used = self._now(key, most, now)
                found.append((key, used))
                wait = max(wait, (used + 1 - most) * self.limits.refill_s / most)
            if wait > 1e-6:
                seconds = math.ceil(wait)
                raise RateLimitError(f"too many attempts to sign in: try again in {seconds} s", retry_after=wait)
            for key, used in found:
                self._used[key] = (used + 1, now)
            if len(self._used) > MOST_KEPT:
                self._forget(now)

    def give_back(self, name: str, address: str) -> None:
        """It was the right password."""
        now = self._clock()
        with self._turn:
            for key, most in self._buckets(name, address):
                self._used[key] = (max(0.0, self._now(key, most, now) - 1), now)

    def _buckets(self, name: str, address: str) -> list[tuple[tuple[str, str], int]]:
        return [
            (("account", plain_name(name).casefold()), self.limits.by_account),
            (("address", network_of(address)), self.limits.by_address),
        ]

    def _now(self, key: tuple[str, str], most: int, now: float) -> float:
        used, at = self._used.get(key, (0.0, now))
        return max(0.0, used - (now - at) * most / self.limits.refill_s)

    def _forget(self, now: float) -> None:
        """What has refilled, and the least used of the rest if there are still too many."""
        most = {"account": self.limits.by_account, "address": self.limits.by_address}
        left = {key: (used, now) for key in self._used if (used := self._now(key, most[key[0]], now)) > 0}
        kept = sorted(left, key=lambda key: left[key][0], reverse=True)[: MOST_KEPT // 2]
        self._used = {key: left[key] for key in kept}


def network_of(address: str) -> str:
    """What one household has: an IPv4 address, or the first half of an IPv6 one."""
    try:
        found = ip_address(address)
    except ValueError:
        return address
    if isinstance(found, IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(IPv6Address(int(found) >> 64 << 64))
    return str(found)
