"""Changes that all replicas of the models make together, or none: loads, swaps, reloads, by two-phase commit.

Covers: the supervisor's side; which change is the latest one, swaps that end with a replica. Leaves out: executing an
order in an engine (`reloading`), starting and ending engines (`supervisor`).

A replica that is away takes no part: it starts with the models as they are afterwards.
"""

import asyncio
import itertools
from collections.abc import Callable
from typing import Any, Protocol

from assay.errors import AssayError, BackendError, BusyError
from assay_serving.engine_process import wire
from assay_serving.engine_process.launch import ApplyConfig, Commit, Executed, Order, Prepare, Prepared, Rollback

_DECISIONS = ("promote", "abort")


class EngineReplica(Protocol):
    """An engine process."""

    name: str

    def tell(self, order: Order) -> None: ...

    def kill(self) -> None: ...


class _Execution:
    """One order at one replica."""

    def __init__(self, replica: EngineReplica) -> None:
        loop = asyncio.get_running_loop()
        self.replica = replica
        self.version: asyncio.Future[str] = loop.create_future()
        self.outcome: asyncio.Future[dict[str, Any]] = loop.create_future()

    def fail(self, error: Exception) -> None:
        for future in (self.version, self.outcome):
            if not future.done():
                future.set_exception(error)
                future.exception()  # either may never be awaited


class ReplicaOrders:
    """`replicas`: those that serve; `count`: how many there are."""

    def __init__(self, replicas: Callable[[], list[Any]], count: int) -> None:
        self.generation = 0  #: number of the latest change
        self.settled = asyncio.Event()  #: no change is between its two steps: a replica that starts now knows all
        self.settled.set()
        self._replicas = replicas
        self._count = count
        self._ids = itertools.count(1)
        self._executions: dict[tuple[int, EngineReplica], _Execution] = {}
        self._committing = 0
        self._swaps: set[str] = set()  # names of those in progress
        self._deciding: set[str] = set()

    async def execute(self, order: dict[str, Any], change: ApplyConfig | None = None) -> dict[str, Any]:
        """The outcome at one of the replicas. Raises the first one's error where any cannot execute it, BusyError where
        one ends meanwhile; then nothing has changed."""
        replicas: list[EngineReplica] = self._replicas()
        if not replicas or (_lasts(order) and len(replicas) < self._count):  # one that comes later would know no swap
            raise BusyError("the engine is restarting", retry_after=2)
        number = next(self._ids)
        executions = [_Execution(replica) for replica in replicas]
        self._executions |= {(number, execution.replica): execution for execution in executions}
        try:
            for replica in replicas:
                replica.tell(Prepare(number, order, change))
            versions = await asyncio.gather(*(execution.version for execution in executions), return_exceptions=True)
            if (error := _disagreement(versions)) is not None:
                for replica in replicas:
                    replica.tell(Rollback(number))
                raise error
            return await self._commit(number, order, executions)
        finally:
            for replica in replicas:
                self._executions.pop((number, replica), None)

    async def _commit(self, number: int, order: dict[str, Any], executions: list[_Execution]) -> dict[str, Any]:
        """The second step, which nothing refuses; a replica that ends in it starts with the change."""
        self.generation += 1
        self._committing += 1
        self.settled.clear()
        if _lasts(order):
            self._swaps.add(order["name"])
        elif order.get("action") in _DECISIONS:
            self._swaps.discard(order["name"])
        for execution in executions:
            execution.replica.tell(Commit(number, self.generation))
        for late in set(self._replicas()) - {execution.replica for execution in executions}:
            late.kill()  # it came while the others prepared: its successor starts with the change
        try:
            outcomes = await asyncio.gather(*(each.outcome for each in executions), return_exceptions=True)
        finally:
            self._committing -= 1
            if not self._committing:
                self.settled.set()
        whole = [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
        if not whole:
            raise next(outcome for outcome in outcomes if isinstance(outcome, BaseException))
        return whole[0]

    async def decide(self, order: dict[str, Any]) -> None:
        """Promote or abort a swap in all replicas, because the first one's figures, or its end, decide it. Does nothing
        where it is being decided already, or cannot be now."""
        name = order["name"]
        if name in self._deciding:
            return
        self._deciding.add(name)
        try:
            await self.execute(order)
        except AssayError:
            pass  # it is asked for again, or over
        finally:
            self._deciding.discard(name)

    def received(self, replica: EngineReplica, event: Prepared | Executed) -> None:
        execution = self._executions.get((event.id, replica))
        if execution is None:
            return
        if isinstance(event, Executed) and event.error is not None:
            execution.fail(wire.exception_of(event.error))
        elif isinstance(event, Executed) and not execution.outcome.done():
            execution.outcome.set_result(event.outcome)
        elif isinstance(event, Prepared) and not execution.version.done():
            execution.version.set_result(event.version)

    def ended(self, replica: EngineReplica) -> list[dict[str, Any]]:
        """The replica is gone. Returns the orders that abort the swaps in progress, of which its successor knows
        nothing."""
        for (_, of), execution in self._executions.items():
            if of is replica:
                execution.fail(BusyError(f"the {replica.name} process ended meanwhile", retry_after=2))
        return [{"action": "abort", "name": name, "why": "a replica ended"} for name in sorted(self._swaps)]


def _lasts(order: dict[str, Any]) -> bool:
    """Whether it begins a swap that another order ends."""
    return order.get("action") == "swap" and order.get("terms", {}).get("mode") != "now"


def _disagreement(versions: list[str | BaseException]) -> BaseException | None:
    errors = [version for version in versions if isinstance(version, BaseException)]
    if errors:
        return errors[0]
    if len(set(versions)) > 1:
        return BackendError(f"the replicas loaded different versions: {', '.join(map(str, versions))}")
    return None
