"""`assay serve` with processes that hang (SIGSTOP) or die (SIGKILL): the watchdog, `/readyz`, rewards that wait."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from test_serve_processes import children_of, pytestmark, started, until, url_when_ready

__all__ = ["pytestmark"]

REQUEST_S = 12.0
READY_S = 1.0
BODY = {"prompt": "Name a metal.", "responses": ["Gold."]}
http = httpx.Client(timeout=60, limits=httpx.Limits(max_keepalive_connections=0))  # any worker gets the next one
TYPED = {"busy", "timeout"}


@contextmanager
def serving(rule_reward: Path, tmp_path: Path, *options: str) -> Iterator[tuple[str, int]]:
    """URL and supervisor. The reward's engine starts without torch."""
    config = tmp_path / "serve.yaml"
    config.write_text(f"cache_entries: 0\nrequest_timeout_s: {REQUEST_S}\n")
    arguments = (str(rule_reward), "--name", "rm", "--port", "0", "--config", str(config), *options)
    with started(*arguments) as process:
        url = url_when_ready(process)
        yield url, process.pid


def openrlhf_reward(url: str, text: str) -> float:
    """As OpenRLHF's `request_api_wrapper` asks for a reward (a test double of its behaviour): five tries, a second
    apart, whatever the reply says of a better time."""
    for _ in range(5):
        try:
            query = {"query": [text], "prompts": [""], "labels": [""]}
            reply = http.post(url + "/get_reward", json=query, timeout=180)
            reply.raise_for_status()
            return float(reply.json()["rewards"][0])
        except httpx.HTTPError:
            time.sleep(1)
    raise RuntimeError(f"no reward for {text!r}")


def reward(url: str) -> float:
    reply = http.post(url + "/v1/score", json=BODY)
    assert reply.status_code == 200, reply.text
    return float(reply.json()["results"][0]["reward"])


def timed_ready(url: str) -> tuple[int, float]:
    started_at = time.monotonic()
    status = http.get(url + "/readyz").status_code
    return status, time.monotonic() - started_at


def test_a_hung_engine_is_replaced_and_no_score_hangs(rule_reward: Path, tmp_path: Path) -> None:
    with serving(rule_reward, tmp_path) as (url, supervisor), ThreadPoolExecutor(16) as pool:
        while timed_ready(url)[0] != 200:  # a busy machine answers that the engine did not, in time
            time.sleep(0.2)
        engine = children_of(supervisor)["engine"]
        os.kill(engine, signal.SIGSTOP)
        stopped = time.monotonic()

        def score(number: int) -> tuple[float, float, int, dict[str, Any]]:
            time.sleep(number * REQUEST_S / 12)
            sent = time.monotonic()
            reply = http.post(url + "/v1/score", json=BODY)
            return sent - stopped, time.monotonic() - sent, reply.status_code, reply.json()

        scores = [pool.submit(score, number) for number in range(12)]
        statuses = []
        while True:
            status, seconds = timed_ready(url)
            assert seconds < READY_S
            statuses.append(status)
            if status == 200:
                break
            assert time.monotonic() - stopped < 2 * REQUEST_S
            time.sleep(0.1)
        replaced = time.monotonic() - stopped
        assert statuses[0] == 503
        assert children_of(supervisor)["engine"] != engine
        served = 0
        for sent, seconds, status, reply in (one.result() for one in scores):
            assert seconds < 2 * REQUEST_S, (sent, seconds)
            if status == 200:
                assert reply["results"][0]["reward"] == 1.0
                served += 1
            else:
                assert status in (503, 504)
                assert reply["code"] in TYPED
                assert sent + REQUEST_S < replaced + 2  # the others have time to wait for the next engine
        assert served >= 4


def test_a_hung_http_worker_is_replaced(rule_reward: Path, tmp_path: Path) -> None:
    with serving(rule_reward, tmp_path, "--workers", "2") as (url, supervisor):
        worker = children_of(supervisor)["http_worker 0"]
        os.kill(worker, signal.SIGSTOP)
        until(lambda: worker not in children_of(supervisor).values() and len(children_of(supervisor)) == 3)
        assert {reward(url) for _ in range(8)} == {1.0}


def test_openrlhfs_client_loses_no_reward_over_a_killed_engine(tiny_reward_model: Path) -> None:
    """An engine with torch is away for longer than five tries take."""
    arguments = (str(tiny_reward_model), "--name", "rm", "--port", "0", "--device", "cpu")
    with started(*arguments) as process, ThreadPoolExecutor(10) as pool:
        url = url_when_ready(process)
        texts = [f"user: question {number}\nassistant: answer {number % 7}" for number in range(50)]
        before = [openrlhf_reward(url, text) for text in texts[:5]]
        engine = children_of(process.pid)["engine"]
        asked = [pool.submit(openrlhf_reward, url, text) for text in texts]
        os.kill(engine, signal.SIGKILL)
        assert timed_ready(url)[1] < READY_S
        rewards = [one.result() for one in asked]
        assert rewards[:5] == pytest.approx(before, abs=1e-6)
        assert len(rewards) == len(texts)
        assert children_of(process.pid)["engine"] != engine


def test_an_engine_that_is_stopped_with_its_supervisor_is_no_hung_engine(rule_reward: Path, tmp_path: Path) -> None:
    """As a suspended machine or a paused container: afterwards everything goes on."""
    with serving(rule_reward, tmp_path) as (url, supervisor):
        children = children_of(supervisor)
        everyone = [supervisor, *children.values()]
        for pid in everyone:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(REQUEST_S)
        for pid in everyone:
            os.kill(pid, signal.SIGCONT)
        assert reward(url) == 1.0
        time.sleep(1.5)
        assert children_of(supervisor) == children
