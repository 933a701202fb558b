"""Passwords: the rules for new ones, argon2id hashes, a bound on concurrent hashing.

Leaves out: accounts (`accounts`), rate limits (`attempts`).
"""

import threading
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property

from argon2 import PasswordHasher, Type
from argon2.exceptions import InvalidHashError, VerificationError

from assay.errors import BadInputError, BusyError
from assay_web.settings import PasswordCost

SHORTEST, LONGEST = 10, 1000  #: characters
BESIDE_THE_NAME = 6  #: characters a password must have besides its account's name
AT_ONCE = 2  #: concurrent hashes; each takes memory, and CPU time from votes
WAIT_S = 5.0  #: for a free slot


class Passwords:
    """Computes and verifies hashes at one cost. Thread-safe."""

    def __init__(self, cost: PasswordCost) -> None:
        self._hasher = PasswordHasher(cost.passes, cost.memory_kib, cost.lanes, type=Type.ID)
        self._turns = threading.BoundedSemaphore(AT_ONCE)

    @cached_property
    def dummy_hash(self) -> str:
        """A hash that is verified for unknown names, so that they take as long. Slow at first access."""
        return self._hasher.hash("nobody's password")

    def hashed(self, password: str) -> str:
        with self._turn():
            return self._hasher.hash(_normal(password))

    def verify(self, expected: str | None, password: str) -> bool:
        """Whether the password matches this hash. None (an unknown name) takes as long and never matches."""
        with self._turn():
            try:
                return self._hasher.verify(expected or self.dummy_hash, _normal(password)) and expected is not None
            except (VerificationError, InvalidHashError):
                return False

    def needs_rehash(self, expected: str) -> bool:
        """Whether the hash was computed at another cost."""
        return self._hasher.check_needs_rehash(expected)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        if not self._turns.acquire(timeout=WAIT_S):
            raise BusyError("many people are signing in at this moment: try again", retry_after=2)
        try:
            yield
        finally:
            self._turns.release()


def check_new_password(name: str, password: str) -> None:
    """Raises BadInputError for a password that is too short, too long, or little more than the name."""
    plain = _normal(password)
    if not SHORTEST <= len(plain) <= LONGEST:
        raise BadInputError(f"a password has {SHORTEST} characters or more, and at most {LONGEST}", field="password")
    if len(plain.casefold().replace(_normal(name).casefold(), "")) < BESIDE_THE_NAME:
        raise BadInputError(
            f"a password has {BESIDE_THE_NAME} characters or more beside the name of its account", field="password"
        )
    if len(set(plain)) < 4:
        raise BadInputError("a password has 4 different characters or more", field="password")


def _normal(password: str) -> str:
    """NFKC, since keyboards compose characters differently (NIST SP 800-63B)."""
    return unicodedata.normalize("NFKC", password)
