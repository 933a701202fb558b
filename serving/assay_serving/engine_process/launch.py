"""What the supervisor tells a child when it starts it, and what a child tells the supervisor.

Covers: the settings of each kind of child as one line of JSON on its standard input (no secret is on a command line),
the end of that pipe as the end of the child, events as lines on its standard output. Leaves out: what children do
(`engine`, `front`).
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import msgspec

from assay.errors import AssayError
from assay_serving.engine_process import wire
from assay_serving.model_config import ModelConfig
from assay_serving.scorer import ModelInfo
from assay_serving.server.core.logs import Format
from assay_serving.server.core.settings import ServerSettings
from assay_serving.server.http.config_file import path_of

_LEAST_FRAME_BYTES = 64 << 20
STOP = b"stop\n"

T = TypeVar("T")


@dataclass(frozen=True)
class EngineLaunch:
    """`listening_fd`: the inherited Unix socket. `workspace`: folder in which names of models are looked up. `restart`:
    an engine was ready before; its plans say their names."""

    listening_fd: int
    token: str
    plans: tuple[ModelConfig, ...]
    settings: ServerSettings
    workspace: str | None = None
    log_requests: bool = False
    log_format: Format = "text"
    restart: bool = False


@dataclass(frozen=True)
class HttpWorkerLaunch:
    """`listening_fd`: the inherited socket of the server. `engine_path`: the Unix socket. `metrics_folder`: where all
    fronts keep their counters, so that each can tell the sum."""

    listening_fd: int
    engine_path: str
    token: str
    settings: ServerSettings
    metrics_folder: str
    tls_cert: str | None = None
    tls_key: str | None = None
    log_requests: bool = False
    log_format: Format = "text"


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """Requests are answered. `models`: what an engine serves, under the names it serves them."""

    models: tuple[ModelInfo, ...] = ()


class Plans(msgspec.Struct, frozen=True, tag="plans"):
    """The models that an engine would have to load to be what it is now."""

    plans: tuple[ModelConfig, ...]


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """It cannot start, for a reason that concerns a person. The child ends after it."""

    error: wire.Refused


Event: TypeAlias = Ready | Plans | Failed
_event: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)


def event_of(line: bytes) -> Event:
    return _event.decode(line)


def line_of(launch: EngineLaunch | HttpWorkerLaunch) -> bytes:
    return msgspec.json.encode(launch, enc_hook=os.fspath) + b"\n"


def frame_bytes(settings: ServerSettings) -> int:
    """Bound of a frame between front and engine: no body that the gate admits is larger as a message, token ids (a
    digit and a comma in JSON at least, five bytes here at most) included."""
    return max(_LEAST_FRAME_BYTES, 3 * settings.max_body_bytes)


class Supervised:
    """A child's end of its pipes. Made once, first of all, in the main thread."""

    def __init__(self) -> None:
        self._orders = os.fdopen(os.dup(0), "rb", buffering=0)
        self._events = os.fdopen(os.dup(1), "wb", buffering=0)
        with open(os.devnull, "rb") as nothing:
            os.dup2(nothing.fileno(), 0)
        os.dup2(2, 1)  # whatever libraries print is no event
        self._on_stop: Callable[[], object] | None = None
        self._lock = threading.Lock()

    def launched(self, kind: type[T]) -> T:
        """What to be. From now on the process ends with the supervisor, whatever its own threads do."""
        line = self._orders.readline()
        if not line:  # the supervisor ended before it had said a word
            raise SystemExit(1)
        launch = msgspec.json.decode(line, type=kind, dec_hook=path_of)
        threading.Thread(target=self._obey, name="lifeline", daemon=True).start()
        return launch

    def stop_with(self, on_stop: Callable[[], object]) -> None:
        """What an order to stop calls, in a thread of its own. Until it is set, such an order ends the process."""
        self._on_stop = on_stop

    def tell(self, event: Event) -> None:
        line = msgspec.json.encode(event) + b"\n"
        with self._lock:
            self._events.write(line)

    def fail(self, error: AssayError) -> None:
        self.tell(Failed(wire.refused(0, error)))

    def _obey(self) -> None:
        while line := self._orders.readline():
            if line == STOP:
                if self._on_stop is None:
                    os._exit(0)
                self._on_stop()
        os._exit(1)  # the supervisor is gone


def ignore_signals() -> None:
    """Let the supervisor alone decide when a process ends: a terminal and some service managers signal all of them.

    With handlers instead of SIG_IGN: what this process starts does not inherit them.
    """

    def ignore(*_: Any) -> None: ...

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, ignore)
