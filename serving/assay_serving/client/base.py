"""What both clients share: arguments, and requests without I/O, as generators of tries and pauses (as httpx's auth
flows are).

Covers: retries within the deadline, the choice among servers, circuits, waiting until servers are ready. Leaves out:
sending a try and sleeping (`blocking`, `asynchronous`).
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Generator
from dataclasses import fields
from functools import partial
from typing import Any, TypeAlias

import httpx

from assay.errors import BackendError
from assay.system import tracing
from assay_serving.client.circuit import FAULTS, FAULTS_OF_SEVERAL, Circuit
from assay_serving.client.connection import ConnectionSettings
from assay_serving.client.protocol import READY, error_of, error_of_fault
from assay_serving.client.retries import RETRYABLE_FAULTS, RETRYABLE_STATUSES, Attempts, request_id, retry_after_of
from assay_serving.routing import preference

#: Yields the arguments of `httpx.Client.request`, whose outcome is sent in, or seconds to sleep. Returns the 200 reply;
#: raises an AssayError.
Exchange: TypeAlias = Generator[dict[str, Any] | float, httpx.Response | httpx.TransportError | None, httpx.Response]


class ClientBase(ConnectionSettings, ABC):
    """A client that can be pickled: a copy has the settings and opens its own connections."""

    def __post_init__(self) -> None:
        super().__post_init__()
        several = len(self.urls) > 1
        self._circuits = [Circuit(FAULTS_OF_SEVERAL if several else FAULTS) for _ in self.urls]
        self._begin()

    def __reduce__(self) -> Any:
        return partial(type(self), **{field.name: getattr(self, field.name) for field in fields(self)}), ()

    @property
    def settings(self) -> ConnectionSettings:
        return self

    @abstractmethod
    def _begin(self) -> None:
        """Start without connections."""

    def _exchange(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        *,
        key: bytes = b"",
        server: int | None = None,
    ) -> Exchange:
        """One request with its retries. `key`: of the prompt that decides where it goes; the other servers are tried at
        once where one is gone or too busy. `server`: the only one to ask."""
        with tracing.span(f"{method} {path.partition('?')[0]}"):
            return (yield from self._tries(method, path, body, key, server))

    def _tries(self, method: str, path: str, body: dict[str, Any] | None, key: bytes, server: int | None) -> Exchange:
        urls = self.urls
        order = preference(key, urls) if len(urls) > 1 else [0]
        order = order if server is None else [server]
        attempts = Attempts(self.settings.policy)
        request = {"method": method, "json": body, "headers": request_id() | tracing.headers()}
        while True:
            outcome: httpx.Response | httpx.TransportError | None = None
            retryable = True
            for index in order:
                circuit = self._circuits[index]
                if not circuit.admits():
                    continue
                where = {"url": urls[index] + path if len(urls) > 1 else path}
                outcome = yield request | where | {"timeout": self.settings.timeout_within(attempts.remaining)}
                if isinstance(outcome, httpx.Response):
                    circuit.answered()
                    if outcome.status_code == 200:
                        return outcome
                    retryable = outcome.status_code in RETRYABLE_STATUSES
                    if not retryable or outcome.status_code == 429:  # a key's limit is not for another server
                        break
                else:
                    if not (retryable := isinstance(outcome, RETRYABLE_FAULTS)):
                        break
                    circuit.failed()
            if isinstance(outcome, httpx.Response):
                pause = attempts.next_pause(retryable=retryable, retry_after=retry_after_of(outcome))
                if pause is None:
                    raise error_of(outcome, attempts.count)
            else:
                waits = [self._circuits[index].wait_s for index in order]
                pause = attempts.next_pause(retryable=retryable, retry_after=None if outcome else min(waits))
                if pause is None:
                    raise error_of_fault(outcome, self.settings.url, attempts.count) from outcome
            yield pause

    def _until_ready(self, timeout: float, unreachable: float | None = None) -> Exchange:
        """All servers. `unreachable`: seconds where nothing answers at the address, None = as `timeout`."""
        began = time.monotonic()
        for circuit, url in zip(self._circuits, self.urls, strict=True):
            limit = timeout if unreachable is None else min(unreachable, timeout)
            reason, answered = "no answer", False
            while (remaining := began + limit - time.monotonic()) > 0:
                outcome = yield {"method": "GET", "url": url + READY, "timeout": min(5.0, remaining)}
                if isinstance(outcome, httpx.Response):
                    limit, answered = timeout, True
                if not isinstance(outcome, httpx.Response):
                    reason = str(error_of_fault(outcome, url, 1))
                elif outcome.status_code == 200:
                    circuit.answered()
                    break
                elif outcome.status_code not in RETRYABLE_STATUSES:
                    raise error_of(outcome, 1)
                else:
                    reason = str(error_of(outcome, 1))
                yield min(0.25, max(0.0, began + limit - time.monotonic()))
            else:
                start = "" if answered else "; is the server running? assay serve MODEL starts one"
                raise BackendError(f"{url} is not ready after {limit:g} s: {reason}{start}")
        assert isinstance(outcome, httpx.Response)
        return outcome
