"""How much each key may use: requests and items a minute, as token buckets.

Covers: reserving, refusing, refunding, counters per key. Leaves out: whose key it is (`key_ring`), the bound of the
queue (`batching`). It runs in the process of the models, so that limits are exact however many processes accept
requests.

A bucket holds one minute's worth and refills evenly, so that a trainer may send its whole batch at once: in any span
of t minutes a key gets at most (1 + t) times its rate.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter

from assay.errors import BadInputError, BusyError, RateLimitError
from assay_serving.server.core.scoring_backend import Client


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
        """Count one request of `items`, or raise RateLimitError, which consumes nothing and says when to retry.

        Raises BadInputError for a request that has more items than the key gets in a minute: it can never pass.
        """
        costs: list[tuple[str, float, float]] = []
        if client.requests_per_minute is not None:
            costs.append(("requests", client.requests_per_minute, 1.0))
        if client.items_per_minute is not None:
            costs.append(("items", client.items_per_minute, float(items)))
        if costs:
            self._spend(client.name, costs)
        self._requests.labels(client.name).inc()
        self._items.labels(client.name).inc(items)

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
