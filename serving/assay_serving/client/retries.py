"""The retry policy of the clients.

Covers: retryable replies and connection faults, exponential backoff with full jitter, Retry-After, a deadline over all
tries. Leaves out: sending (`blocking`, `asynchronous`).
"""

import random
import secrets
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Annotated

import httpx
from annotated_types import Ge, Gt

from assay.settings import CheckedSettings

#: Full queue, draining, a proxy without its server, not scored in time. Other replies would repeat.
RETRYABLE_STATUSES = frozenset({429, 502, 503, 504})
#: Scoring changes nothing on the server, so a request whose connection broke may be sent again. After a read
#: timeout it is not sent again: the server still works on it, and a second copy would slow it down.
RETRYABLE_FAULTS = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.ReadError,
    httpx.WriteError,
    httpx.RemoteProtocolError,
)


@dataclass(frozen=True, slots=True)
class RetryPolicy(CheckedSettings):
    """`retries`: tries after the first. `deadline`: seconds over all tries and pauses of one call, None = no limit."""

    retries: Annotated[int, Ge(0)] = 5
    first_pause_s: float = 0.25
    longest_pause_s: float = 20.0
    deadline: Annotated[float | None, Gt(0)] = 600.0

    def pause(self, attempt: int, retry_after: float | None) -> float:
        """Seconds before try `attempt` + 1 (attempts count from 0). Jitter spreads the retries of many clients."""
        jittered = random.uniform(0, min(self.longest_pause_s, self.first_pause_s * 2.0**attempt))
        return jittered if retry_after is None else min(retry_after, self.longest_pause_s) + jittered


@dataclass(slots=True)
class Attempts:
    """The tries of one request. `next_pause` gives the seconds to wait, or None for no further try."""

    policy: RetryPolicy
    started: float = field(default_factory=time.monotonic)
    count: int = 0  #: tries so far

    @property
    def remaining(self) -> float | None:
        """Seconds left before the deadline."""
        if self.policy.deadline is None:
            return None
        return self.policy.deadline - (time.monotonic() - self.started)

    def next_pause(self, *, retryable: bool, retry_after: float | None = None) -> float | None:
        """Call after a failed try."""
        self.count += 1
        if not retryable or self.count > self.policy.retries:
            return None
        pause = self.policy.pause(self.count - 1, retry_after)
        remaining = self.remaining
        return None if remaining is not None and pause >= remaining else pause


def request_id() -> dict[str, str]:
    """A header that names one request, with all its tries, in the server's log and in its errors."""
    return {"X-Request-Id": secrets.token_hex(8)}


def retry_after_of(response: httpx.Response) -> float | None:
    """Seconds the server asks for, in any of the forms servers use: milliseconds, seconds, a date."""
    milliseconds = response.headers.get("retry-after-ms", "").strip()
    if milliseconds.replace(".", "", 1).isdecimal():
        return float(milliseconds) / 1000
    header = response.headers.get("retry-after", "").strip()
    if header.replace(".", "", 1).isdecimal():
        return float(header)
    try:
        return max(0.0, (parsedate_to_datetime(header) - datetime.now(UTC)).total_seconds()) if header else None
    except (ValueError, TypeError):
        return None
