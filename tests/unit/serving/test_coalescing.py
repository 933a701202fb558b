"""The queue in front of the engine: merging, order, fairness to others, limits, hang-ups, draining, failures.

The engines here are the real one, held or broken on purpose.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from assay.domain import Message
from assay.runs.progress_bar import Advance, silent
from assay.score import Score, ScoreResult
from assay_serving.engines.transformers import TransformersScorer
from assay_serving.model_config import ModelConfig
from assay_serving.process import RunningServer, running_server
from assay_serving.scorer import ScoreItem
from assay_serving.server.core.settings import ServerSettings

PATIENCE_S = 240.0
UNHURRIED = 600.0  #: seconds that an engine call may take: how much it takes at once depends on no speed
POISON = "poison"
LOST = "lost"


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
        found = super().score(items, on_progress)
        return [result for item, result in zip(items, found, strict=True) if item.response != LOST]


@pytest.fixture(scope="module")
def engine(tiny_reward_model: Path) -> HeldEngine:
    loaded = HeldEngine.load(ModelConfig(str(tiny_reward_model), device="cpu", served_as="rm"))
    assert isinstance(loaded, HeldEngine)
    return loaded


@contextmanager
def serving(engine: HeldEngine, settings: ServerSettings | None = None) -> Iterator[RunningServer]:
    engine.prepare()
    with running_server({"rm": engine}, settings=settings or ServerSettings(engine_call_s=UNHURRIED)) as running:
        try:
            yield running
        finally:
            engine.open_door()


def ask(running: RunningServer, *responses: str, prompt: str = "Hi.") -> httpx.Response:
    return httpx.post(running.url + "/v1/score", json={"prompt": prompt, "responses": responses}, timeout=PATIENCE_S)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def waiting(running: RunningServer) -> int:
    found: int = running.app.state.service.backend.queues["rm"].waiting
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


def offline(engine: HeldEngine, *responses: str, prompt: str = "Hi.") -> list[float]:
    """Rewards without a server."""
    scores = engine.score([ScoreItem((Message("user", prompt),), response) for response in responses])
    return [score.reward for score in scores if isinstance(score, Score)]


def rewards(reply: httpx.Response) -> list[float]:
    assert reply.status_code == 200, reply.text
    return [entry["reward"] for entry in reply.json()["results"]]


def test_requests_that_wait_are_scored_together_and_answered_each_its_own(engine: HeldEngine) -> None:
    texts = [f"answer {n} " * (1 + n % 5) for n in range(20)]
    with serving(engine) as running, ThreadPoolExecutor(32) as pool:
        expected = offline(engine, *texts)
        engine.calls.clear()
        with busy_engine(running, engine, pool):
            rest = [pool.submit(ask, running, text) for text in texts]
            until(lambda: waiting(running) == len(texts))
        found = [rewards(reply.result())[0] for reply in rest]
    assert found == pytest.approx(expected, abs=1e-5)
    assert engine.calls == [1, len(texts)]


@pytest.mark.parametrize("call_s", [UNHURRIED, 1e-3])
def test_where_scores_are_relative_each_requests_responses_to_a_prompt_are_scored_by_themselves(
    engine: HeldEngine, call_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "relative", True, raising=False)
    with serving(engine, ServerSettings(engine_call_s=call_s)) as running, ThreadPoolExecutor(8) as pool:
        expected = offline(engine, "a", "b", "c", "d", "e")
        engine.calls.clear()
        with busy_engine(running, engine, pool):
            rest = [pool.submit(ask, running, *texts) for texts in (("a", "b", "c"), ("d", "e"))]
            until(lambda: waiting(running) == 5)
        found = [reward for reply in rest for reward in rewards(reply.result())]
    assert found == pytest.approx(expected, abs=1e-5)
    assert (engine.calls[0], sorted(engine.calls[1:])) == (1, [2, 3])


def test_a_large_request_is_scored_in_parts_and_answered_in_order(engine: HeldEngine) -> None:
    texts = [f"answer {n}" for n in range(30)]
    expected = offline(engine.prepare(), *texts)
    with serving(engine, ServerSettings(batch_items=7, engine_call_s=UNHURRIED)) as running:
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


@pytest.mark.slow
def test_too_late_is_504_and_what_waited_is_dropped(engine: HeldEngine) -> None:
    settings = ServerSettings(request_timeout_s=3.0)
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
            connection = http.client.HTTPConnection(running.url.removeprefix("http://"))
            body = json.dumps({"prompt": "Hi.", "responses": ["gone", "away"]})
            connection.request("POST", "/v1/score", body, {"Content-Type": "application/json"})
            until(lambda: waiting(running) == 2)
            connection.close()
            until(lambda: waiting(running) == 0)
        assert len(rewards(first.result())) == 1
        assert len(rewards(ask(running, "now"))) == 1
    assert sum(engine.calls) == 2


def test_a_request_that_breaks_the_engine_costs_only_itself(engine: HeldEngine) -> None:
    with serving(engine) as running, ThreadPoolExecutor(8) as pool:
        texts = [f"good {n}" for n in range(3)]
        expected = offline(engine, *texts)
        with busy_engine(running, engine, pool):
            good = [pool.submit(ask, running, text) for text in texts]
            bad = pool.submit(ask, running, "other", POISON)
            until(lambda: waiting(running) == 5)
        assert [rewards(reply.result())[0] for reply in good] == pytest.approx(expected, abs=1e-5)
        results = bad.result().json()["results"]
        assert [entry["error"]["code"] for entry in results] == ["backend", "backend"]
        assert "broken" not in bad.result().text
        assert len(rewards(ask(running, "good as ever"))) == 1


@pytest.mark.slow
def test_scores_do_not_depend_on_the_company(engine: HeldEngine) -> None:
    """Requests that share prompts, wholly and in part, with others of all sizes: each as when scored offline."""
    prompts = ["Name a metal. " * 20, "Name a metal. " * 20 + "And a gas.", "Hi."]
    groups = [(prompts[n % 3], [f"answer {n} {i} " * (1 + (n + i) % 4) for i in range(1 + n % 5)]) for n in range(24)]
    expected = [offline(engine.prepare(), *responses, prompt=prompt) for prompt, responses in groups]
    with serving(engine) as running, ThreadPoolExecutor(32) as pool:
        with busy_engine(running, engine, pool):
            rest = [pool.submit(ask, running, *responses, prompt=prompt) for prompt, responses in groups]
            until(lambda: waiting(running) == sum(len(responses) for _, responses in groups))
            engine.calls.clear()
        for reply, own in zip(rest, expected, strict=True):
            assert rewards(reply.result()) == pytest.approx(own, abs=1e-5)
    assert len(engine.calls) < len(groups)


def test_a_prompt_that_requests_share_is_computed_once(engine: HeldEngine) -> None:
    prompt = "Name a metal and say what it is good for. " * 5
    with serving(engine) as running, ThreadPoolExecutor(16) as pool:
        with busy_engine(running, engine, pool):
            rest = [pool.submit(ask, running, f"answer {n}", prompt=prompt) for n in range(8)]
            until(lambda: waiting(running) == 8)
            engine.calls.clear()
        tokens = [reply.result().json()["usage"]["tokens"] for reply in rest]
    assert engine.calls == [8]
    assert engine.last_tokens == sum(tokens)
    assert engine.last_computed < 2.5 * max(tokens)


def test_cached_scores_are_the_engines_and_cost_it_nothing(engine: HeldEngine) -> None:
    with serving(engine) as running:
        first = ask(running, "gold", "glass", "x" * 3000)
        again = ask(running, "gold", "glass", "x" * 3000)
    assert again.json()["results"] == first.json()["results"]
    assert engine.calls == [3, 1]  # the response that is too long has no score to keep


@pytest.mark.slow
def test_an_engine_that_does_not_come_back_is_answered_for(engine: HeldEngine) -> None:
    """504 to those it holds, 503 to the others until it is back; what is known is answered, and nothing piles up."""
    settings = ServerSettings(engine_timeout_s=3.0)
    with serving(engine, settings) as running, ThreadPoolExecutor(4) as pool:
        known = rewards(ask(running, "known"))
        with busy_engine(running, engine, pool) as first:
            queued = pool.submit(ask, running, "queued")
            assert (first.result().status_code, first.result().json()["code"]) == (504, "timeout")
            for refused in (queued.result(), ask(running, "new"), httpx.get(running.url + "/readyz")):
                assert refused.status_code == 503
                assert int(refused.headers["retry-after"]) >= 1
            assert httpx.get(running.url + "/healthz").status_code == 200
            assert rewards(ask(running, "known")) == known
            assert waiting(running) == 0
        until(lambda: httpx.get(running.url + "/readyz").status_code == 200)
        assert len(rewards(ask(running, "new"))) == 1
        engine.close_door()
        assert len(rewards(ask(running, "first"))) == 1  # its score came late, and was kept
        engine.open_door()


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


def test_an_engine_that_loses_a_result_gives_nobody_anothers_score(engine: HeldEngine) -> None:
    texts = [f"answer {n} " * (1 + n % 5) for n in range(7)]
    with serving(engine) as running, ThreadPoolExecutor(32) as pool:
        expected = offline(engine, *texts)
        with busy_engine(running, engine, pool):
            rest = [pool.submit(ask, running, text) for text in (*texts[:3], LOST, *texts[3:])]
            until(lambda: waiting(running) == len(rest))
        lost = rest.pop(3).result()
        assert [reply.result().status_code for reply in rest] == [200] * len(texts)
        assert [rewards(reply.result())[0] for reply in rest] == pytest.approx(expected, abs=1e-5)
        [entry] = lost.json()["results"]
        assert entry["error"]["code"] == "backend"
