"""The models of this process behind their queues.

Leaves out: the queue (`coalescing`), HTTP (`scoring`), a process of their own (`assay_serving.engine_process`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from assay.errors import BadInputError, BusyError
from assay_serving.model_config import ModelConfig
from assay_serving.scorer import ModelInfo, Scorer
from assay_serving.server.auth.rate_limits import RateLimits
from assay_serving.server.batching.batcher import Coalescer
from assay_serving.server.cache.memory_cache import ScoreCache
from assay_serving.server.core.scoring_backend import ChatAnswer, ChatRequest, ScoreAnswer, ScoreRequest
from assay_serving.server.core.settings import ServerSettings
from assay_serving.server.metrics.http_metrics import EngineMetrics
from assay_serving.server.models.chat_queue import Chatting
from assay_serving.server.models.lifecycle import Lifecycle
from assay_serving.server.models.missing_models import AbsentModel
from assay_serving.server.models.model_registry import Roster


class LocalHost:
    """See `ScoringHost`. `plans`: how the scorers of these names were loaded, where they were loaded from plans; such a
    host may have none, until one is loaded. `absent`: models that it should serve and cannot.

    `workspace`: where names of models that are loaded later are looked up. `on_plans` gets the plans of all models
    after every change: what another process needs to load the same ones.
    """

    def __init__(
        self,
        scorers: Mapping[str, Scorer],
        settings: ServerSettings,
        *,
        plans: Mapping[str, ModelConfig] | None = None,
        absent: Iterable[AbsentModel] = (),
        workspace: Path | None = None,
        on_plans: Callable[[list[dict[str, Any]]], None] = lambda plans: None,
    ) -> None:
        if not scorers and plans is None:
            raise BadInputError("a server needs at least one model")
        self.settings = settings
        self.roster = Roster()
        for model in absent:
            self.roster.miss(model)
        self.draining = False
        self._metrics = EngineMetrics()
        self._limits = RateLimits(self._metrics.registry)
        self._chatting = Chatting()
        self._cache = ScoreCache.of(settings)  # raises here, before anything is served
        self._lifecycle = Lifecycle(
            self.roster, settings, self._metrics, self._cache, workspace=workspace, on_plans=on_plans
        )
        self._given = dict(scorers)
        self._plans = dict(plans or {})

    async def start(self) -> None:
        for name, scorer in self._given.items():
            self._lifecycle.serve(name, scorer, self._plans.get(name))
        self._given.clear()  # a model that is unloaded later must not be held here

    async def stop(self) -> None:
        self.drain()
        await self._lifecycle.stop()
        self._chatting.stop()
        for served in self.roster.live:
            await served.stop()
        await asyncio.to_thread(self._cache.close)

    def drain(self) -> None:
        self.draining = True

    @property
    def ready(self) -> bool:
        live = self.roster.live
        return not self.draining and bool(live) and all(served.alive and not served.queue.stuck for served in live)

    @property
    def queues(self) -> dict[str, Coalescer]:
        """The queues of the live models by name."""
        return {served.name: served.queue for served in self.roster.live}

    async def models(self) -> list[ModelInfo]:
        return self.roster.infos()

    async def absent(self) -> dict[str, str]:
        return {model.name: model.reason for model in self.roster.absent}

    def plans(self) -> list[dict[str, Any]]:
        """See `Lifecycle.plans`."""
        return self._lifecycle.plans()

    async def score(self, request: ScoreRequest) -> ScoreAnswer:
        self._check_ready()
        served = self.roster.pick(request.model)
        with self._limits.taken(request.client, len(request.items)):
            return await served.answer(request)

    async def chat(self, request: ChatRequest) -> ChatAnswer:
        self._check_ready()
        served = self.roster.pick(request.model).live
        with self._limits.taken(request.client, 1), served.hold():
            return await self._chatting.answer(served.name, served.queue.scorer, request)

    async def manage(self, order: dict[str, Any]) -> dict[str, Any]:
        """See `Lifecycle.carry_out`."""
        return await self._lifecycle.carry_out(order)

    async def metrics(self) -> bytes:
        return self._metrics.text()

    def _check_ready(self) -> None:
        if self.draining or not all(served.alive for served in self.roster.live):
            raise BusyError("the server is draining" if self.draining else "the server is not ready", retry_after=2)
