"""`assay serve` as its own process: concurrent clients, a killed server, a taken port, a stop without a loss."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from assay.cli.main import main
from assay.domain import Message
from assay.errors import BackendError, BadInputError
from assay.score import Score, ScoreFailure, ScoreResult
from assay_serving.client import AsyncRewardClient, RewardClient
from assay_serving.engines.transformers import TransformersScorer
from assay_serving.model_config import ModelConfig
from assay_serving.scorer import ScoreItem

ASSAY = str(Path(sys.executable).parent / "assay")
KEY = "system-test-key"
START_S = 240


@contextmanager
def served(model: Path, *options: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The URL and process of `assay serve`, ready; killed at the end if it is still there."""
    command = [ASSAY, "serve", str(model), "--port", "0", "--device", "cpu", "--json", *options]
    environment = {name: value for name, value in os.environ.items() if name != "ASSAY_API_KEY"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        readable, _, _ = select.select([process.stdout], [], [], START_S)
        line = process.stdout.readline() if readable else ""
        assert line, "the server did not start"
        yield json.loads(line)["url"], process
    finally:
        process.kill()
        process.communicate()


def some_items(count: int) -> list[ScoreItem]:
    return [ScoreItem((Message("user", f"Question {n % 9}"),), f"Answer {n}. " * (1 + n % 6)) for n in range(count)]


def assert_same(found: list[ScoreResult], expected: list[ScoreResult]) -> None:
    for one, other in zip(found, expected, strict=True):
        assert isinstance(one, Score)
        assert isinstance(other, Score)
        assert one.reward == pytest.approx(other.reward, abs=1e-5)
        assert (one.model, one.version, one.tokens) == ("rm", other.version, other.tokens)


@pytest.fixture(scope="module")
def running(tiny_reward_model: Path) -> Iterator[str]:
    with served(tiny_reward_model, "--name", "rm", "--api-key", KEY) as (url, _):
        yield url


@pytest.fixture(scope="module")
def offline(tiny_reward_model: Path) -> TransformersScorer:
    return TransformersScorer.load(ModelConfig(str(tiny_reward_model), device="cpu"))


def test_64_concurrent_single_items_get_their_own_scores(running: str, offline: TransformersScorer) -> None:
    items = some_items(64)

    async def ask() -> list[ScoreResult]:
        async with AsyncRewardClient(running, api_key=KEY, max_concurrency=64) as client:
            await client.wait_until_ready(START_S)
            parts = await asyncio.gather(*(client.score([item]) for item in items))
        return [result for part in parts for result in part]

    found = asyncio.run(ask())
    assert_same(found, offline.score(items))
    assert len({result.reward for result in found if isinstance(result, Score)}) > 50  # answers can be told apart
    metrics = httpx.get(running + "/metrics", headers={"X-API-Key": KEY}).text
    calls = next(line for line in metrics.splitlines() if line.startswith('assay_engine_call_items_count{model="rm"}'))
    assert float(calls.split()[-1]) < 64  # they were merged


def test_the_blocking_client_gets_the_same(running: str, offline: TransformersScorer) -> None:
    items = some_items(100)
    with RewardClient(running, api_key=KEY, max_items_per_request=9) as client:
        assert_same(client.score(items), offline.score(items))
        assert client.models()[0].version == offline.info.version


def test_no_key_no_answer(running: str) -> None:
    assert httpx.get(running + "/metrics").status_code == 401
    with RewardClient(running) as client, pytest.raises(BadInputError, match="401"):
        client.score(some_items(1))


def test_a_port_in_use_is_one_line_and_exit_code_4(tiny_reward_model: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        command = [ASSAY, "serve", str(tiny_reward_model), "--port", str(port)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=START_S)
    assert done.returncode == 4
    assert done.stderr.splitlines() == [f"assay: port {port} on 127.0.0.1 is in use; name another with --port"]


@pytest.mark.slow
def test_models_that_cannot_be_served_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, code in (
        (["tiny"], 2),  # a language model without a head: told by the engine's process
        (["no-such-model", "--in-process"], 3),
        ([str(tmp_path), "--in-process"], 3),
        (["a", "b", "--name", "only-one"], 2),
    ):
        with pytest.raises(SystemExit) as stopped:
            main(["serve", *arguments, "--port", "0", "--device", "cpu"])
        assert stopped.value.code == code
        assert capsys.readouterr().err.splitlines()[-1].startswith("assay: ")


@pytest.mark.slow
def test_a_killed_server_gives_a_typed_error_after_bounded_tries(rule_reward: Path) -> None:
    items = some_items(600)
    with (
        served(rule_reward) as (url, process),
        RewardClient(url, retries=1, max_items_per_request=6, failures_in_place=True) as patient,
        RewardClient(url, retries=2, deadline=60) as strict,
    ):
        done = 0

        def kill_midway(count: int) -> None:
            nonlocal done
            done += count
            if done > 50:
                process.kill()

        results = patient.score(items, kill_midway)
        with pytest.raises(BackendError, match=r"\(3 tries\)"):
            strict.score(items[:1])
    assert len(results) == len(items)
    codes = [result.code if isinstance(result, ScoreFailure) else "scored" for result in results]
    assert set(codes) == {"scored", "backend"}


@pytest.mark.slow
def test_a_stop_answers_what_is_in_progress_and_exits_0(tiny_reward_model: Path, offline: TransformersScorer) -> None:
    # More than the first engine call takes, for seconds.
    items = [replace(item, response=4 * item.response) for item in some_items(500)]
    with served(tiny_reward_model, "--name", "rm") as (url, process):

        async def ask_and_stop() -> list[ScoreResult]:
            async with AsyncRewardClient(url, retries=0, max_items_per_request=len(items)) as client:
                asked = asyncio.create_task(client.score(items))
                async with httpx.AsyncClient(base_url=url) as watcher:
                    while 'assay_queue_items{model="rm"} 0.0' in (await watcher.get("/metrics")).text:
                        assert not asked.done()
                process.send_signal(signal.SIGTERM)
                return await asked

        results = asyncio.run(ask_and_stop())
        assert process.wait(START_S) == 0
    assert_same(results, offline.score(items))
