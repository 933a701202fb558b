"""The models of this process behind their queues.

Leaves out: the queue (`coalescing`), HTTP (`scoring`), a process of their own (`assay_serving.engine_process`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from assay.errors import BadInputError, BusyError, LateError, NotFoundError
from assay_serving.scorer import ModelInfo, Scorer
from assay_serving.server.coalescing import Coalescer
from assay_serving.server.host import ChatAnswer, ChatRequest, ScoreAnswer, ScoreRequest
from assay_serving.server.metrics import EngineMetrics
from assay_serving.server.settings import ServerSettings


class LocalHost:
    """See `ScoringHost`."""

    def __init__(self, scorers: Mapping[str, Scorer], settings: ServerSettings) -> None:
        if not scorers:
            raise BadInputError("a server needs at least one model")
        self.settings = settings
        self.scorers = dict(scorers)
        self.queues: dict[str, Coalescer] = {}
        self.draining = False
        self._metrics = EngineMetrics()

    async def start(self) -> None:
        self.queues = {
            name: Coalescer(name, scorer, self.settings, self._metrics) for name, scorer in self.scorers.items()
        }
        for queue in self.queues.values():
            queue.start()

    async def stop(self) -> None:
        self.drain()
        for queue in self.queues.values():
            await queue.stop()

    def drain(self) -> None:
        self.draining = True

    @property
    def ready(self) -> bool:
        return not self.draining and bool(self.queues) and all(queue.alive for queue in self.queues.values())

    async def models(self) -> list[ModelInfo]:
        return [replace(scorer.info, name=name) for name, scorer in self.scorers.items()]

    async def score(self, request: ScoreRequest) -> ScoreAnswer:
        queue = self._queue_for(request.model)
        pending = queue.put(request.items)
        try:
            async with asyncio.timeout(request.timeout_s):
                results = await pending.done
        except TimeoutError:
            raise LateError(f"not scored within {request.timeout_s:g} s") from None
        finally:
            queue.drop(pending)
        return ScoreAnswer(queue.name, queue.scorer.info.version, tuple(results))

    async def chat(self, request: ChatRequest) -> ChatAnswer:
        queue = self._queue_for(request.model)
        raise BadInputError(f"{queue.name} is no generative model", field="model")

    async def manage(self, order: dict[str, Any]) -> dict[str, Any]:
        raise BadInputError("the models of this server are fixed")

    async def metrics(self) -> bytes:
        return self._metrics.text()

    def _queue_for(self, model: str | None) -> Coalescer:
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
