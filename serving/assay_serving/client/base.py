"""What both clients share: arguments, and requests without I/O, as generators of tries and pauses (as httpx's auth
flows are).

Covers: retries within the deadline, the circuit, waiting until a server is ready. Leaves out: sending a try and
sleeping (`blocking`, `asynchronous`).
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Generator
from dataclasses import fields
from functools import partial
from typing import Any, TypeAlias

import httpx

from assay.errors import BackendError
from assay_serving.client.circuit import Circuit
from assay_serving.client.connection import ConnectionSettings
from assay_serving.client.protocol import READY, error_of, error_of_fault
from assay_serving.client.retries import RETRYABLE_FAULTS, RETRYABLE_STATUSES, Attempts, request_id, retry_after_of

#: Yields the arguments of `httpx.Client.request`, whose outcome is sent in, or seconds to sleep. Returns the 200 reply;
#: raises an AssayError.
Exchange: TypeAlias = Generator[dict[str, Any] | float, httpx.Response | httpx.TransportError | None, httpx.Response]


class ClientBase(ConnectionSettings, ABC):
    """A client that can be pickled: a copy has the settings and opens its own connections."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._circuit = Circuit()
        self._begin()

    def __reduce__(self) -> Any:
        return partial(type(self), **{field.name: getattr(self, field.name) for field in fields(self)}), ()

    @property
    def settings(self) -> ConnectionSettings:
        return self

    @abstractmethod
    def _begin(self) -> None:
        """Start without connections."""

    def _exchange(self, method: str, path: str, body: dict[str, Any] | None = None) -> Exchange:
        """One request with its retries."""
        attempts = Attempts(self.settings.policy)
        request = {"method": method, "url": path, "json": body, "headers": request_id()}
        while True:
            fault: httpx.TransportError | None = None
            if not self._circuit.admits():
                pause = attempts.next_pause(retryable=True, retry_after=self._circuit.wait_s)
            else:
                outcome = yield request | {"timeout": self.settings.timeout_within(attempts.remaining)}
                if isinstance(outcome, httpx.Response):
                    self._circuit.answered()
                    if outcome.status_code == 200:
                        return outcome
                    retryable = outcome.status_code in RETRYABLE_STATUSES
                    pause = attempts.next_pause(retryable=retryable, retry_after=retry_after_of(outcome))
                    if pause is None:
                        raise error_of(outcome, attempts.count)
                else:
                    fault, retryable = outcome, isinstance(outcome, RETRYABLE_FAULTS)
                    if retryable:
                        self._circuit.failed()
                    pause = attempts.next_pause(retryable=retryable)
            if pause is None:
                raise error_of_fault(fault, self.settings.url, attempts.count) from fault
            yield pause

    def _until_ready(self, timeout: float, unreachable: float | None = None) -> Exchange:
        """`unreachable`: seconds where nothing answers at the address, None = as `timeout`."""
        began = time.monotonic()
        limit = timeout if unreachable is None else min(unreachable, timeout)
        reason = "no answer"
        while (remaining := began + limit - time.monotonic()) > 0:
            outcome = yield {"method": "GET", "url": READY, "timeout": min(5.0, remaining)}
            if isinstance(outcome, httpx.Response):
                limit = timeout
            if not isinstance(outcome, httpx.Response):
                reason = str(error_of_fault(outcome, self.settings.url, 1))
            elif outcome.status_code == 200:
                self._circuit.answered()
                return outcome
            elif outcome.status_code not in RETRYABLE_STATUSES:
                raise error_of(outcome, 1)
            else:
                reason = str(error_of(outcome, 1))
            yield min(0.25, max(0.0, began + limit - time.monotonic()))
        raise BackendError(f"{self.settings.url} is not ready after {limit:g} s: {reason}")
