"""Running a server: in this process until it is told to stop, or in a thread for demonstrations, tests and training.

Covers: graceful drain on SIGTERM and Ctrl-C, TLS, a context manager that is ready when it is entered. Leaves out: what
is served (`assay_serving.server`), the address (`listening`), several processes (`engine_process`).
"""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType

import uvicorn
from fastapi import FastAPI

from assay.errors import BackendError
from assay.http.connections import BoundedProtocol, bounded
from assay.http.listening import Tls, claim_port, port_error, url_of
from assay_serving.scorer import Scorer
from assay_serving.server import ServerSettings, create_app

__all__ = [
    "DRAIN_S",
    "START_S",
    "RunningServer",
    "Tls",
    "claim_port",
    "running_server",
    "serve_until_stopped",
    "url_of",
]

KEEP_ALIVE_S = 75  #: longer than the client keeps a connection, so that the client is the one to close it
DRAIN_S = 60
START_S = 30.0


@dataclass(frozen=True)
class RunningServer:
    """A server that answers at `url`."""

    url: str
    app: FastAPI


@contextmanager
def running_server(
    scorers: Mapping[str, Scorer],
    *,
    settings: ServerSettings | None = None,
    host: str = "127.0.0.1",
    port: int = 0,
    tls: Tls | None = None,
) -> Iterator[RunningServer]:
    """Serve the models over real HTTP from a thread of this process, on a free port unless one is named.

    Ready when entered; requests in progress are answered before it leaves. Raises BusyError when the port is taken.
    """
    listening = claim_port(host, port)
    app = create_app(scorers, settings=settings)
    server = _server(app, tls=tls)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, name="assay-server", daemon=True)
    try:
        thread.start()
        deadline = time.monotonic() + START_S
        while not (server.started and app.state.service.ready):
            if not thread.is_alive() or time.monotonic() > deadline:
                raise BackendError("the server did not start")
            time.sleep(0.01)
        yield RunningServer(url_of(listening, tls=tls), app)
    finally:
        app.state.service.drain()
        server.should_exit = True
        if thread.is_alive():
            thread.join(DRAIN_S)
        listening.close()


def serve_until_stopped(
    app: FastAPI,
    listening: socket.socket,
    on_ready: Callable[[], None] = lambda: None,
    *,
    tls: Tls | None = None,
    proxies: Sequence[str] | None = None,
) -> None:
    """Serve in this process. SIGTERM and Ctrl-C answer what is queued, refuse what is new, then return.

    `on_ready` is called once, when requests are being answered. `proxies`: addresses whose X-Forwarded-For and -Proto
    are believed; None leaves it to uvicorn. Call from the main thread.
    """
    # uvicorn raises the signal once more when it has drained; a server that was told to stop did not fail.
    previous = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        with suppress(KeyboardInterrupt):
            _server(app, on_ready, tls=tls, proxies=proxies).run(sockets=[listening])
    except OSError as error:  # two servers claimed the port at once and the other was first to listen
        raise port_error(error, *listening.getsockname()[:2]) from error
    finally:
        signal.signal(signal.SIGTERM, previous)


class _DrainingServer(uvicorn.Server):
    """Says when it listens, and tells the application that it drains as soon as the signal comes."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        app = self.config.app
        service = getattr(app.state, "service", None) if isinstance(app, FastAPI) else None
        if service is not None:  # an application of another part may have nothing to drain
            service.drain()
        super().handle_exit(sig, frame)


def _server(
    app: FastAPI,
    on_ready: Callable[[], None] = lambda: None,
    *,
    tls: Tls | None = None,
    proxies: Sequence[str] | None = None,
) -> uvicorn.Server:
    config = uvicorn.Config(
        app,
        log_config=None,  # to where the process logs (`server.logs`)
        log_level="warning",
        access_log=False,  # the gate logs, without the caller's text
        http=_protocol(app),
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=DRAIN_S,
        server_header=False,
        forwarded_allow_ips=None if proxies is None else list(proxies),
        ssl_certfile=tls.cert if tls else None,
        ssl_keyfile=tls.key if tls else None,
    )
    return _DrainingServer(config, on_ready)


def _protocol(app: FastAPI) -> type[BoundedProtocol]:
    settings = getattr(getattr(app.state, "service", None), "settings", None)
    return bounded(settings.header_timeout_s) if settings is not None else BoundedProtocol
