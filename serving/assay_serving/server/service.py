"""What the routes share: the host of the models, the settings, the metrics of HTTP, the state of the server."""

from __future__ import annotations

from assay_serving.server.host import ScoringHost
from assay_serving.server.metrics import HttpMetrics
from assay_serving.server.settings import ServerSettings


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
