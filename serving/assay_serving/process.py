"""A scoring server in a thread of this process, for training, tests and demonstrations.

Leaves out: the application (`assay_serving.server`), running any application (`assay.http.running`), several processes
(`assay_serving.engine_process`).
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from fastapi import FastAPI

from assay.http.listening import Tls
from assay.http.running import DRAIN_S, running_app
from assay_serving.scorer import Scorer
from assay_serving.server.app import create_app
from assay_serving.server.core.settings import ServerSettings


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
    """Serve the models over HTTP from a thread of this process; see `running_app`."""
    app = create_app(scorers, settings=settings)
    with running_app(app, host=host, port=port, tls=tls, drain_s=DRAIN_S) as url:
        yield RunningServer(url, app)
