"""What the routes share: the served models behind their queues, the settings, the metrics, the state of the server."""

from __future__ import annotations

from collections.abc import Mapping

from assay.errors import BadInputError, BusyError, NotFoundError
from assay_serving.scorer import Scorer
from assay_serving.server.coalescing import Coalescer
from assay_serving.server.metrics import ServerMetrics
from assay_serving.server.settings import ServerSettings


class Service:
    """Started and stopped by the application's lifespan."""

    def __init__(self, scorers: Mapping[str, Scorer], settings: ServerSettings) -> None:
        if not scorers:
            raise BadInputError("a server needs at least one model")
        self.settings = settings
        self.metrics = ServerMetrics()
        self.scorers = dict(scorers)
        self.queues: dict[str, Coalescer] = {}
        self.draining = False

    def start(self) -> None:
        self.queues = {
            name: Coalescer(name, scorer, self.settings, self.metrics) for name, scorer in self.scorers.items()
        }
        for queue in self.queues.values():
            queue.start()

    async def stop(self) -> None:
        self.drain()
        for queue in self.queues.values():
            await queue.stop()

    def drain(self) -> None:
        """Accept no new work; what is queued is still answered."""
        self.draining = True

    @property
    def ready(self) -> bool:
        return not self.draining and bool(self.queues) and all(queue.alive for queue in self.queues.values())

    def queue_for(self, model: str | None) -> Coalescer:
        """Raises BusyError when not ready, NotFoundError for an unknown model, BadInputError if none is named and
        several are served: a score by the wrong model looks like a score."""
        if not self.ready:
            raise BusyError("the server is draining" if self.draining else "the server is not ready", retry_after=2)
        if model is None:
            if len(self.queues) > 1:
                raise BadInputError(f"several models are served; name one of {', '.join(self.queues)}", field="model")
            return next(iter(self.queues.values()))
        if model not in self.queues:
            raise NotFoundError(f"no such model; served: {', '.join(self.queues)}")
        return self.queues[model]
