"""The program of an HTTP worker: HTTP, keys, validation, wire formats; the models are in the engine process.

Covers: its start, and counters shared by all workers. Leaves out: its supervisor (`supervisor`), the application
(`assay_serving.server`). Run as `python -m` with a line of JSON on standard input, not by people. It imports no torch,
which a test checks.
"""

import asyncio
import os
import signal
import socket

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from assay.errors import AssayError
from assay.http.running import serve_until_stopped
from assay.system.gc_threshold import collect_less
from assay_serving.engine_process.engine_client import EngineClient
from assay_serving.engine_process.launch import HttpWorkerLaunch, Ready, Supervised, max_frame_bytes
from assay_serving.engine_process.reloading import WorkerOrders
from assay_serving.server.app import app_of
from assay_serving.server.core.logs import configure_logs
from assay_serving.server.metrics.http_metrics import HttpMetrics


class SharedHttpMetrics(HttpMetrics):
    """Counters of all workers as one sum, whichever of them is asked, by prometheus_client's multiprocess mode.

    Each worker keeps its counters in files of one folder, which outlive it, so that sums never decrease. Needs
    $PROMETHEUS_MULTIPROC_DIR to name `folder` before prometheus_client is first imported.
    """

    def __init__(self, folder: str) -> None:
        super().__init__()
        self._folder = folder

    def text(self) -> bytes:
        registry = CollectorRegistry()
        MultiProcessCollector(registry, self._folder)  # type: ignore[no-untyped-call]
        return generate_latest(registry)


def main() -> int:
    collect_less()
    supervised = Supervised()
    launch = supervised.launched(HttpWorkerLaunch)
    config = launch.config
    configure_logs(config.log_format, requests=config.log_requests)
    backend = EngineClient(launch.engine_paths, launch.token, max_frame_bytes=max_frame_bytes(config.settings))
    app = app_of(backend, settings=config.settings)
    app.state.service.metrics = SharedHttpMetrics(launch.metrics_folder)

    def on_ready() -> None:
        supervised.stop_with(lambda: os.kill(os.getpid(), signal.SIGTERM))
        supervised.beat_in(asyncio.get_running_loop())
        orders = WorkerOrders(supervised, app.state.service)
        if config.replicas > 1:
            backend.order = orders.order
        supervised.send(Ready())

    signal.signal(signal.SIGHUP, lambda *_: None)  # for the supervisor
    try:
        serve_until_stopped(app, socket.socket(fileno=launch.listening_fd), on_ready, tls=config.tls)
    except AssayError as error:
        supervised.fail(error)
        return error.exit_code
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
