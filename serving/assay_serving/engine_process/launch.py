"""The pipes between the supervisor and its child processes.

Covers: the settings of a child as one line of JSON on its standard input (no secret is on a command line), its end with
that pipe, events as lines on its standard output, signs of life of its event loop. Leaves out: the programs of the
children (`engine`, `http_worker`), what becomes of one that gives no sign (`supervisor`).
"""

import asyncio
import os
import select
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import msgspec

from assay.errors import AssayError
from assay_serving.engine_process import wire
from assay_serving.model_config import ModelConfig
from assay_serving.scorer import ModelInfo
from assay_serving.server.core.settings import ServeConfig, ServerSettings
from assay_serving.server.http.config_file import path_of

_LEAST_FRAME_BYTES = 64 << 20
STOP = b"stop\n"
RELOAD = "reload"  #: the action of an order for the supervisor itself
BEAT_S = 0.5  #: between two signs of life of a child

T = TypeVar("T")


@dataclass(frozen=True)
class EngineLaunch:
    """`listening_fd`: the inherited Unix socket. `plans`: the models to load now, instead of the config's first ones.
    `restart`: an engine was ready before; its plans have names. `generation`: see `ScoreResponse`. `decides`: no other
    replica has to follow a swap that decides itself."""

    listening_fd: int
    token: str
    config: ServeConfig
    plans: tuple[ModelConfig, ...]
    restart: bool = False
    generation: int = 0
    decides: bool = True


@dataclass(frozen=True)
class HttpWorkerLaunch:
    """`listening_fd`: the inherited socket of the server. `engine_paths`: the Unix sockets, one for each replica.
    `metrics_folder`: where all workers keep their counters, so that each can report the sum."""

    listening_fd: int
    token: str
    config: ServeConfig
    engine_paths: tuple[str, ...]
    metrics_folder: str


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The child serves requests."""


class ModelsLoaded(msgspec.Struct, frozen=True, tag="loaded"):
    """An engine can serve its models, and waits for `Serve`. By their served names."""

    models: tuple[ModelInfo, ...]


class Plans(msgspec.Struct, frozen=True, tag="plans"):
    """The models that another engine would have to load to be equivalent, after that many changes of all replicas.
    `versions`: of those that it serves, by their served names."""

    plans: tuple[ModelConfig, ...]
    generation: int
    versions: dict[str, str]


class Alive(msgspec.Struct, frozen=True, tag="alive"):
    """The child's event loop runs; before it has one, its process does. `overdue_s`: by how long a model's call exceeds
    its time limit."""

    overdue_s: float = 0.0


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """It cannot start, for a reason to report. The child exits afterwards."""

    error: wire.MethodError


class Applied(msgspec.Struct, frozen=True, tag="applied"):
    """An HTTP worker follows an `ApplyConfig`."""


class Prepared(msgspec.Struct, frozen=True, tag="prepared"):
    """Nothing of the `Prepare` with this id can fail any more; it waits for `Commit` or `Rollback`. `version`: of what
    it will serve; "": of none."""

    id: int
    version: str


class Executed(msgspec.Struct, frozen=True, tag="executed"):
    """What became of the `Prepare` with this id, whether or not it was prepared."""

    id: int
    outcome: dict[str, Any]
    error: wire.MethodError | None = None


class OrderRequest(msgspec.Struct, frozen=True, tag="order"):
    """An order for the supervisor (`reload`) or for all replicas: of an administrator, its outcome has this id; None:
    of a swap that decides itself."""

    id: int | None
    order: dict[str, Any]


class Serve(msgspec.Struct, frozen=True, tag="serve"):
    """An engine that has loaded may accept requests: its models are those of the other replicas."""


class ApplyConfig(msgspec.Struct, frozen=True, tag="apply"):
    """An order of the supervisor. `before`: the models of the configuration until now."""

    config: ServeConfig
    before: tuple[ModelConfig, ...] = ()


class Prepare(msgspec.Struct, frozen=True, tag="prepare"):
    """An order that all replicas execute, or none: an administrator's `order`, or a `change` of the configuration."""

    id: int
    order: dict[str, Any] = {}
    change: ApplyConfig | None = None


class Commit(msgspec.Struct, frozen=True, tag="commit"):
    """All replicas have prepared it: it takes effect. `generation`: see `ScoreResponse`."""

    id: int
    generation: int


class Rollback(msgspec.Struct, frozen=True, tag="rollback"):
    """Another replica cannot execute it: everything stays as it was."""

    id: int


class OrderReply(msgspec.Struct, frozen=True, tag="ordered"):
    """The outcome of an `OrderRequest`: see `Reloader.reload` and `ScoringBackend.manage`."""

    id: int
    outcome: dict[str, Any]
    error: wire.MethodError | None = None


Event: TypeAlias = ModelsLoaded | Ready | Plans | Alive | Failed | Applied | Prepared | Executed | OrderRequest
Order: TypeAlias = Serve | ApplyConfig | Prepare | Commit | Rollback | OrderReply
_order: msgspec.json.Decoder[Order] = msgspec.json.Decoder(Order, dec_hook=path_of)
_event: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)


def event_of(line: bytes) -> Event:
    return _event.decode(line)


def line_of(launch: EngineLaunch | HttpWorkerLaunch | Order) -> bytes:
    return msgspec.json.encode(launch, enc_hook=os.fspath) + b"\n"


def max_frame_bytes(settings: ServerSettings) -> int:
    """Limit of a frame between HTTP worker and engine: no accepted body is larger as a message, token ids (at least
    two bytes in JSON, at most five here) included."""
    return max(_LEAST_FRAME_BYTES, 3 * settings.max_body_bytes)


class Supervised:
    """A child's end of its pipes. Created once, first, in the main thread."""

    def __init__(self) -> None:
        self._orders = os.fdopen(os.dup(0), "rb", buffering=0)
        self._events = os.fdopen(os.dup(1), "wb", buffering=0)
        with open(os.devnull, "rb") as nothing:
            os.dup2(nothing.fileno(), 0)
        os.dup2(2, 1)  # output of libraries is no event
        self._on_stop: Callable[[], object] | None = None
        self._on_order: Callable[[Order], object] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._overdue_s: Callable[[], float] = lambda: 0.0
        self._lock = threading.Lock()

    def launched(self, kind: type[T]) -> T:
        """The child's settings. From now on the process ends with the supervisor."""
        line = self._orders.readline()
        if not line:  # the supervisor ended first
            raise SystemExit(1)
        launch = msgspec.json.decode(line, type=kind, dec_hook=path_of)
        threading.Thread(target=self._obey, name="lifeline", daemon=True).start()
        threading.Thread(target=self._beat, name="heartbeat", daemon=True).start()
        return launch

    def beat_in(self, loop: asyncio.AbstractEventLoop, overdue_s: Callable[[], float] = lambda: 0.0) -> None:
        """From now on signs of life are given in this loop, so that they end where it hangs. `overdue_s`: see
        `Alive`."""
        self._loop, self._overdue_s = loop, overdue_s

    def stop_with(self, on_stop: Callable[[], object]) -> None:
        """Sets the handler of a stop order, called in another thread. Without one, an order ends the process."""
        self._on_stop = on_stop

    def obey_with(self, on_order: Callable[[Order], object]) -> None:
        """Sets the handler of other orders, called in another thread. The supervisor sends none before `Ready`."""
        self._on_order = on_order

    def send(self, event: Event) -> None:
        line = msgspec.json.encode(event) + b"\n"
        with self._lock:
            self._events.write(line)

    def fail(self, error: AssayError) -> None:
        self.send(Failed(wire.method_error(0, error)))

    def _beat(self) -> None:
        while True:
            time.sleep(BEAT_S)
            if self._loop is None:
                self._send_alive()
            else:
                try:
                    self._loop.call_soon_threadsafe(self._send_alive)
                except RuntimeError:
                    return  # the loop is closed: the process ends

    def _send_alive(self) -> None:
        """Not where the pipe is full, because the supervisor does not read: this one must not wait for it."""
        if select.select([], [self._events], [], 0)[1]:
            self.send(Alive(self._overdue_s()))

    def _obey(self) -> None:
        while line := self._orders.readline():
            if line == STOP:
                if self._on_stop is None:
                    os._exit(0)
                self._on_stop()
            elif self._on_order is not None:
                self._on_order(_order.decode(line))
        os._exit(1)  # the supervisor is gone


def ignore_signals() -> None:
    """Ignore SIGTERM, SIGINT and SIGHUP, which terminals and some service managers send to all processes: orders come
    from the supervisor. By handlers instead of SIG_IGN, which child processes would inherit.
    """

    def ignore(*_: Any) -> None: ...

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, ignore)
