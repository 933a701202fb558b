"""`assay serve` with an engine process and fronts: killed processes, restarts, drains, what each of them imports."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme
from processes import children, command_line

from assay.domain import Message
from assay.score import Score
from assay_serving.client import AsyncRewardClient, RewardClient
from assay_serving.engine_process.supervisor import ENGINE_PROGRAM
from assay_serving.engines.transformers import TransformersScorer
from assay_serving.model_config import ModelConfig
from assay_serving.scorer import ScoreItem

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="looks at processes in /proc")

ASSAY = str(Path(sys.executable).parent / "assay")
KEY = "test-key-of-these-processes"
PATIENCE_S = 240
CLIENTS = 8


@contextmanager
def started(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """`assay serve`, not yet ready; at the end it and its children must be gone."""
    command = [ASSAY, "serve", *arguments, "--json"]
    environment = {name: value for name, value in os.environ.items() if name != "ASSAY_API_KEY"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        yield process
    finally:
        below = list(children_of(process.pid).values())
        process.kill()
        process.communicate()
        until(lambda: not any(Path(f"/proc/{child}/root").exists() for child in below))


def url_when_ready(process: subprocess.Popen[str], patience: float = PATIENCE_S) -> str:
    assert process.stdout is not None
    readable, _, _ = select.select([process.stdout], [], [], patience)
    line = process.stdout.readline() if readable else ""
    assert "url" in line, f"the server did not start: {line}"
    return str(json.loads(line)["url"])


def children_of(pid: int) -> dict[str, int]:
    """Pids by what they are: engine, engine 1 (of a second replica), http_worker 0, http_worker 1, ..."""
    found: dict[str, int] = {}
    for child in children(pid):
        program = command_line(child).decode().split("\0")
        if len(program) > 3:
            kind = program[3].rpartition(".")[2]
            name = (
                kind
                if kind == "engine" and kind not in found
                else f"{kind} {sum(each.startswith(kind) for each in found)}"
            )
            found[name] = child
    return found


def until(condition: Callable[[], Any], patience: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def some_items(count: int) -> list[ScoreItem]:
    return [ScoreItem((Message("user", f"Question {n % 9}"),), f"Answer {n}. " * (1 + n % 6)) for n in range(count)]


def body_of(item: ScoreItem) -> dict[str, Any]:
    return {"model": "rm", "prompt": [m.to_dict() for m in item.prompt], "responses": [item.response]}


class Load:
    """Clients that ask without a pause and remember what they were told."""

    def __init__(self, url: str, items: list[ScoreItem], **client: Any) -> None:
        self.items = items
        self.statuses: Counter[int] = Counter()
        self.rewards: list[tuple[int, float]] = []  # number of the item, and what it got
        self.refusals: list[str | None] = []  # their Retry-After
        self.cut = 0  # requests that got no whole answer
        self.ended = False
        self._client = httpx.AsyncClient(base_url=url, timeout=PATIENCE_S, headers={"X-API-Key": KEY}, **client)
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Load:
        self._tasks = [asyncio.create_task(self._ask(first)) for first in range(CLIENTS)]
        return self

    async def __aexit__(self, *_: object) -> None:
        self.ended = True
        await asyncio.gather(*self._tasks)
        await self._client.aclose()

    async def _ask(self, number: int) -> None:
        while not self.ended:
            number = (number + CLIENTS) % len(self.items)
            try:
                reply = await self._client.post("/v1/score", json=body_of(self.items[number]))
            except httpx.ConnectError:  # it was never taken in
                self.statuses[0] += 1
                await asyncio.sleep(0.05)
                continue
            except httpx.TransportError:
                self.cut += 1
                continue
            self.statuses[reply.status_code] += 1
            if reply.status_code == 200:
                (result,) = reply.json()["results"]
                self.rewards.append((number, result["reward"]))
            else:
                self.refusals.append(reply.headers.get("retry-after"))
                await asyncio.sleep(0.5)

    async def until_scored(self, more: int) -> None:
        """That many more answers with a score."""
        goal = self.statuses[200] + more
        async with asyncio.timeout(PATIENCE_S):
            while self.statuses[200] < goal:
                await asyncio.sleep(0.02)

    def check(self, expected: list[float]) -> None:
        assert self.rewards
        for number, reward in self.rewards:
            assert reward == pytest.approx(expected[number], abs=1e-5)
        assert len(set(expected)) == len(expected)  # answers can be told apart


@pytest.fixture(scope="module")
def offline(tiny_reward_model: Path) -> TransformersScorer:
    return TransformersScorer.load(ModelConfig(str(tiny_reward_model), device="cpu"))


@pytest.fixture(scope="module")
def items() -> list[ScoreItem]:
    return some_items(60)


@pytest.fixture(scope="module")
def expected(offline: TransformersScorer, items: list[ScoreItem]) -> list[float]:
    scores = offline.score(items)
    return [score.reward for score in scores if isinstance(score, Score)]


@pytest.fixture(scope="module")
def server(
    tiny_reward_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Two fronts and no cache: every score is computed."""
    config = tmp_path_factory.mktemp("config") / "serve.yaml"
    config.write_text(f"cache_entries: 0\nworkers: 2\nmodel_folders: [{tiny_reward_model.parent}]\n")
    arguments = (str(tiny_reward_model), "--name", "rm", "--port", "0", "--device", "cpu", "--api-key", KEY)
    with started(*arguments, "--config", str(config)) as process:
        yield url_when_ready(process), process


@pytest.mark.slow
def test_only_the_engine_holds_torch(server: tuple[str, subprocess.Popen[str]]) -> None:
    below = children_of(server[1].pid)
    assert set(below) == {"engine", "http_worker 0", "http_worker 1"}
    for name, pid in [*below.items(), ("supervisor", server[1].pid)]:
        libraries = Path(f"/proc/{pid}/maps").read_text()
        assert ("libtorch" in libraries) == (name == "engine"), name
        assert "duckdb" not in libraries or name == "engine"
        command, environment = (Path(f"/proc/{pid}/{what}").read_bytes().decode() for what in ("cmdline", "environ"))
        assert name == "supervisor" or KEY not in command + environment


@pytest.mark.slow
def test_every_front_tells_the_counts_of_all(server: tuple[str, subprocess.Popen[str]]) -> None:
    url, process = server

    def count() -> float:
        # Over a new connection, so that it may be any front that tells.
        text = httpx.get(url + "/metrics", headers={"X-API-Key": KEY}).text
        assert text.count("# TYPE assay_requests_total counter") == 1
        assert "# TYPE assay_items_total counter" in text  # the engine's
        lines = [line for line in text.splitlines() if line.startswith("assay_requests_total") and "/healthz" in line]
        return sum(float(line.split()[-1]) for line in lines)

    until(lambda: httpx.get(url + "/metrics", headers={"X-API-Key": KEY}).text.count("assay_requests_total"))
    before = count()
    for _ in range(20):
        assert httpx.get(url + "/healthz", headers={"X-API-Key": KEY}).status_code == 200
    until(lambda: {count() for _ in range(8)} == {before + 20})  # a request is counted when its reply is out
    # A front that ends takes nothing with it, and another takes its place.
    old = children_of(process.pid)
    os.kill(old["http_worker 0"], signal.SIGKILL)
    until(lambda: len(children_of(process.pid)) == 3 and old["http_worker 0"] not in children_of(process.pid).values())
    assert count() == before + 20
    assert children_of(process.pid)["engine"] == old["engine"]


@pytest.mark.slow
def test_a_killed_engine_costs_time_and_nothing_else(
    server: tuple[str, subprocess.Popen[str]], items: list[ScoreItem], expected: list[float], tiny_reward_model: Path
) -> None:
    url, process = server
    keyed = {"X-API-Key": KEY}
    plan = {"reference": str(tiny_reward_model), "device": "cpu"}
    loaded = httpx.post(
        url + "/v1/admin/models", json={"name": "later", "plan": plan}, headers=keyed, timeout=PATIENCE_S
    )
    assert loaded.is_success, loaded.text
    states: set[tuple[int, int, str]] = set()

    async def work() -> Load:
        async with (
            Load(url, items) as load,
            httpx.AsyncClient(base_url=url, headers=keyed, timeout=PATIENCE_S) as watcher,
        ):
            await load.until_scored(2 * CLIENTS)
            engine = children_of(process.pid)["engine"]
            os.kill(engine, signal.SIGKILL)
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    ready = await watcher.get("/readyz")
                    health = await watcher.get("/healthz")
                    states.add((ready.status_code, health.status_code, ready.json().get("detail", "")))
                    if ready.status_code == 200 and len(states) > 1:
                        break
                    await asyncio.sleep(0.2)
            await load.until_scored(2 * CLIENTS)
            assert children_of(process.pid)["engine"] != engine
            assert ready.json()["models"] == ["rm", "later"]  # also what was loaded since the start
        return load

    load = asyncio.run(work())
    assert set(load.statuses) == {200}  # what was in progress waits for the next engine
    assert load.cut == 0
    load.check(expected)
    away = {(503, 200, "the engine is restarting")}
    assert away <= states - {(200, 200, "")} <= away | {(503, 200, "the engine does not answer")}


@pytest.mark.slow
def test_a_stop_under_load_loses_nothing(
    server: tuple[str, subprocess.Popen[str]], items: list[ScoreItem], expected: list[float]
) -> None:
    url, process = server
    below = children_of(process.pid)

    async def work() -> Load:
        # A connection a request: one that is kept may be closed by the server just when the next request is sent.
        async with Load(url, items, limits=httpx.Limits(max_keepalive_connections=0)) as load:
            await load.until_scored(2 * CLIENTS)
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(PATIENCE_S):
                while not load.statuses[0]:
                    await asyncio.sleep(0.02)
        return load

    load = asyncio.run(work())
    assert process.wait(PATIENCE_S) == 0
    assert not any(Path(f"/proc/{pid}/root").exists() for pid in below.values())
    assert set(load.statuses) <= {0, 200, 503}
    load.check(expected)
    assert process.stderr is not None
    assert "Traceback" not in process.stderr.read()


@pytest.mark.slow
def test_no_process_outlives_the_supervisor(rule_reward: Path) -> None:
    with started(str(rule_reward), "--port", "0", "--workers", "2") as process:
        until(lambda: len(children_of(process.pid)) == 3)
        below = children_of(process.pid).values()
        assert all(Path(f"/proc/{pid}/root").exists() for pid in below)
        process.kill()
        until(lambda: not any(Path(f"/proc/{pid}/root").exists() for pid in below))


@pytest.mark.slow
def test_an_engine_killed_while_it_loads_is_one_line_and_exit_code_5(
    rule_reward: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits where Python starts: an engine that is ready would be replaced."""
    hold = f"import sys, time\nif {ENGINE_PROGRAM!r} in sys.orig_argv:\n    time.sleep(600)\n"
    (tmp_path / "sitecustomize.py").write_text(hold)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with started(str(rule_reward), "--port", "0") as process:
        until(lambda: "engine" in children_of(process.pid))
        os.kill(children_of(process.pid)["engine"], signal.SIGKILL)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 5
    assert err.splitlines()[-1].startswith("assay: the engine process ")
    assert err.splitlines()[-1].endswith(" ended by SIGKILL while it started")
    assert json.loads(out)["error"]["code"] == "backend"


@pytest.mark.slow
def test_a_file_with_everything_over_https_and_a_second_interrupt(
    tiny_reward_model: Path, tmp_path: Path, offline: TransformersScorer
) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1", "localhost")
    certificate.private_key_pem.write_to_path(tmp_path / "server.key")
    for pem in certificate.cert_chain_pems:
        pem.write_to_path(tmp_path / "server.pem", append=True)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    (tmp_path / "serve.yaml").write_text(
        f"models: [{{reference: {tiny_reward_model}, served_as: rm, device: cpu}}]\nport: 0\nworkers: 7\n"
        f"tls_cert: server.pem\ntls_key: server.key\napi_keys: [{KEY}]\nmax_items: 2000\n"
    )
    items = some_items(2000)
    with started("--config", str(tmp_path / "serve.yaml"), "--workers", "1") as process:
        url = url_when_ready(process)
        assert url.startswith("https://")
        assert set(children_of(process.pid)) == {"engine", "http_worker 0"}  # the option goes before the file
        with pytest.raises(httpx.ConnectError, match="certificate"):
            httpx.get(url + "/healthz")
        below = list(children_of(process.pid).values())
        with RewardClient(url, api_key=KEY, ca=str(tmp_path / "ca.pem")) as client:
            for found, score in zip(client.score(items[:5]), offline.score(items[:5]), strict=True):
                assert isinstance(found, Score)
                assert isinstance(score, Score)
                assert found.reward == pytest.approx(score.reward, abs=1e-5)

        async def ask_and_interrupt() -> None:
            options: Any = {"api_key": KEY, "ca": str(tmp_path / "ca.pem"), "max_items_per_request": len(items)}
            async with AsyncRewardClient(url, retries=0, **options) as client:
                asked = asyncio.create_task(client.score(items))
                await asyncio.sleep(0.2)
                process.send_signal(signal.SIGINT)
                await asyncio.sleep(0.2)
                process.send_signal(signal.SIGINT)
                await asyncio.gather(asked, return_exceptions=True)

        asyncio.run(ask_and_interrupt())
        assert process.wait(PATIENCE_S) in (0, 130)  # 0 where all was answered before the second one came
        until(lambda: not any(Path(f"/proc/{pid}/root").exists() for pid in below))


@pytest.mark.slow(reason="another way to start what the tests above serve")
def test_one_process_for_everything(tiny_reward_model: Path, offline: TransformersScorer) -> None:
    arguments = (str(tiny_reward_model), "--name", "rm", "--port", "0", "--device", "cpu", "--in-process")
    with started(*arguments) as process:
        url = url_when_ready(process)
        assert not children_of(process.pid)
        (found,) = RewardClient(url).score(some_items(1))
        (score,) = offline.score(some_items(1))
        assert isinstance(found, Score)
        assert isinstance(score, Score)
        assert found.reward == pytest.approx(score.reward, abs=1e-5)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
