"""The counters of all fronts as one: whichever of them is asked tells the sum.

By prometheus_client's own way for several processes: every front keeps its counters in files of one folder, which
outlive it, so no sum goes back when a front is replaced. Leaves out: the engine's counters, which are one process's.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from assay_serving.server.metrics.http_metrics import HttpMetrics


class SharedHttpMetrics(HttpMetrics):
    """Needs $PROMETHEUS_MULTIPROC_DIR to name `folder` before prometheus_client is first imported."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self._folder = folder

    def text(self) -> bytes:
        registry = CollectorRegistry()
        MultiProcessCollector(registry, self._folder)  # type: ignore[no-untyped-call]
        return generate_latest(registry)
