"""The program of a front: HTTP, keys, validation, wire formats; the models are in the engine process.

Leaves out: who starts it (`supervisor`), the application (`assay_serving.server`). Run as `python -m`, with a line of
JSON on its standard input; it is no command for people. It must import no torch: tests hold it to that.
"""

from __future__ import annotations

import os
import signal
import socket

from assay.errors import AssayError
from assay.http.listening import Tls
from assay.http.running import serve_until_stopped
from assay.system.gc_threshold import collect_less
from assay_serving.engine_process.counters import SharedHttpMetrics
from assay_serving.engine_process.engine_client import EngineClient
from assay_serving.engine_process.launch import HttpWorkerLaunch, Ready, Supervised, frame_bytes
from assay_serving.server.app import app_of
from assay_serving.server.core.logs import configure_logs


def main() -> int:
    collect_less()
    supervised = Supervised()
    launch = supervised.launched(HttpWorkerLaunch)
    configure_logs(launch.log_format, requests=launch.log_requests)
    host = EngineClient(launch.engine_path, launch.token, frame_bytes=frame_bytes(launch.settings))
    app = app_of(host, settings=launch.settings)
    app.state.service.metrics = SharedHttpMetrics(launch.metrics_folder)
    tls = Tls(launch.tls_cert, launch.tls_key) if launch.tls_cert and launch.tls_key else None

    def on_ready() -> None:
        supervised.stop_with(lambda: os.kill(os.getpid(), signal.SIGTERM))
        supervised.tell(Ready())

    try:
        serve_until_stopped(app, socket.socket(fileno=launch.listening_fd), on_ready, tls=tls)
    except AssayError as error:
        supervised.fail(error)
        return error.exit_code
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
