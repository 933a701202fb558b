"""What the routes share: the host of the models, the settings, the metrics of HTTP, the state of the server."""

from __future__ import annotations

from assay_serving.server.core.scoring_backend import ScoringHost
from assay_serving.server.core.settings import ServerSettings
from assay_serving.server.metrics.http_metrics import HttpMetrics


class Service:
    """Started and stopped by the application's lifespan."""

    def __init__(self, host: ScoringHost, settings: ServerSettings) -> None:
        self.host = host
        self.settings = settings
        self.metrics = HttpMetrics()
        self.draining = False

    async def start(self) -> None:
        await self.host.start()

    async def stop(self) -> None:
        self.drain()
        await self.host.stop()

    def drain(self) -> None:
        """Accept no new work; what is queued is still answered."""
        self.draining = True
        self.host.drain()

    @property
    def ready(self) -> bool:
        return not self.draining and self.host.ready

    @property
    def state(self) -> str:
        """Ready, or why not, in a few words. A host that can be away says so in a `state` of its own."""
        if self.ready:
            return "ready"
        return "draining" if self.draining else str(getattr(self.host, "state", "not ready"))
