"""The backend whose models run in this process, each behind its queue.

Leaves out: the queue (`batching`), HTTP (`http`), models in another process (`assay_serving.engine_process`).
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from assay.errors import BadInputError, BusyError
from assay_serving.model_config import ModelConfig
from assay_serving.scorer import ModelInfo, Scorer
from assay_serving.server.auth.api_keys import RateLimits
from assay_serving.server.batching.batcher import DynamicBatcher
from assay_serving.server.cache.score_cache import ScoreCache
from assay_serving.server.core.reload import ModelChanges
from assay_serving.server.core.scoring_backend import (
    ChatRequest,
    ChatResponse,
    Client,
    ScoreRequest,
    ScoreResponse,
    TokenRequest,
    TokenResponse,
)
from assay_serving.server.core.settings import ServerSettings
from assay_serving.server.metrics.engine_metrics import EngineMetrics
from assay_serving.server.models.chat_queue import ChatQueue
from assay_serving.server.models.missing_models import MissingModel
from assay_serving.server.models.model_registry import ModelRegistry
from assay_serving.server.models.tokenization import tokenized
from assay_serving.server.rollout.lifecycle import Commit, ModelLifecycle, at_once


class InProcessBackend:
    """See `ScoringBackend`. `plans`: how the scorers of these names were loaded, where they were loaded from plans;
    such a backend may start without models. `missing`: models that it should serve and cannot load.

    `workspace`: where names of models that are loaded later are looked up. `on_plans` gets the plans of all models
    after every change: what another process needs to load the same ones. `on_decision`: see `ModelLifecycle`.
    """

    def __init__(
        self,
        scorers: Mapping[str, Scorer],
        settings: ServerSettings,
        *,
        plans: Mapping[str, ModelConfig] | None = None,
        missing: Iterable[MissingModel] = (),
        workspace: Path | None = None,
        on_plans: Callable[[list[dict[str, Any]]], None] = lambda plans: None,
        on_decision: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        if not scorers and plans is None:
            raise BadInputError("a server needs at least one model")
        self.settings = settings
        self.registry = ModelRegistry()
        for model in missing:
            self.registry.set_missing(model)
        self.draining = False
        self.generation = 0  #: see `ScoreResponse`
        self._metrics = EngineMetrics()
        self._limits = RateLimits(self._metrics.registry)
        self._chats = ChatQueue()
        self._cache = ScoreCache.of(settings)  # raises here, before anything is served
        self._lifecycle = ModelLifecycle(
            self.registry,
            settings,
            self._metrics,
            self._cache,
            workspace=workspace,
            on_plans=on_plans,
            on_decision=on_decision,
        )
        self._scorers = dict(scorers)
        self._plans = dict(plans or {})

    async def start(self) -> None:
        for name, scorer in self._scorers.items():
            self._lifecycle.serve(name, scorer, self._plans.get(name))
        self._scorers.clear()  # a model that is unloaded later must not be referenced here

    async def stop(self) -> None:
        self.drain()
        await self._lifecycle.stop()
        self._chats.stop()
        for served in self.registry.live:
            await served.stop()
        await asyncio.to_thread(self._cache.close)

    def drain(self) -> None:
        self.draining = True

    @property
    def ready(self) -> bool:
        live = self.registry.live
        return not self.draining and bool(live) and all(served.able for served in live)

    @property
    def overdue_s(self) -> float:
        """By how long a call of a live model exceeds its time limit; 0 for none."""
        return max((served.queue.overdue_s for served in self.registry.live), default=0.0)

    @property
    def queues(self) -> dict[str, DynamicBatcher]:
        """The queues of the live models by name."""
        return {served.name: served.queue for served in self.registry.live}

    async def models(self) -> list[ModelInfo]:
        return [served.info for served in self.registry.live]

    async def missing_models(self) -> dict[str, str]:
        return {model.name: model.reason for model in self.registry.missing}

    def plans(self) -> list[dict[str, Any]]:
        """See `ModelLifecycle.plans`."""
        return self._lifecycle.plans()

    async def score(self, request: ScoreRequest) -> ScoreResponse:
        self._check_ready()
        model = self.registry.pick(request.model, any_name=request.any_name, client=request.client)
        generation = self.generation
        with self._limits.reserved(request.client, len(request.items)):
            response = await model.score(request)
        return replace(response, generation=generation) if generation else response

    def reserve(self, client: Client, items: int, refund: bool) -> None:
        """Spend of the client's limits, or give back, for a request that replicas score."""
        if refund:
            self._limits.refund(client, items)
        else:
            self._limits.spend(client, items)

    async def chat(self, request: ChatRequest) -> ChatResponse:
        self._check_ready()
        served = self.registry.pick(request.model, any_name=request.any_name, client=request.client).live
        with self._limits.reserved(request.client, 1), served.hold():
            return await self._chats.complete(served.name, served.queue.scorer, request)

    async def tokenize(self, request: TokenRequest) -> TokenResponse:
        self._check_ready()
        served = self.registry.pick(request.model, any_name=request.any_name, client=request.client).live
        with self._limits.reserved(request.client, 1), served.hold():
            return await asyncio.to_thread(tokenized, served.name, served.queue.scorer, request)

    async def manage(self, order: dict[str, Any], commit: Commit = at_once) -> dict[str, Any]:
        """See `ModelLifecycle.execute`."""
        return await self._lifecycle.execute(order, commit)

    async def reload(
        self,
        settings: ServerSettings,
        before: Sequence[ModelConfig],
        after: Sequence[ModelConfig],
        commit: Commit = at_once,
    ) -> ModelChanges:
        """See `ModelLifecycle.reload`."""
        changes = await self._lifecycle.reload(settings, before, after, commit)
        self.settings = settings
        return changes

    async def metrics(self) -> bytes:
        return self._metrics.text()

    def _check_ready(self) -> None:
        if self.draining or not all(served.alive for served in self.registry.live):
            raise BusyError("the server is draining" if self.draining else "the server is not ready", retry_after=2)
