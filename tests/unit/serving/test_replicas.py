"""Several engines behind one HTTP worker: routing, engines that end, one version a request, limits, changes of all."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from assay.domain import Message
from assay.errors import BackendError, BadInputError, BusyError, ConflictError, RateLimitError
from assay.score import Score, ScoreResult
from assay_serving.engine_process import engine_client, replicas
from assay_serving.engine_process.engine_client import MOST_LOSSES, EngineClient
from assay_serving.engine_process.engine_server import EngineServer
from assay_serving.engine_process.folder import private_folder
from assay_serving.engine_process.launch import Commit, Executed, Order, Prepare, Prepared, Rollback
from assay_serving.engine_process.orders import ReplicaOrders
from assay_serving.engine_process.wire import method_error
from assay_serving.model_config import ModelConfig
from assay_serving.routing import preference, prompt_key
from assay_serving.scorer import ModelInfo, Rendered, ScoreItem
from assay_serving.server.core.scoring_backend import Client, ScoreRequest, ScoreResponse
from assay_serving.server.core.settings import ServeConfig, ServerSettings
from assay_serving.server.in_process import InProcessBackend

TOKEN = "token of this test"
FRAME_BYTES = 1 << 20
PATIENCE_S = 240.0
PROMPTS = 64


class LengthScorer:
    """The reward of a response is its length."""

    score_identity = ""

    def __init__(self, version: str) -> None:
        self.info = ModelInfo("rm", version, "scalar", "t", 100, False, "passed", "float32", "cpu")

    def score(self, items: Sequence[ScoreItem], on_progress: Any = None) -> list[ScoreResult]:
        return [Score(float(len(item.response)), "rm", self.info.version, "t", 1, False) for item in items]


class HeldBackend(InProcessBackend):
    """Remembers its requests, and answers while its gate is open."""

    def __init__(self, version: str = "v1", **settings: Any) -> None:
        super().__init__({"rm": LengthScorer(version)}, ServerSettings(cache_entries=0, **settings))
        self.requests: list[ScoreRequest] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.refusal: Exception | None = None

    async def score(self, request: ScoreRequest) -> ScoreResponse:
        self.requests.append(request)
        await self.gate.wait()
        if self.refusal is not None:
            raise self.refusal
        return await super().score(request)

    @property
    def prompts(self) -> set[str]:
        return {message.text for request in self.requests for item in request.items for message in item.prompt}


class Engines:
    """Servers of backends, and a worker's client of them."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = paths
        self.client = EngineClient(paths, TOKEN, max_frame_bytes=FRAME_BYTES)
        self.backends: dict[int, HeldBackend] = {}
        self._servers: dict[int, EngineServer] = {}

    async def begin(self, number: int, backend: HeldBackend) -> HeldBackend:
        """Replica `number` serves this backend from now on; returns when the client knows."""
        import os
        import socket

        if os.path.exists(self.paths[number]):
            os.unlink(self.paths[number])
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(self.paths[number])
        listening.listen()
        await backend.start()
        self.backends[number] = backend
        self._servers[number] = EngineServer(backend, TOKEN, max_frame_bytes=FRAME_BYTES)
        await self._servers[number].start(listening)
        await until(lambda: self._link(number).ready)
        return backend

    async def end(self, number: int) -> None:
        """As a killed process leaves it: its ends of all connections closed, nothing said."""
        server, backend = self._servers.pop(number), self.backends.pop(number)
        workers = list(server.workers)
        await server.stop(0)
        for worker in workers:
            worker.connection.abort()
        backend.gate.set()
        await backend.stop()
        await until(lambda: not self._link(number).accepting)

    def _link(self, number: int) -> Any:
        return self.client._links[number]

    async def stop(self) -> None:
        await self.client.stop()
        for number in list(self._servers):
            await self._servers[number].stop(0)
            await self.backends[number].stop()


@asynccontextmanager
async def engines(count: int, **settings: Any) -> AsyncIterator[Engines]:
    with private_folder() as folder:
        running = Engines([str(folder / f"engine {number}") for number in range(count)])
        try:
            await running.client.start()
            for number in range(count):
                await running.begin(number, HeldBackend(**settings))
            yield running
        finally:
            await running.stop()


async def until(condition: Any) -> None:
    while not condition():
        await asyncio.sleep(0.005)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, PATIENCE_S))


def item(prompt: str, response: str = "Gold.") -> ScoreItem:
    return ScoreItem((Message("user", prompt),), response)


def all_prompts() -> tuple[ScoreItem, ...]:
    return tuple(item(f"Question {n}", "x" * (n + 1)) for n in range(PROMPTS))


@given(st.binary(), st.integers(2, 9), st.data())
def test_only_the_prompts_of_a_server_that_goes_move(key: bytes, count: int, data: st.DataObject) -> None:
    names = [f"server {n}" for n in range(count)]
    order = preference(key, names)
    assert sorted(order) == list(range(count))
    gone = data.draw(st.sampled_from(names))
    left = [name for name in names if name != gone]
    assert [left[n] for n in preference(key, left)] == [names[n] for n in order if names[n] != gone]


def test_homes_are_spread_evenly_and_are_the_same_everywhere() -> None:
    homes = [preference(f"prompt {n}".encode(), ["a", "b", "c"])[0] for n in range(3000)]
    assert all(900 < homes.count(n) < 1100 for n in range(3))
    assert homes[:12] == [preference(f"prompt {n}".encode(), ["a", "b", "c"])[0] for n in range(12)]
    assert preference(b"Name a metal.", ["http://a:8000", "http://b:8000"]) == [1, 0]  # between versions, too


def test_a_key_is_that_of_the_prompt_alone() -> None:
    assert prompt_key(item("a", "b")) == prompt_key(item("a", "c"))
    assert prompt_key(item("a")) != prompt_key(item("b"))
    assert prompt_key(ScoreItem((), "", rendered=Rendered("a"))) != prompt_key(
        ScoreItem((), "", rendered=Rendered("b"))
    )


def test_each_prompt_has_one_home_and_comes_back_to_it() -> None:
    async def work() -> None:
        async with engines(3) as running:

            async def homes() -> dict[int, set[str]]:
                for backend in running.backends.values():
                    backend.requests.clear()
                items = all_prompts()
                response = await running.client.score(ScoreRequest((*items, *items)))  # two responses to each
                rewards = [result.reward for result in response.results if isinstance(result, Score)]
                assert rewards == [float(n + 1) for n in range(PROMPTS)] * 2  # in order
                for each in items[:8]:
                    await running.client.score(ScoreRequest((each,)))
                return {number: backend.prompts for number, backend in running.backends.items()}

            before = await homes()
            assert all(before.values())
            assert sum(map(len, before.values())) == PROMPTS  # none at two
            await running.end(1)
            without = await homes()
            assert before[0] < without[0]
            assert before[2] < without[2]
            await running.begin(1, HeldBackend())
            assert await homes() == before

    run(work())


def test_what_an_engine_had_goes_to_the_others_when_it_ends() -> None:
    async def work() -> None:
        async with engines(2) as running:
            running.backends[0].gate.clear()
            running.backends[1].gate.clear()
            asked = [asyncio.create_task(running.client.score(ScoreRequest((each,)))) for each in all_prompts()]
            await until(lambda: sum(len(backend.requests) for backend in running.backends.values()) == PROMPTS)
            lost = len(running.backends[0].requests)
            assert 0 < lost < PROMPTS
            await running.end(0)
            assert running.client.ready
            await until(lambda: len(running.backends[1].requests) == PROMPTS)
            running.backends[1].gate.set()
            rewards = [(await each).results[0] for each in asked]
            assert [r.reward for r in rewards if isinstance(r, Score)] == [float(n + 1) for n in range(PROMPTS)]
            # Without any, they are held until one is back.
            await running.end(1)
            held = asyncio.create_task(running.client.score(ScoreRequest(all_prompts())))
            await asyncio.sleep(0)
            assert running.client.state == "replica 1 is restarting; replica 2 is restarting"
            await running.begin(0, HeldBackend())
            assert len((await held).results) == PROMPTS

    run(work())


def test_a_request_that_ends_replica_after_replica_is_refused() -> None:
    async def work() -> None:
        async with engines(MOST_LOSSES + 1) as running:
            for backend in running.backends.values():
                backend.gate.clear()
            asked = asyncio.create_task(running.client.score(ScoreRequest((item("Name a metal."),))))
            for _ in range(MOST_LOSSES):
                await until(lambda: any(backend.requests for backend in running.backends.values()))
                await running.end(next(n for n, backend in running.backends.items() if backend.requests))
            with pytest.raises(BusyError, match="is restarting"):
                await asked
            assert len(running.backends) == 1  # that one it has not ended

    run(work())


def test_a_replica_that_is_full_or_far_behind_is_relieved(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        async with engines(2) as running:
            request = ScoreRequest((item("Name a metal.", "x" * 50),))
            await running.client.score(request)
            (home,) = [n for n, backend in running.backends.items() if backend.requests]
            running.backends[home].refusal = BusyError("the queue is full", retry_after=3)
            await running.client.score(request)
            assert len(running.backends[1 - home].requests) == 1
            running.backends[1 - home].refusal = BusyError("the queue is full", retry_after=2)
            with pytest.raises(BusyError) as full:
                await running.client.score(request)
            assert full.value.retry_after == 2
            running.backends[0].refusal = running.backends[1].refusal = None
            # What waits at home is more than it may be: the next one of the same prompt goes elsewhere.
            monkeypatch.setattr(engine_client, "BEHIND_CHARACTERS", 60)
            for backend in running.backends.values():
                backend.requests.clear()
                backend.gate.clear()
            waiting = [asyncio.create_task(running.client.score(request)) for _ in range(2)]
            await until(lambda: all(len(backend.requests) == 1 for backend in running.backends.values()))
            for backend in running.backends.values():
                backend.gate.set()
            await asyncio.gather(*waiting)

    run(work())


def test_a_request_that_meets_a_change_of_models_has_one_version() -> None:
    async def work() -> None:
        async with engines(2) as running:
            first, second = running.backends[0], running.backends[1]
            second.gate.clear()
            asked = asyncio.create_task(running.client.score(ScoreRequest(all_prompts())))
            await until(lambda: first.requests and second.requests)  # one part is held, the other on its way back
            await until(lambda: not first.registry.find("rm").live.in_flight)
            for backend in (first, second):
                backend._lifecycle._replace(
                    backend.registry.find("rm").live,
                    backend._lifecycle._served("rm", LengthScorer("v2"), None, candidate=True),
                )
                backend.generation = 1
            second.gate.set()
            response = await asked
            assert response.version == "v2"
            assert {result.version for result in response.results if isinstance(result, Score)} == {"v2"}
            assert len(first.requests) == 2  # that part was scored again

    run(work())


def test_a_key_has_one_limit_at_all_replicas() -> None:
    async def work() -> None:
        async with engines(2) as running:
            client = Client("few", items_per_minute=float(PROMPTS))
            await running.client.score(ScoreRequest(all_prompts(), client=client))
            assert all(backend.requests for backend in running.backends.values())
            with pytest.raises(RateLimitError) as refused:
                await running.client.score(ScoreRequest(all_prompts(), client=client))
            assert refused.value.retry_after is not None
            with pytest.raises(BadInputError):
                await running.client.score(ScoreRequest((*all_prompts(), item("One more")), client=client))
            other = Client("other", items_per_minute=1.0)
            for backend in running.backends.values():
                backend.refusal = BusyError("the queue is full", retry_after=1)
            for _ in range(2):  # what was not scored is not counted
                with pytest.raises(BusyError, match="full"):
                    await running.client.score(ScoreRequest((item("a"),), client=other))
            text = (await running.client.metrics()).decode()
            counted = [
                s.value
                for f in text_string_to_metric_families(text)
                for s in f.samples
                if s.name == "assay_client_items_total" and s.labels["client"] == "few"
            ]
            assert sum(counted) == PROMPTS

    run(work())


def test_the_metrics_of_all_replicas_are_one_text() -> None:
    async def work() -> None:
        async with engines(2) as running:
            await running.client.score(ScoreRequest(all_prompts()))
            await running.end(0)
            await running.begin(0, HeldBackend())
            await running.client.score(ScoreRequest(all_prompts()))
            families = list(text_string_to_metric_families((await running.client.metrics()).decode()))
            assert len({family.name for family in families}) == len(families)
            by_name = {family.name: family for family in families}
            assert {s.labels["replica"] for s in by_name["assay_queue_seconds"].samples} == {"1", "2"}
            assert {s.labels["model"] for s in by_name["assay_queue_seconds"].samples} == {"rm"}
            assert [s.value for s in by_name["assay_replica_ready"].samples] == [1.0, 1.0]
            assert sum(s.value for s in by_name["assay_items"].samples if s.name == "assay_items_total") > PROMPTS
            await running.end(0)
            families = list(text_string_to_metric_families((await running.client.metrics()).decode()))
            (ready,) = [family for family in families if family.name == "assay_replica_ready"]
            assert [(s.labels["replica"], s.value) for s in ready.samples] == [("1", 0.0), ("2", 1.0)]

    run(work())


class ScriptedReplica:
    """An engine process that answers as it is told to. `version`: what it prepares; an error: what keeps it from it."""

    def __init__(self, name: str, version: str | Exception) -> None:
        self.name, self.version = name, version
        self.orders: ReplicaOrders
        self.received: list[type[Order]] = []
        self.killed = False

    def kill(self) -> None:
        self.killed = True

    def tell(self, order: Order) -> None:
        self.received.append(type(order))
        if isinstance(order, Prepare) and isinstance(self.version, BackendError):
            self.orders.received(self, Executed(order.id, {}, method_error(0, self.version)))
        elif isinstance(order, Prepare) and isinstance(self.version, str):
            self.orders.received(self, Prepared(order.id, self.version))
        elif isinstance(order, Prepare):
            asyncio.get_running_loop().call_soon(self.orders.ended, self)
        elif isinstance(order, Commit):
            self.orders.received(self, Executed(order.id, {"generation": order.generation, "by": self.name}))


SWAP = {"action": "swap", "name": "rm", "terms": {"mode": "now"}}


def execute(*versions: str | Exception, order: dict[str, Any] = SWAP, count: int | None = None) -> Any:
    """The outcome or the error of an order, what each replica was told, and the number of the latest change."""

    async def work() -> Any:
        scripted = [ScriptedReplica(f"engine {n}", version) for n, version in enumerate(versions)]
        orders = ReplicaOrders(lambda: scripted, count or len(scripted))
        for each in scripted:
            each.orders = orders
        try:
            outcome: Any = await orders.execute(order)
        except Exception as error:
            outcome = error
        assert orders.settled.is_set()
        return outcome, [each.received for each in scripted], orders.generation

    return asyncio.run(asyncio.wait_for(work(), PATIENCE_S))


def test_a_change_that_all_can_make_is_made_by_all() -> None:
    outcome, received, generation = execute("v2", "v2")
    assert (outcome, generation) == ({"generation": 1, "by": "engine 0"}, 1)
    assert received == [[Prepare, Commit]] * 2


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (BackendError("no room"), "no room"),
        ("v3", "different versions: v2, v3"),
        (RuntimeError("it ends"), "the engine 1 process ended meanwhile"),
    ],
)
def test_a_change_that_one_cannot_make_is_made_by_none(second: str | Exception, message: str) -> None:
    outcome, received, generation = execute("v2", second)
    assert message in str(outcome)
    assert isinstance(outcome, BackendError | BusyError)
    assert received == [[Prepare, Rollback]] * 2
    assert generation == 0


def test_a_replica_that_comes_while_others_prepare_begins_again() -> None:
    async def work() -> None:
        there, late = ScriptedReplica("engine 0", "v2"), ScriptedReplica("engine 1", "v1")
        orders = ReplicaOrders(lambda: [there, late] if there.received else [there], 2)
        there.orders = late.orders = orders
        await orders.execute(SWAP)
        assert (there.killed, late.killed, late.received) == (False, True, [])

    run(work())


def test_a_swap_that_lasts_needs_all_replicas() -> None:
    shadow = {"action": "swap", "name": "rm", "terms": {"mode": "shadow"}}
    outcome, received, _ = execute("v2", order=shadow, count=2)
    assert isinstance(outcome, BusyError)
    assert received == [[]]
    assert execute("v2", count=2)[0]["generation"] == 1


def test_swaps_in_progress_end_with_a_replica() -> None:
    async def work() -> None:
        scripted = [ScriptedReplica(f"engine {n}", "v2") for n in range(2)]
        orders = ReplicaOrders(lambda: scripted, 2)
        for each in scripted:
            each.orders = orders
        await orders.execute({"action": "swap", "name": "rm", "terms": {}})  # shadow, unless it says now
        (abort,) = orders.ended(scripted[0])
        assert (abort["action"], abort["name"]) == ("abort", "rm")
        await orders.decide(abort)
        assert orders.ended(scripted[1]) == []
        scripted[0].version = BackendError("no swap of rm is going on")
        await orders.decide(abort)  # over: nothing to report

    run(work())


def test_an_engine_whose_order_another_one_refuses_stays_as_it_was() -> None:
    async def work() -> None:
        backend = HeldBackend()
        await backend.start()

        async def refused(version: str) -> None:
            raise ConflictError(f"another replica cannot follow to {version!r}")

        with pytest.raises(ConflictError):
            await backend.manage({"action": "unload", "name": "rm"}, refused)
        assert [info.name for info in await backend.models()] == ["rm"]
        assert (await backend.score(ScoreRequest((item("a"),)))).version == "v1"
        await backend.manage({"action": "unload", "name": "rm"})  # nothing of it is left
        assert await backend.models() == []
        await backend.stop()

    run(work())


def test_what_a_replica_gets_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(6)), raising=False)
    assert replicas.environment_of(1, 1, [], {}) == {}
    assert [replicas.environment_of(n, 4, [], {}) for n in (1, 4)] == [{"OMP_NUM_THREADS": "1"}] * 2
    assert replicas.environment_of(2, 2, [], {}) == {"OMP_NUM_THREADS": "3"}
    assert replicas.environment_of(2, 2, [], {"OMP_NUM_THREADS": "8"}) == {}
    gpus = ["GPU-a", "GPU-b", "GPU-c", "GPU-d", "GPU-e"]
    parts = [replicas.environment_of(n, 2, gpus, {}) for n in (1, 2)]
    assert parts == [{"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b"}, {"CUDA_VISIBLE_DEVICES": "GPU-c,GPU-d"}]
    whole = ServerSettings(cache_path="/scores", cache_entries=9, cache_bytes=100)
    assert replicas.settings_of(whole, 1, 1) is whole
    first, second = (replicas.settings_of(whole, n, 2) for n in (1, 2))
    assert (first.cache_path, second.cache_path) == ("/scores", "/scores/replica-2")
    assert (first.cache_entries, first.cache_bytes) == (5, 50)


def test_more_replicas_than_gpus_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def config(count: int, **plan: Any) -> ServeConfig:
        return ServeConfig((ModelConfig("rm", **plan),), replicas=count)

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, 5")
    assert replicas.gpus_of(config(2)) == ["3", "5"]
    assert replicas.gpus_of(config(1, device="cuda:1")) == []
    for on_cpu in ({"device": "cpu"}, {"engine": "vllm-http"}):
        assert replicas.gpus_of(config(3, **on_cpu)) == []
    with pytest.raises(BadInputError, match="3 replicas need as many GPUs, and 2"):
        replicas.gpus_of(config(3))
    with pytest.raises(BadInputError, match="cuda:1"):
        replicas.gpus_of(config(2, device="cuda:1"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert replicas.gpus_of(config(3)) == []  # a machine without: they share its cores


def test_gpus_that_cannot_be_listed_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    program = tmp_path / "nvidia-smi"
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    for script, gpus in (("echo GPU-a; echo GPU-b", ["GPU-a", "GPU-b"]), ("exit 9", [])):
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        assert replicas.visible_gpus() == gpus
    assert caplog.text.count("nvidia-smi lists no GPUs") == 1
    assert "exit status 9" in caplog.text
