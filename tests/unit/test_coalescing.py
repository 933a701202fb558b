"""The queue in front of the engine: merging, order, fairness to others, limits, hang-ups, draining, failures.

The engines here are the real one, held or broken on purpose.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from assay.domain import Message
from assay.progress import Advance, silent
from assay.score import Score, ScoreResult
from assay_serving.process import RunningServer, running_server
from assay_serving.scorer import ScoreItem
from assay_serving.server import ServerSettings
from assay_serving.transformers_engine import TransformersScorer

PATIENCE_S = 30.0
POISON = "poison"


class HeldEngine(TransformersScorer):
    """The real engine behind a door; remembers how many items each call had, raises on a poisoned item."""

    def open_door(self) -> None:
        self.door.set()

    def close_door(self) -> None:
        self.door.clear()
        self.entered.clear()

    def prepare(self) -> HeldEngine:
        self.door, self.entered, self.calls = threading.Event(), threading.Event(), list[int]()
        self.open_door()
        return self

    def score(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[ScoreResult]:
        self.calls.append(len(items))
        self.entered.set()
        assert self.door.wait(PATIENCE_S)
        if any(item.response == POISON for item in items):
            raise RuntimeError("broken by a poisoned item")
        return super().score(items, on_progress)


@pytest.fixture(scope="module")
def engine(tiny_reward_model: Path) -> HeldEngine:
    loaded = HeldEngine.load(str(tiny_reward_model), device="cpu", served_as="rm")
    assert isinstance(loaded, HeldEngine)
    return loaded


@contextmanager
def serving(engine: HeldEngine, settings: ServerSettings | None = None) -> Iterator[RunningServer]:
    engine.prepare()
    with running_server({"rm": engine}, settings=settings) as running:
        try:
            yield running
        finally:
            engine.open_door()


def ask(running: RunningServer, *responses: str) -> httpx.Response:
    return httpx.post(running.url + "/v1/score", json={"prompt": "Hi.", "responses": responses}, timeout=PATIENCE_S)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def waiting(running: RunningServer) -> int:
    found: int = running.app.state.service.host.queues["rm"].waiting
    return found


@contextmanager
def busy_engine(
    running: RunningServer, engine: HeldEngine, pool: ThreadPoolExecutor
) -> Iterator[Future[httpx.Response]]:
    """The engine is at work on one item inside the block."""
    engine.close_door()
    first = pool.submit(ask, running, "first")
    assert engine.entered.wait(PATIENCE_S)
    yield first
    engine.open_door()


def rewards(reply: httpx.Response) -> list[float]:
    assert reply.status_code == 200, reply.text
    return [entry["reward"] for entry in reply.json()["results"]]


def test_requests_that_wait_are_scored_together_and_answered_each_its_own(engine: HeldEngine) -> None:
    texts = [f"answer {n} " * (1 + n % 5) for n in range(20)]
    with serving(engine) as running, ThreadPoolExecutor(32) as pool:
        expected = rewards(ask(running, *texts))
        engine.calls.clear()
        with busy_engine(running, engine, pool):
            rest = [pool.submit(ask, running, text) for text in texts]
            until(lambda: waiting(running) == len(texts))
        found = [rewards(reply.result())[0] for reply in rest]
    assert found == pytest.approx(expected, abs=1e-5)
    assert engine.calls == [1, len(texts)]


def test_a_large_request_is_scored_in_parts_and_answered_in_order(engine: HeldEngine) -> None:
    texts = [f"answer {n}" for n in range(30)]
    with serving(engine) as running:
        expected = rewards(ask(running, *texts))
    with serving(engine, ServerSettings(batch_items=7)) as running:
        assert rewards(ask(running, *texts)) == pytest.approx(expected, abs=1e-5)
    assert engine.calls == [7, 7, 7, 7, 2]
    with serving(engine, ServerSettings(engine_call_s=1e-9)) as running:  # always at least one item
        assert rewards(ask(running, *texts[:3])) == pytest.approx(expected[:3], abs=1e-5)
    assert engine.calls == [1, 1, 1]


def test_a_full_queue_answers_503_with_retry_after(engine: HeldEngine) -> None:
    settings = ServerSettings(max_items=4, max_queue_items=4)
    with serving(engine, settings) as running, ThreadPoolExecutor(4) as pool:
        with busy_engine(running, engine, pool) as first:
            queued = pool.submit(ask, running, "a", "b", "c")
            until(lambda: waiting(running) == 3)
            refused = ask(running, "d", "e")
            assert refused.status_code == 503
            assert refused.json()["code"] == "busy"
            assert int(refused.headers["retry-after"]) >= 1
            fits = pool.submit(ask, running, "f")
            until(lambda: waiting(running) == 4)
        assert [len(rewards(reply.result())) for reply in (first, queued, fits)] == [1, 3, 1]


def test_a_queue_full_of_characters_refuses_too_but_admits_one_large_request(engine: HeldEngine) -> None:
    settings = ServerSettings(max_queue_characters=100)
    with serving(engine, settings) as running, ThreadPoolExecutor(4) as pool:
        with busy_engine(running, engine, pool):
            large = pool.submit(ask, running, "x" * 200)
            until(lambda: waiting(running) == 1)
            assert ask(running, "small").status_code == 503
        assert len(rewards(large.result())) == 1
        assert len(rewards(ask(running, "small"))) == 1


def test_too_late_is_504_and_what_waited_is_dropped(engine: HeldEngine) -> None:
    settings = ServerSettings(request_timeout_s=0.3)
    with serving(engine, settings) as running, ThreadPoolExecutor(4) as pool:
        with busy_engine(running, engine, pool) as first:
            late = ask(running, "late", "later")
            assert (late.status_code, late.json()["code"]) == (504, "timeout")
            assert first.result().status_code == 504
            assert waiting(running) == 0
        assert len(rewards(ask(running, "now"))) == 1
    assert sum(engine.calls) == 2  # "first" and "now", never "late"


def test_a_client_that_hangs_up_costs_no_scoring(engine: HeldEngine) -> None:
    with serving(engine) as running, ThreadPoolExecutor(4) as pool:
        with busy_engine(running, engine, pool) as first:
            with pytest.raises(httpx.ReadTimeout):
                httpx.post(
                    running.url + "/v1/score", json={"prompt": "Hi.", "responses": ["gone", "away"]}, timeout=0.3
                )
            until(lambda: waiting(running) == 0)
        assert len(rewards(first.result())) == 1
        assert len(rewards(ask(running, "now"))) == 1
    assert sum(engine.calls) == 2


def test_a_request_that_breaks_the_engine_costs_only_itself(engine: HeldEngine) -> None:
    with serving(engine) as running, ThreadPoolExecutor(8) as pool:
        texts = [f"good {n}" for n in range(3)]
        expected = [engine.score([ScoreItem((Message("user", "Hi."),), text)])[0] for text in texts]
        with busy_engine(running, engine, pool):
            good = [pool.submit(ask, running, text) for text in texts]
            bad = pool.submit(ask, running, "other", POISON)
            until(lambda: waiting(running) == 5)
        for reply, score in zip(good, expected, strict=True):
            assert isinstance(score, Score)
            assert rewards(reply.result()) == pytest.approx([score.reward], abs=1e-5)
        results = bad.result().json()["results"]
        assert [entry["error"]["code"] for entry in results] == ["backend", "backend"]
        assert "broken" not in bad.result().text
        assert len(rewards(ask(running, "good as ever"))) == 1


def test_draining_refuses_what_is_new_and_answers_what_is_queued(engine: HeldEngine) -> None:
    with serving(engine) as running, ThreadPoolExecutor(4) as pool:
        with busy_engine(running, engine, pool) as first:
            queued = pool.submit(ask, running, "queued")
            until(lambda: waiting(running) == 1)
            running.app.state.service.drain()
            for refused in (ask(running, "new"), httpx.get(running.url + "/readyz")):
                assert refused.status_code == 503
                assert "retry-after" in refused.headers
            assert httpx.get(running.url + "/healthz").status_code == 200
        assert len(rewards(first.result())) == len(rewards(queued.result())) == 1
