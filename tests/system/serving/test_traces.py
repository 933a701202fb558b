"""One trace from the client through the HTTP worker to an engine, by OTLP over HTTP; nothing of it where it is off."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import async_training
import pytest
from test_serve_processes import pytestmark, started, until, url_when_ready

__all__ = ["pytestmark"]

PATIENCE_S = 300.0
CLIENT = """
import sys
from assay.system import tracing
from assay_serving.client import RewardClient
with RewardClient(sys.argv[1], max_items_per_request=1) as client, tracing.span("rl step", step=3):
    results = client.score_group("Name a metal.", ["Gold.", "Glass, I think, it is."])
print([result.reward for result in results])
"""
#: Rewards of the second step are requested beside the first.
TRAINER = """
import sys
from pathlib import Path
from async_training import recipe_with, trainer
from assay_policy_training.rollouts.rewards import ModelReward
from assay_serving.client import RemoteScorer, RewardClient
with RewardClient(sys.argv[1]) as client:
    made = trainer(recipe_with(lag=1), Path(sys.argv[2]), rewards=[ModelReward(RemoteScorer(client))])
    made.train(2)
    made.close()
"""


@dataclass(frozen=True)
class ReceivedSpan:
    name: str
    trace: bytes
    id: bytes
    parent: bytes


@contextmanager
def collector() -> Iterator[tuple[str, list[ReceivedSpan]]]:
    """The address of an OTLP receiver, and the spans that it got."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    received: list[ReceivedSpan] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            import gzip

            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            request: Any = ExportTraceServiceRequest.FromString(body)
            for resource in request.resource_spans:
                for scope in resource.scope_spans:
                    received.extend(
                        ReceivedSpan(span.name, span.trace_id, span.span_id, span.parent_span_id)
                        for span in scope.spans
                    )
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", received
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.slow
def test_one_trace_runs_through_client_http_worker_and_engine(
    rule_reward: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    pytest.importorskip("opentelemetry.sdk")
    with collector() as (endpoint, received):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
        with started(str(rule_reward), "--name", "rm", "--port", "0", "--replicas", "2", "--device", "cpu") as process:
            url = url_when_ready(process, PATIENCE_S)
            client = subprocess.run([sys.executable, "-c", CLIENT, url], capture_output=True, text=True, check=True)
            assert client.stdout.strip() == "[1.0, 0.0]"
            expected = {"rl step": 1, "POST /v1/score": 2, "http request": 2, "engine score": 2}

            def of_trace() -> list[ReceivedSpan]:
                steps = [span for span in received if span.name == "rl step"]
                return [span for span in received if steps and span.trace == steps[0].trace]

            until(lambda: len(of_trace()) >= sum(expected.values()), PATIENCE_S)
            spans = of_trace()
            asked = len(received)
            support = os.pathsep.join([async_training.__file__.rpartition(os.sep)[0], *sys.path])
            program = [sys.executable, "-c", TRAINER, url, str(tmp_path)]
            subprocess.run(program, check=True, env={**os.environ, "PYTHONPATH": support})
            names = {"rl step": 2, "rollout rewards": 2}
            until(lambda: all(sum(s.name == n for s in received[asked:]) >= c for n, c in names.items()), PATIENCE_S)
            trained = received[asked:]
    assert {name: sum(span.name == name for span in spans) for name in expected} == expected
    by_id = {span.id: span for span in spans}
    parents = {span.name: by_id[span.parent].name for span in spans if span.parent}
    by_id = {span.id: span for span in trained}
    beside = [by_id[span.parent].name for span in trained if span.name == "rollout rewards"]
    assert beside == ["rl step"] * len(beside)
    posted = [by_id[span.parent].name for span in trained if span.name.startswith("POST")]
    assert posted
    assert set(posted) == {"rollout rewards"}
    assert parents == {"POST /v1/score": "rl step", "http request": "POST /v1/score", "engine score": "http request"}


def test_without_an_endpoint_nothing_of_it_is_imported() -> None:
    program = "import assay_serving.server.app, sys; assert 'opentelemetry.sdk' not in sys.modules"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)
