"""Orders in the child processes: changes of an engine's models and limits, an HTTP worker's keys and limits.

Covers: executing the supervisor's orders, in an engine in two steps, so that all replicas change or none; passing an
administrator's order on to the supervisor. Leaves out: the supervisor's side (`orders`), reading the configuration and
what follows from it (`server.core.reload`), the pipes (`launch`).
"""

import asyncio
import itertools
import logging
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import asdict
from typing import Any, TypeVar

from assay.errors import AssayError, BackendError, ConflictError
from assay_serving.engine_process import wire
from assay_serving.engine_process.launch import (
    RELOAD,
    Applied,
    ApplyConfig,
    Commit,
    Executed,
    Order,
    OrderReply,
    OrderRequest,
    Prepare,
    Prepared,
    Rollback,
    Serve,
    Supervised,
)
from assay_serving.server.http.service import ScoringService
from assay_serving.server.in_process import InProcessBackend

logger = logging.getLogger("assay.serving")

T = TypeVar("T")


class EngineOrders:
    """Of an engine. `serve` is set when it may accept requests. Create it on the backend's event loop."""

    def __init__(self, supervised: Supervised, backend: InProcessBackend) -> None:
        self.serve = asyncio.Event()
        self._supervised = supervised
        self._backend = backend
        self._generations: dict[int, asyncio.Future[int]] = {}  # of orders that are not executed yet
        _obey(supervised, self._execute)

    async def _execute(self, order: Order) -> None:
        if isinstance(order, Serve):
            self.serve.set()
        elif isinstance(order, Prepare):
            await self._prepare(order)
        elif isinstance(order, Commit | Rollback) and (generation := self._generations.get(order.id)) is not None:
            if isinstance(order, Commit):
                generation.set_result(order.generation)
            else:
                generation.cancel()

    async def _prepare(self, order: Prepare) -> None:
        generation: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._generations[order.id] = generation

        async def commit(version: str) -> None:
            self._supervised.send(Prepared(order.id, version))
            await asyncio.wait({generation})
            if generation.cancelled():
                raise ConflictError("another replica cannot follow")
            self._backend.generation = generation.result()

        outcome, error = await _attempt(self._change(order, commit))
        del self._generations[order.id]
        self._supervised.send(Executed(order.id, outcome or {}, error))

    async def _change(self, order: Prepare, commit: Callable[[str], Awaitable[None]]) -> dict[str, Any]:
        if (change := order.change) is None:
            return await self._backend.manage(order.order, commit)
        config = change.config
        return asdict(await self._backend.reload(config.settings, change.before, config.models, commit))


class WorkerOrders:
    """Of an HTTP worker. Create it on its event loop."""

    def __init__(self, supervised: Supervised, service: ScoringService) -> None:
        self._supervised = supervised
        self._service = service
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[OrderReply]] = {}
        service.reload = self.reload
        _obey(supervised, self._execute)

    async def reload(self, by: str, request_id: str | None = None) -> dict[str, Any]:
        """The outcome of a reload of all processes. See `Reloader.reload`."""
        return await self.order({"action": RELOAD, "by": by, "request_id": request_id})

    async def order(self, order: dict[str, Any]) -> dict[str, Any]:
        """The outcome of an administrator's order to all replicas. See `ScoringBackend.manage`."""
        number = next(self._ids)
        reply: asyncio.Future[OrderReply] = asyncio.get_running_loop().create_future()
        self._waiting[number] = reply
        self._supervised.send(OrderRequest(number, order))
        try:
            answer = await reply
        finally:
            del self._waiting[number]
        if answer.error is not None:
            raise wire.exception_of(answer.error)
        return answer.outcome

    async def _execute(self, order: Order) -> None:
        if isinstance(order, OrderReply):
            waiting = self._waiting.get(order.id)
            if waiting is not None and not waiting.done():
                waiting.set_result(order)
        elif isinstance(order, ApplyConfig):
            self._service.settings = order.config.settings
            self._supervised.send(Applied())


def _obey(supervised: Supervised, execute: Callable[[Any], Awaitable[None]]) -> None:
    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Future[None]] = set()

    def start(order: Order) -> None:
        task = asyncio.ensure_future(execute(order))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    supervised.obey_with(lambda order: loop.call_soon_threadsafe(start, order))


async def _attempt(work: Coroutine[Any, Any, T]) -> tuple[T | None, wire.MethodError | None]:
    """The work's result, or its error as a message."""
    try:
        return await work, None
    except AssayError as error:
        return None, wire.method_error(0, error)
    except Exception as error:
        logger.error("%s\n%s", type(error).__name__, "".join(traceback.format_tb(error.__traceback__)))
        return None, wire.method_error(0, BackendError(f"the order cannot be executed: {type(error).__name__}"))
