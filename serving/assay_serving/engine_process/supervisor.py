"""The supervisor process of a server: it owns the port, starts the engine and the HTTP workers, and restarts them.

Covers: restarts with growing pauses, also where a child cannot be started; a watchdog that kills a child that hangs;
the engines' models across restarts; SIGHUP and reloads, in all processes; a stop that answers queued requests; an
engine that cannot load at the start, or has other models than its replicas. Leaves out: the children's programs
(`engine`, `http_worker`), options (`commands.serve`), changes of all replicas (`orders`), what a reload changes
(`server.core.reload`).

It runs no model and serves no request, so that little can end it.
"""

import asyncio
import logging
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from assay.errors import AssayError, BackendError, BusyError
from assay_serving.engine_process import wire
from assay_serving.engine_process.folder import METRICS, SOCKET, private_folder
from assay_serving.engine_process.launch import (
    BEAT_S,
    RELOAD,
    STOP,
    Alive,
    Applied,
    ApplyConfig,
    EngineLaunch,
    Event,
    Executed,
    Failed,
    HttpWorkerLaunch,
    ModelsLoaded,
    Order,
    OrderReply,
    OrderRequest,
    Plans,
    Prepared,
    Ready,
    Serve,
    event_of,
    line_of,
)
from assay_serving.engine_process.orders import ReplicaOrders
from assay_serving.engine_process.replicas import environment_of, gpus_of, settings_of
from assay_serving.scorer import ModelInfo
from assay_serving.server.core.reload import SIGNAL, ConfigChange, ModelChanges, Reloader, on_hangup
from assay_serving.server.core.settings import ServeConfig
from assay_serving.server.models.missing_models import reason_of

logger = logging.getLogger("assay.serving")

COUNTERS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"  #: must be set before a process imports prometheus_client
ENGINE_PROGRAM = "assay_serving.engine_process.engine"
HTTP_WORKER_PROGRAM = "assay_serving.engine_process.http_worker"
WORKERS_DRAIN_S = 65.0  #: a little more than a worker gives its requests
ENGINE_DRAIN_S = 35.0
WORKER_APPLIES_S = 10.0  #: for an HTTP worker to take new settings
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 30.0
LOADING_HANG_S = 300.0  #: without a sign of life, for a child that starts: libraries on a slow disk hold Python up
OVERDUE_TIMES = 4.0  #: engine timeouts by which a call may exceed the first one, before the engine is replaced
STEADY_S = 5.0  #: a child that served this long starts again with the first pause
_LINE_BYTES = 16 << 20


@dataclass(eq=False)
class _Child:
    name: str
    process: asyncio.subprocess.Process
    ready: bool = False
    #: Since the last event, as the supervisor has noticed it: a supervisor that was stopped itself blames no child.
    silent_s: float = 0.0
    overdue_s: float = 0.0
    serving: bool = False  #: of an engine: it takes part in changes of all replicas
    generation: int = 0  #: of the models that an engine started with
    versions: dict[str, str] = field(default_factory=dict)  #: of an engine's models, by their served names
    applied: asyncio.Future[None] | None = None

    async def events(self) -> AsyncIterator[Event]:
        """Until it closes its standard output, at its end."""
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            yield event_of(line)

    def stop(self) -> None:
        self._write(STOP)

    def tell(self, order: Order) -> None:
        self._write(line_of(order))

    def _write(self, line: bytes) -> None:
        assert self.process.stdin is not None
        with suppress(OSError):
            self.process.stdin.write(line)

    async def apply(self, order: ApplyConfig) -> None:
        """Raises BusyError where it ends meanwhile."""
        self.applied = asyncio.get_running_loop().create_future()
        self.tell(order)
        await self.applied

    def report(self, error: BusyError | None = None) -> None:
        """The order in progress is executed, or will not be."""
        if self.applied is None or self.applied.done():
            return
        if error is None:
            self.applied.set_result(None)
        else:
            self.applied.set_exception(error)

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self.process.kill()


class Supervisor:
    """One server. `on_ready` gets the models once, when all of them are loaded and every worker serves requests.

    `read_again`: the configuration for a reload. `engine_program`: module that is run as the engine process; another
    one loads its models in another way.
    """

    def __init__(
        self,
        config: ServeConfig,
        listening: socket.socket,
        on_ready: Callable[[list[ModelInfo]], None] = lambda models: None,
        *,
        read_again: Callable[[], ServeConfig] | None = None,
        engine_program: str = ENGINE_PROGRAM,
    ) -> None:
        self._reloader = Reloader(config, read_again, self._apply)
        self._tasks: set[asyncio.Task[None]] = set()
        self._engine_program = engine_program
        self._listening = listening
        self._on_ready = on_ready
        self._plans = config.models
        self._plans_generation = 0
        self._gpus = gpus_of(config)
        self._orders = ReplicaOrders(self._serving, config.replicas)
        self._token = secrets.token_urlsafe(32)
        self._children: dict[str, _Child] = {}
        self._ready: dict[str, asyncio.Event] = {}
        self._models: list[ModelInfo] = []
        self._served_s: dict[str, float] = {}  # of the last child of each name, from its readiness to its end

    @property
    def _config(self) -> ServeConfig:
        return self._reloader.config

    async def run(self) -> None:
        """Run until SIGTERM or Ctrl-C. Raises the engine's error if it cannot load its models at the start,
        KeyboardInterrupt for a second Ctrl-C."""
        self._stopping, self._abort = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)
        on_hangup(loop, lambda: self._reloader.start(SIGNAL), self._stopping.set)
        try:
            with private_folder() as folder, ExitStack() as stack:
                self._folder = folder  # private, as the sockets in it
                engine_sockets: dict[str, socket.socket] = {}
                for name in self._engine_names:
                    engine_sockets[name] = stack.enter_context(socket.socket(socket.AF_UNIX))
                    engine_sockets[name].bind(str(folder / name.replace("engine", SOCKET)))
                    engine_sockets[name].listen(socket.SOMAXCONN)  # workers wait here while an engine loads
                await self._run(engine_sockets)
        finally:
            self._listening.close()
        if self._abort.is_set():
            raise KeyboardInterrupt

    @property
    def _engine_names(self) -> list[str]:
        count = self._config.replicas
        return [f"engine {number}" for number in range(1, count + 1)] if count > 1 else ["engine"]

    async def _run(self, engine_sockets: dict[str, socket.socket]) -> None:
        metrics = self._folder / METRICS
        metrics.mkdir()
        keepers = {
            name: asyncio.create_task(self._keep(name, start), name=name)
            for name, start in self._starters(engine_sockets, metrics).items()
        }
        helpers = [
            asyncio.create_task(self._announce(), name="announce"),
            asyncio.create_task(self._stopping.wait(), name="stopping"),
        ]
        try:
            await asyncio.wait({*keepers.values(), helpers[1]}, return_when=asyncio.FIRST_COMPLETED)
            for task in keepers.values():  # one that ends by itself has failed
                if task.done():
                    task.result()
            self._listening.close()
            engines = {keepers[name] for name in self._engine_names}
            await self._stop(set(keepers.values()) - engines, WORKERS_DRAIN_S)
            await self._stop(engines, ENGINE_DRAIN_S)
        finally:
            self._stopping.set()
            for child in self._children.values():
                child.kill()
            await asyncio.gather(*keepers.values(), return_exceptions=True)
            for helper in helpers:
                helper.cancel()

    def _starters(self, engine_sockets: dict[str, socket.socket], metrics: Path) -> dict[str, Callable[[], Any]]:
        fd = self._listening.fileno()
        paths = tuple(each.getsockname() for each in engine_sockets.values())

        def engine(name: str, number: int) -> Callable[[], Any]:
            engine_fd = engine_sockets[name].fileno()

            async def start() -> _Child:
                await self._orders.settled.wait()
                count, generation = self._config.replicas, self._orders.generation
                config = replace(self._config, settings=settings_of(self._config.settings, number, count))
                restart = self._ready[name].is_set()
                launch = EngineLaunch(
                    engine_fd, self._token, config, self._plans, restart, generation, decides=count == 1
                )
                more = environment_of(number, count, self._gpus, os.environ)
                child = await self._spawn(name, self._engine_program, launch, engine_fd, more)
                child.generation = generation
                return child

            return start

        def worker(name: str) -> Callable[[], Any]:
            def start() -> Any:
                launch = HttpWorkerLaunch(fd, self._token, self._config, paths, str(metrics))
                return self._spawn(name, HTTP_WORKER_PROGRAM, launch, fd, {COUNTERS_FOLDER: launch.metrics_folder})

            return start

        names = [f"HTTP worker {number}" for number in range(1, self._config.workers + 1)]
        engines = {name: engine(name, number) for number, name in enumerate(self._engine_names, 1)}
        return {**engines, **{name: worker(name) for name in names}}

    async def _spawn(
        self, name: str, program: str, launch: EngineLaunch | HttpWorkerLaunch, fd: int, more: dict[str, str]
    ) -> _Child:
        """`more`: what its environment has beside this process's own."""
        environment = {key: value for key, value in os.environ.items() if key != COUNTERS_FOLDER} | more
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # never import modules from the current folder
            "-m",
            program,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=_LINE_BYTES,
            pass_fds=(fd,),
            env=environment,
            process_group=0,  # a terminal's Ctrl-C is for the supervisor
        )
        assert process.stdin is not None
        process.stdin.write(line_of(launch))
        return _Child(name, process)

    async def _keep(self, name: str, start: Callable[[], Any]) -> None:
        """Start the child again whenever it ends, until all stop. Raises if it ends before it was ever ready."""
        self._ready[name] = asyncio.Event()
        pause = FIRST_PAUSE_S
        while not self._stopping.is_set():
            ended, error = await self._live(name, start)
            if self._stopping.is_set():
                return
            if not self._ready[name].is_set():
                raise error or BackendError(f"the {ended} while it started")
            if self._served_s[name] > STEADY_S:
                pause = FIRST_PAUSE_S
            logger.warning("%s%s; another one in %.1f s", ended, f": {error}" if error else "", pause)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause)
            pause = min(LONGEST_PAUSE_S, 2 * pause)

    async def _live(self, name: str, start: Callable[[], Any]) -> tuple[str, Exception | None]:
        """One child from its start to its end: how it ended, and the error that it reported.

        A child that ran before and cannot be started for lack of processes, memory or files counts as ended, for that
        may pass. Raises BackendError for one that never ran.
        """
        self._served_s[name] = 0.0
        try:
            child = await start()
        except (OSError, RuntimeError) as error:
            ended = f"{name} process cannot be started: {reason_of(error)}"
            if not self._ready[name].is_set():
                raise BackendError(f"the {ended}") from error
            return ended, None
        self._children[name] = child
        if self._stopping.is_set():
            child.stop()
        failure: Exception | None = None
        ready_at: float | None = None
        watchdog = asyncio.create_task(self._watch(child), name=f"watchdog of {name}")
        try:
            async for event in child.events():
                child.silent_s = 0.0
                if isinstance(event, Alive):
                    child.overdue_s = event.overdue_s
                elif isinstance(event, Failed):
                    failure = wire.exception_of(event.error)
                elif isinstance(event, Plans):
                    child.versions = event.versions
                    if event.generation >= self._plans_generation:  # not of a replica that knows less than others
                        self._plans, self._plans_generation = event.plans, event.generation
                elif isinstance(event, Applied):
                    child.report()
                elif isinstance(event, Prepared | Executed):
                    self._orders.received(child, event)
                elif isinstance(event, OrderRequest):
                    self._start(self._answer(child, event))
                elif isinstance(event, ModelsLoaded):
                    if (failure := self._mismatch(child)) is not None:
                        child.kill()
                        continue
                    self._models, child.serving = list(event.models), True
                    child.tell(Serve())
                elif isinstance(event, Ready):
                    child.ready, ready_at = True, time.monotonic()
                    self._ready[name].set()
        finally:
            watchdog.cancel()
            child.report(BusyError(f"the {name} process ended meanwhile", retry_after=2))
            child.serving = False
            for order in self._orders.ended(child):
                self._start(self._orders.decide(order))
        status = await child.process.wait()
        del self._children[name]
        self._served_s[name] = 0.0 if ready_at is None else time.monotonic() - ready_at
        return f"{name} process {child.process.pid} ended {_how(status)}", failure

    async def _watch(self, child: _Child) -> None:
        """Kill the child if it hangs: nothing else ends one that is stopped, or whose event loop stands still."""
        while True:
            await asyncio.sleep(BEAT_S)
            settings = self._config.settings
            most_overdue_s = OVERDUE_TIMES * settings.engine_timeout_s
            child.silent_s += BEAT_S
            limit = settings.shortest_hang_s if child.ready else max(LOADING_HANG_S, settings.hang_timeout_s)
            reason = ""
            if child.silent_s > limit:
                reason = f"has given no sign of life for {limit:g} s"
            elif child.overdue_s > most_overdue_s:
                reason = f"has not returned from a call in {settings.engine_timeout_s + most_overdue_s:g} s"
            if reason:
                logger.error("%s process %d %s: it is killed", child.name, child.process.pid, reason)
                child.kill()
                return

    def _serving(self) -> list[_Child]:
        children = (self._children.get(name) for name in self._engine_names)
        return [child for child in children if child is not None and child.serving]

    def _mismatch(self, engine: _Child) -> BackendError | None:
        """Why an engine that has loaded may not serve beside the others; None where it may."""
        if engine.generation < self._orders.generation:
            return BackendError("the models were changed while it loaded")
        for other in self._serving():
            for name, version in engine.versions.items():
                if other.versions.get(name, version) != version:
                    return BackendError(
                        f"it has another version of {name} than the other replicas: the model's files have changed; "
                        "swap it, or restart the server"
                    )
        return None

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, child: _Child, request: OrderRequest) -> None:
        """Execute it, and tell the HTTP worker the outcome, which is logged already."""
        outcome: dict[str, Any] = {}
        failure: wire.MethodError | None = None
        if request.id is None:
            await self._orders.decide(request.order)
            return
        try:
            if not self._all_were_ready:
                raise BusyError("the server is starting", retry_after=2)
            if request.order.get("action") == RELOAD:
                outcome = await self._reloader.reload(request.order["by"], request.order["request_id"])
            else:
                outcome = await self._orders.execute(request.order)
        except AssayError as error:
            failure = wire.method_error(0, error)
        except Exception:
            failure = wire.MethodError(0, "", "")
        child.tell(OrderReply(request.id, outcome, failure))

    async def _apply(self, change: ConfigChange) -> ModelChanges:
        """First the engines, any of which may refuse; then every HTTP worker. One that cannot follow is stopped, so
        that another one starts with the new configuration."""
        if not self._all_were_ready:  # SIGHUP
            raise BusyError("the server is starting", retry_after=2)
        models = await self._orders.execute({"action": RELOAD}, ApplyConfig(change.config, change.before))
        self._reloader.config = change.config  # for children that start from now on
        workers = [child for name, child in self._children.items() if name not in self._engine_names]
        await asyncio.gather(*(self._apply_in_worker(worker, change) for worker in workers))
        return ModelChanges(**{name: tuple(names) for name, names in models.items()})

    @property
    def _all_were_ready(self) -> bool:
        count = self._config.workers + self._config.replicas
        return len(self._ready) == count and all(ready.is_set() for ready in self._ready.values())

    async def _apply_in_worker(self, worker: _Child, change: ConfigChange) -> None:
        try:
            if worker.ready:
                await asyncio.wait_for(worker.apply(ApplyConfig(change.config)), WORKER_APPLIES_S)
                return
        except (AssayError, TimeoutError) as error:
            logger.error("%s does not take the new configuration: %s", worker.name, reason_of(error))
        worker.stop()

    async def _announce(self) -> None:
        while len(self._ready) < self._config.workers + self._config.replicas:
            await asyncio.sleep(0)
        for ready in self._ready.values():
            await ready.wait()
        self._on_ready(self._models)

    async def _stop(self, keepers: set[asyncio.Task[None]], within: float) -> None:
        """Stop the children of these tasks, and kill those that do not end in time."""
        names = {task.get_name() for task in keepers}
        for name in names & set(self._children):
            self._children[name].stop()
        abort = asyncio.create_task(self._abort.wait())
        done = asyncio.gather(*keepers, return_exceptions=True)
        either: set[asyncio.Future[Any]] = {done, abort}
        await asyncio.wait(either, timeout=within, return_when=asyncio.FIRST_COMPLETED)
        for name in names & set(self._children):
            self._children[name].kill()
        await done
        abort.cancel()

    def _on_signal(self, number: int) -> None:
        if self._stopping.is_set() and number == signal.SIGINT:
            self._abort.set()
        self._stopping.set()


def _how(status: int) -> str:
    if status >= 0:
        return f"with status {status}"
    with suppress(ValueError):
        return f"by {signal.Signals(-status).name}"
    return f"by signal {-status}"
