"""How many modules one scoring request runs through, from the socket to the engine and back."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import httpx

import assay
import assay_serving
from assay.score import Score, ScoreResult
from assay_serving.process import running_server
from assay_serving.scorer import ModelInfo, ScoreItem
from assay_serving.server import ServerSettings

ROOTS = [str(Path(package.__file__ or "").parent) for package in (assay, assay_serving)]
VALUE_TYPES = ("assay/domain.py", "assay/score.py", "assay_serving/scorer.py")  # what is passed along
MOST = 15


class Engine:
    info = ModelInfo("rm", "v1", "scalar", "t", 100, False, "passed", "float32", "cpu")
    score_identity = ""

    def score(self, items: Sequence[ScoreItem], on_progress: Any = None) -> list[ScoreResult]:
        return [Score(1.0, "rm", "v1", "t", 3, False) for _ in items]


def test_a_score_request_runs_through_at_most_15_modules() -> None:
    files: set[str] = set()
    recording = False

    def record(frame: FrameType, event: str, _: Any) -> None:
        name = frame.f_code.co_filename
        if recording and event == "call" and name.startswith(tuple(ROOTS)) and name != __file__:
            files.add(name)

    before = sys.getprofile()
    threading.setprofile(record)
    try:
        with (
            running_server({"rm": Engine()}, settings=ServerSettings(api_keys=("key",))) as running,
            httpx.Client(base_url=running.url, headers={"Authorization": "Bearer key"}) as client,
        ):
            client.get("/healthz").raise_for_status()
            recording = True
            reply = client.post("/v1/score", json={"prompt": "Name a metal.", "responses": ["Gold.", "Glass."]})
            recording = False
    finally:
        threading.setprofile(before)
    assert [result["reward"] for result in reply.json()["results"]] == [1.0, 1.0]
    modules = sorted(name for name in files if not name.endswith(VALUE_TYPES))
    assert any(name.endswith("batcher.py") for name in modules)  # the threads are recorded
    assert len(modules) <= MOST, modules
