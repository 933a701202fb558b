"""A circuit breaker: after several failed connections in a row, only one try at a time reaches the server.

Leaves out: the end of retries (`retries`); a try that the circuit does not admit counts as failed.
"""

import random
import time

FAULTS = 8  #: connections in a row that failed before the circuit opens
FAULTS_OF_SEVERAL = 2  #: as above, where another server takes the requests
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 10.0


class Circuit:
    """Shared by all requests of one client to one server. Any reply, an error too, closes it: the server responds."""

    def __init__(self, most_faults: int = FAULTS) -> None:
        self._most_faults = most_faults
        self._faults = 0
        self._pause = 0.0
        self._until = self._grown_until = 0.0

    @property
    def wait_s(self) -> float:
        """Seconds until the next try is admitted."""
        return max(0.0, self._until - time.monotonic()) if self._faults >= self._most_faults else 0.0

    def admits(self) -> bool:
        """Whether to connect now. While open, one request is let through after each pause."""
        if self._faults < self._most_faults:
            return True
        now = time.monotonic()
        if now < self._until:
            return False
        self._until = now + self._pause
        return True

    def answered(self) -> None:
        self._faults, self._pause = 0, 0.0

    def failed(self) -> None:
        """A connection that was refused or broke. Those under way together make the pause grow once."""
        self._faults += 1
        now = time.monotonic()
        if self._faults >= self._most_faults and now >= self._grown_until:
            self._pause = min(LONGEST_PAUSE_S, 2 * self._pause or FIRST_PAUSE_S)
            # Jitter, so that the clients of many processes do not come back together.
            self._until = self._grown_until = now + self._pause * random.uniform(0.5, 1.0)
