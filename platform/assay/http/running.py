"""Running an ASGI application over HTTP: in this process until it is told to stop, or from a thread.

Covers: readiness, graceful drain on SIGTERM and Ctrl-C, TLS, bounded headers. Leaves out: the address (`listening`),
the application. An application may have an `app.state.service` with `ready`, `drain()` and `settings`.
"""

import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import uvicorn

from assay.errors import BackendError
from assay.http.connections import BoundedProtocol, bounded
from assay.http.listening import Tls, claim_port, port_error, url_of

KEEP_ALIVE_S = 75  #: longer than the client keeps a connection, so that the client is the one to close it
DRAIN_S = 60
START_S = 120.0


@contextmanager
def running_app(
    app: Any, *, host: str = "127.0.0.1", port: int = 0, tls: Tls | None = None, drain_s: int = 5
) -> Iterator[str]:
    """Serve the application from a thread of this process, on a free port unless one is named; yields the URL.

    Ready when entered; requests in progress get `drain_s` seconds before it leaves. Raises BusyError when the port is
    taken.
    """
    listening = claim_port(host, port)
    server = _server(app, tls=tls, drain_s=drain_s)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, name="assay-app", daemon=True)
    service = _service_of(app)
    try:
        thread.start()
        deadline = time.monotonic() + START_S
        while not (server.started and getattr(service, "ready", True)):
            if not thread.is_alive() or time.monotonic() > deadline:
                raise BackendError("the server did not start")
            time.sleep(0.005)
        yield url_of(listening, tls=tls)
    finally:
        if service is not None:
            service.drain()
        server.should_exit = True
        if thread.is_alive():
            thread.join(2 * drain_s)
        listening.close()


def serve_until_stopped(
    app: Any,
    listening: socket.socket,
    on_ready: Callable[[], None] = lambda: None,
    *,
    tls: Tls | None = None,
    proxies: Sequence[str] | None = None,
) -> None:
    """Serve in this process. SIGTERM and Ctrl-C answer queued requests, refuse new ones, then return.

    `on_ready` is called once, when requests are answered. `proxies`: addresses whose X-Forwarded-For and -Proto headers
    are trusted; None leaves it to uvicorn. Call from the main thread.
    """
    # uvicorn raises the signal again after draining; a server that was stopped did not fail.
    previous = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        with suppress(KeyboardInterrupt):
            _server(app, on_ready, tls=tls, proxies=proxies).run(sockets=[listening])
    except OSError as error:  # two servers claimed the port at once and the other one listened first
        raise port_error(error, *listening.getsockname()[:2]) from error
    finally:
        signal.signal(signal.SIGTERM, previous)


class _DrainingServer(uvicorn.Server):
    """Reports when it listens, and drains the application as soon as the signal arrives."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if (service := _service_of(self.config.app)) is not None:
            service.drain()
        super().handle_exit(sig, frame)


def _service_of(app: Any) -> Any:
    """What the application drains, None for one with nothing to drain."""
    service = getattr(getattr(app, "state", None), "service", None)
    return service if hasattr(service, "drain") else None


def _server(
    app: Any,
    on_ready: Callable[[], None] = lambda: None,
    *,
    tls: Tls | None = None,
    proxies: Sequence[str] | None = None,
    drain_s: int = DRAIN_S,
) -> uvicorn.Server:
    header_s = getattr(getattr(_service_of(app), "settings", None), "header_timeout_s", None)
    config = uvicorn.Config(
        app,
        log_config=None,  # the process configures its logs
        log_level="warning",
        access_log=False,  # applications log requests themselves, without text of the client
        http=bounded(header_s) if header_s is not None else BoundedProtocol,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=drain_s,
        server_header=False,
        forwarded_allow_ips=None if proxies is None else list(proxies),
        ssl_certfile=tls.cert if tls else None,
        ssl_keyfile=tls.key if tls else None,
    )
    return _DrainingServer(config, on_ready)
