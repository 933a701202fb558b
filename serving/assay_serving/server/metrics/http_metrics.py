"""Counters of HTTP requests, for Prometheus. One registry per application, so that several can live in one process."""

from functools import cache

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)  #: histogram buckets


class HttpMetrics:
    """Counters of the requests. Labels come from closed sets (routes, statuses), never from callers."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        r = self.registry
        self.requests = Counter("assay_requests", "Requests answered", ["route", "status"], registry=r)
        self.seconds = Histogram(
            "assay_request_seconds", "From the first byte to the reply", ["route"], buckets=SECONDS, registry=r
        )

        self._answered = cache(lambda route, status: self.requests.labels(route, str(status)))
        self._took = cache(self.seconds.labels)

    def count(self, route: str, status: int, seconds: float) -> None:
        """One request and its time; what its labels name is looked up once."""
        self._answered(route, status).inc()
        self._took(route).observe(seconds)

    def text(self) -> bytes:
        return generate_latest(self.registry)
