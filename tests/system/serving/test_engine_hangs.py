"""`assay serve` with processes that hang (SIGSTOP) or die (SIGKILL): the watchdog, `/readyz`, rewards that wait."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from test_serve_processes import children_of, pytestmark, started, until, url_when_ready

__all__ = ["pytestmark"]

HANG_S = 6.0
BODY = {"prompt": "Name a metal.", "responses": ["Gold."]}
http = httpx.Client(timeout=240, limits=httpx.Limits(max_keepalive_connections=0))  # any worker gets the next one
TYPED = {"busy", "timeout"}


@contextmanager
def serving(rule_reward: Path, tmp_path: Path, *options: str) -> Iterator[tuple[str, int]]:
    """URL and supervisor. The reward's engine starts without torch."""
    config = tmp_path / "serve.yaml"
    config.write_text(f"cache_entries: 0\nhang_timeout_s: {HANG_S}\n")
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
            reply = http.post(url + "/get_reward", json=query, timeout=240)
            reply.raise_for_status()
            return float(reply.json()["rewards"][0])
        except httpx.HTTPError:
            time.sleep(1)
    raise RuntimeError(f"no reward for {text!r}")


def ready(url: str) -> int:
    return http.get(url + "/readyz").status_code


def reward(url: str) -> float:
    reply = http.post(url + "/v1/score", json=BODY)
    assert reply.status_code == 200, reply.text
    return float(reply.json()["results"][0]["reward"])


def test_a_hung_engine_is_replaced_and_no_score_hangs(rule_reward: Path, tmp_path: Path) -> None:
    with serving(rule_reward, tmp_path) as (url, supervisor), ThreadPoolExecutor(16) as pool:
        until(lambda: ready(url) == 200)  # a busy machine answers that the engine did not, in time
        engine = children_of(supervisor)["engine"]
        os.kill(engine, signal.SIGSTOP)
        hasty = pool.submit(http.post, url + "/v1/score", json=BODY | {"timeout": 0.2})
        patient = [pool.submit(reward, url) for _ in range(12)]
        assert ready(url) == 503, "it is not waited for"
        until(lambda: ready(url) == 200)
        assert children_of(supervisor)["engine"] != engine
        reply = hasty.result()
        assert reply.status_code in (503, 504)
        assert reply.json()["code"] in TYPED
        assert [one.result() for one in patient] == [1.0] * 12, "those with time left get the next engine's"


@pytest.mark.slow
def test_a_hung_http_worker_is_replaced(rule_reward: Path, tmp_path: Path) -> None:
    with serving(rule_reward, tmp_path, "--workers", "2") as (url, supervisor):
        worker = children_of(supervisor)["http_worker 0"]
        os.kill(worker, signal.SIGSTOP)
        until(lambda: worker not in children_of(supervisor).values() and len(children_of(supervisor)) == 3)
        assert {reward(url) for _ in range(8)} == {1.0}


@pytest.mark.slow
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
        assert ready(url) in (200, 503), "it answers while the engine is away"
        rewards = [one.result() for one in asked]
        assert rewards[:5] == pytest.approx(before, abs=1e-6)
        assert len(rewards) == len(texts)
        assert children_of(process.pid)["engine"] != engine


@pytest.mark.slow
def test_an_engine_that_is_stopped_with_its_supervisor_is_no_hung_engine(rule_reward: Path, tmp_path: Path) -> None:
    """As a suspended machine or a paused container: afterwards everything goes on."""
    with serving(rule_reward, tmp_path) as (url, supervisor):
        children = children_of(supervisor)
        everyone = [supervisor, *children.values()]
        for pid in everyone:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(2 * HANG_S)
        for pid in everyone:
            os.kill(pid, signal.SIGCONT)
        assert reward(url) == 1.0
        time.sleep(1.5)
        assert children_of(supervisor) == children
