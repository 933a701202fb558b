"""A new configuration in the child processes: the engine's models and limits, an HTTP worker's keys and limits.

Covers: executing the supervisor's orders, passing an administrator's order on to it. Leaves out: reading the
configuration and what follows from it (`server.core.reload`), the pipes (`launch`).
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

from assay.errors import AssayError, BackendError
from assay_serving.engine_process import wire
from assay_serving.engine_process.launch import Applied, ApplyConfig, Order, ReloadOutcome, ReloadRequest, Supervised
from assay_serving.server.core.reload import ModelChanges
from assay_serving.server.http.service import ScoringService
from assay_serving.server.in_process import InProcessBackend

logger = logging.getLogger("assay.serving")


def obey_in_engine(supervised: Supervised, backend: InProcessBackend) -> None:
    """Apply configurations to the backend. Call on its event loop."""

    async def apply(order: ApplyConfig) -> ModelChanges:
        return await backend.reload(order.config.settings, order.before, order.config.models)

    _obey(supervised, lambda order: _applied(supervised, order, apply))


class WorkerReloads:
    """Of an HTTP worker. Create it on its event loop."""

    def __init__(self, supervised: Supervised, service: ScoringService) -> None:
        self._supervised = supervised
        self._service = service
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[ReloadOutcome]] = {}
        service.reload = self.request
        _obey(supervised, self._execute)

    async def request(self, by: str, request_id: str | None = None) -> dict[str, Any]:
        """The outcome of a reload of all processes. See `Reloader.reload`."""
        number = next(self._ids)
        reply: asyncio.Future[ReloadOutcome] = asyncio.get_running_loop().create_future()
        self._waiting[number] = reply
        self._supervised.send(ReloadRequest(number, by, request_id))
        try:
            answer = await reply
        finally:
            del self._waiting[number]
        if answer.error is not None:
            raise wire.exception_of(answer.error)
        return answer.outcome

    async def _execute(self, order: Order) -> None:
        if isinstance(order, ReloadOutcome):
            waiting = self._waiting.get(order.id)
            if waiting is not None and not waiting.done():
                waiting.set_result(order)
        else:
            await _applied(self._supervised, order, self._apply)

    async def _apply(self, order: ApplyConfig) -> ModelChanges:
        self._service.settings = order.config.settings
        return ModelChanges()


def _obey(supervised: Supervised, execute: Callable[[Any], Awaitable[None]]) -> None:
    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Future[None]] = set()

    def start(order: Order) -> None:
        task = asyncio.ensure_future(execute(order))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    supervised.obey_with(lambda order: loop.call_soon_threadsafe(start, order))


async def _applied(
    supervised: Supervised, order: ApplyConfig, apply: Callable[[ApplyConfig], Awaitable[ModelChanges]]
) -> None:
    """Apply it, and report what became of it."""
    try:
        supervised.send(Applied(await apply(order)))
    except AssayError as error:
        supervised.send(Applied(ModelChanges(), wire.method_error(0, error)))
    except Exception as error:
        logger.error("%s\n%s", type(error).__name__, "".join(traceback.format_tb(error.__traceback__)))
        failed = BackendError(f"the configuration cannot be applied: {type(error).__name__}")
        supervised.send(Applied(ModelChanges(), wire.method_error(0, failed)))
