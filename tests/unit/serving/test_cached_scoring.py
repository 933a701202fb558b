"""One model's answers from cache, company and engine, on the event loop without HTTP.

The engine is a deterministic one behind a door; `test_coalescing` has the real one behind HTTP.
"""

from __future__ import annotations

import asyncio
import threading
import zlib
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from assay.domain import Message
from assay.errors import AssayError, BackendError, BusyError, LateError
from assay.runs.progress_bar import Advance, silent
from assay.score import Score, ScoreFailure, ScoreResult
from assay_serving.scorer import ModelInfo, ScoreItem
from assay_serving.server.core.scoring_backend import Client, Priority, ScoreRequest, ScoreResponse
from assay_serving.server.core.settings import ServerSettings
from assay_serving.server.in_process import InProcessBackend

T = TypeVar("T")
PATIENCE_S = 240.0
POISON, BAD = "poison", "bad"
PROMPT = (Message("user", "Hi."),)


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL", logger="assay.serving")


class Engine:
    """Rewards are a function of prompt and response. Breaks on POISON, fails on BAD; `error` is raised if set."""

    def __init__(self, version: str = "v1", *, identity: str | None = "") -> None:
        self.info = ModelInfo(
            "engine", version, "scalar", "t1", 512, calibrated=False, parity="passed", dtype="float32", device="cpu"
        )
        self.score_identity = identity
        self.error: AssayError | None = None
        self.calls: list[list[str]] = []
        self.door = threading.Event()
        self.door.set()

    def score(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[ScoreResult]:
        self.calls.append([str(item.response) for item in items])
        assert self.door.wait(PATIENCE_S)
        if self.error is not None:
            raise self.error
        if any(item.response == POISON for item in items):
            raise RuntimeError("broken")
        return [self.result(item) for item in items]

    def result(self, item: ScoreItem) -> ScoreResult:
        if item.response == BAD:
            return ScoreFailure("too_long", "too long", self.info.name)
        return Score(reward_of(item), self.info.name, self.info.version, "t1", 1, truncated=False)

    @property
    def seen(self) -> list[str]:
        return [response for call in self.calls for response in call]


def reward_of(item: ScoreItem) -> float:
    return float(zlib.crc32(repr((item.prompt, item.response)).encode()))


def items_of(*responses: str) -> tuple[ScoreItem, ...]:
    return tuple(ScoreItem(PROMPT, response) for response in responses)


def asked(*responses: str, priority: Priority = Priority.INTERACTIVE, **more: Any) -> ScoreRequest:
    return ScoreRequest(items_of(*responses), priority=priority, **more)


def rewards(answer: ScoreResponse) -> list[float | str]:
    return [result.reward if isinstance(result, Score) else result.code for result in answer.results]


def expected(*responses: str) -> list[float | str]:
    return [reward_of(item) for item in items_of(*responses)]


@asynccontextmanager
async def serving(
    *engines: Engine, settings: ServerSettings | None = None, names: Sequence[str] = ("rm", "other")
) -> AsyncIterator[InProcessBackend]:
    host = InProcessBackend(
        dict(zip(names, engines, strict=False)), settings or ServerSettings(window_s=0, engine_call_s=600.0)
    )
    await host.start()
    try:
        yield host
    finally:
        for engine in engines:
            engine.door.set()
        await host.stop()


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, PATIENCE_S))


async def until_waiting(host: InProcessBackend, items: int) -> None:
    while host.queues["rm"].waiting != items:
        await asyncio.sleep(0.002)


@asynccontextmanager
async def busy(host: InProcessBackend, engine: Engine) -> AsyncIterator[None]:
    """The engine is at work on one item inside the block."""
    engine.door.clear()
    calls = len(engine.calls)
    first = asyncio.create_task(host.score(asked("keeps it busy")))
    while len(engine.calls) == calls:
        await asyncio.sleep(0.002)
    yield
    engine.door.set()
    await first


def metric(text: bytes, line: str) -> float:
    [found] = [row for row in text.decode().splitlines() if row.startswith(line + " ")]
    return float(found.rpartition(" ")[2])


def test_what_was_scored_is_answered_without_the_engine() -> None:
    engine = Engine()

    async def work() -> None:
        async with serving(engine) as host:
            first = await host.score(asked("a", "b"))
            again = await host.score(asked("b", "c", "a"))
            assert rewards(first) == expected("a", "b")
            assert rewards(again) == expected("b", "c", "a")
            assert (first.cached, again.cached) == (0, 2)
            text = await host.metrics()
            assert metric(text, 'assay_cache_hits_total{model="rm",tier="memory"}') == 2
            assert metric(text, 'assay_cache_misses_total{model="rm"}') == 3
            assert metric(text, 'assay_items_total{model="rm"}') == 5
            assert {result.model for result in again.results} == {"rm"}

    run(work())
    assert sorted(engine.seen) == ["a", "b", "c"]


def test_equal_items_of_a_request_are_scored_once() -> None:
    engine = Engine()

    async def work() -> None:
        async with serving(engine) as host:
            answer = await host.score(asked("a", "b", "a", BAD, "a", BAD))
            assert rewards(answer) == [*expected("a", "b", "a"), "too_long", *expected("a"), "too_long"]
            assert answer.cached == 3
            assert metric(await host.metrics(), 'assay_items_total{model="rm"}') == 6

    run(work())
    assert sorted(engine.seen) == ["a", "b", BAD]


def test_equal_requests_at_once_are_scored_once() -> None:
    engine = Engine()

    async def work() -> None:
        async with serving(engine) as host:
            async with busy(host, engine):
                several = [asyncio.create_task(host.score(asked("a", "b", f"own {n}"))) for n in range(5)]
                await until_waiting(host, 2 + 5)
            answers = await asyncio.gather(*several)
            for n, answer in enumerate(answers):
                assert rewards(answer) == expected("a", "b", f"own {n}")
            assert sorted(answer.cached for answer in answers) == [0, 2, 2, 2, 2]
            assert metric(await host.metrics(), 'assay_cache_hits_total{model="rm",tier="shared"}') == 8

    run(work())
    assert len(engine.seen) == 1 + 2 + 5


def test_an_item_is_scored_though_the_request_that_brought_it_is_gone() -> None:
    engine = Engine()

    async def work() -> None:
        async with serving(engine) as host:
            async with busy(host, engine):
                leader = asyncio.create_task(host.score(asked("a", "leader's own")))
                await until_waiting(host, 2)
                followers = [asyncio.create_task(host.score(asked("a"))) for _ in range(3)]
                await asyncio.sleep(0)
                leader.cancel()
                await until_waiting(host, 1)
            for answer in await asyncio.gather(*followers):
                assert rewards(answer) == expected("a")

    run(work())
    assert engine.seen == ["keeps it busy", "a"]


def test_a_request_that_hangs_up_late_has_filled_the_cache() -> None:
    engine = Engine()

    async def work() -> None:
        async with serving(engine) as host:
            engine.door.clear()
            gone = asyncio.create_task(host.score(asked("a")))
            while not engine.calls:
                await asyncio.sleep(0.002)
            gone.cancel()
            engine.door.set()
            answer = await host.score(asked("a"))
            assert (rewards(answer), answer.cached) == (expected("a"), 1)

    run(work())
    assert engine.seen == ["a"]


def test_another_requests_poison_costs_no_follower_its_score() -> None:
    engine = Engine()

    async def work() -> None:
        async with serving(engine) as host:
            async with busy(host, engine):
                broken = asyncio.create_task(host.score(asked("good", POISON)))
                await until_waiting(host, 2)
                followers = [asyncio.create_task(host.score(asked("good"))) for _ in range(3)]
                poisoned = asyncio.create_task(host.score(asked(POISON)))
                await asyncio.sleep(0.01)
            assert rewards(await broken) == ["backend", "backend"]
            assert [rewards(answer) for answer in await asyncio.gather(*followers)] == [expected("good")] * 3
            assert rewards(await poisoned) == ["backend"]

    run(work())


def test_interactive_requests_do_not_wait_for_equal_bulk_items() -> None:
    engine = Engine()

    async def work() -> None:
        async with serving(
            engine, settings=ServerSettings(window_s=0, engine_call_s=600.0, batch_items=8, max_items=100)
        ) as host:
            async with busy(host, engine):
                bulk = asyncio.create_task(host.score(asked(*map(str, range(100)), priority=Priority.BULK)))
                await until_waiting(host, 100)
                person = asyncio.create_task(host.score(asked("99")))
                await until_waiting(host, 101)
            assert rewards(await person) == expected("99")
            assert rewards(await bulk) == expected(*map(str, range(100)))

    run(work())
    assert "99" in engine.calls[1]


def test_interactive_overtakes_a_flood_of_bulk_which_continues_beside_it() -> None:
    engine = Engine()

    async def work() -> None:
        settings = ServerSettings(window_s=0, engine_call_s=600.0, batch_items=16, max_items=100)
        async with serving(engine, settings=settings) as host:
            async with busy(host, engine):
                flood = [
                    asyncio.create_task(
                        host.score(
                            asked(
                                *(f"bulk {n} {i}" for i in range(100)), priority=Priority.BULK, client=Client(f"t{n}")
                            )
                        )
                    )
                    for n in range(3)
                ]
                await until_waiting(host, 300)
                people = [asyncio.create_task(host.score(asked(f"person {n}"))) for n in range(20)]
                await until_waiting(host, 320)
            await asyncio.gather(*people, *flood)

    run(work())
    order = engine.seen
    last_person = max(place for place, text in enumerate(order) if text.startswith("person"))
    assert last_person <= 1 + 2 * 16  # two calls have all the people
    assert any(text.startswith("bulk") for text in order[: last_person + 2])


def test_failures_are_never_kept() -> None:
    engine = Engine()

    async def work() -> None:
        async with serving(engine) as host:
            for _ in range(2):
                assert rewards(await host.score(asked(BAD))) == ["too_long"]
                assert rewards(await host.score(asked(POISON))) == ["backend"]
            engine.error = BackendError("the model is gone")
            assert rewards(await host.score(asked("a", "b"))) == ["backend", "backend"]
            engine.error = None
            answer = await host.score(asked("a", "b"))
            assert (rewards(answer), answer.cached) == (expected("a", "b"), 0)

    run(work())
    assert engine.seen.count(BAD) == engine.seen.count(POISON) == 2


def test_a_score_of_another_version_than_the_engines_is_not_kept() -> None:
    class Changed(Engine):
        def result(self, item: ScoreItem) -> ScoreResult:
            result = super().result(item)
            assert isinstance(result, Score)
            return replace(result, version="v2")  # as of a server whose model was swapped meanwhile

    engine = Changed()

    async def work() -> None:
        async with serving(engine) as host:
            for _ in range(2):
                assert (await host.score(asked("a"))).cached == 0

    run(work())


def test_an_engine_that_is_not_repeatable_is_asked_every_time() -> None:
    engine = Engine(identity=None)

    async def work() -> None:
        async with serving(engine) as host:
            for _ in range(2):
                answer = await host.score(asked("a", "a"))
                assert (rewards(answer), answer.cached) == (expected("a", "a"), 0)

    run(work())
    assert engine.seen == ["a"] * 4


def test_models_share_the_cache_only_where_they_are_the_same() -> None:
    first, same, newer = Engine(), Engine(), Engine("v2")

    async def work() -> None:
        async with serving(first, same, newer, names=("rm", "alias", "newer")) as host:
            await host.score(asked("a", model="rm"))
            alias = await host.score(asked("a", model="alias"))
            assert (alias.cached, alias.results[0].model, alias.model) == (1, "alias", "alias")
            other = await host.score(asked("a", model="newer"))
            assert (other.cached, other.version) == (0, "v2")

    run(work())
    assert (len(first.calls), len(same.calls), len(newer.calls)) == (1, 0, 1)


def test_scores_outlive_the_server_on_disk(tmp_path: Path) -> None:
    settings = ServerSettings(
        window_s=0, engine_call_s=600.0, cache_path=str(tmp_path / "cache"), max_items=2000, max_queue_items=2000
    )
    many = [f"answer {n}" for n in range(1200)]
    before, after, newer = Engine(), Engine(), Engine("v2")

    async def work(engine: Engine, cached: int) -> None:
        async with serving(engine, settings=settings) as host:
            answer = await host.score(asked(*many))
            assert (rewards(answer), answer.cached) == (expected(*many), cached)
            if cached:
                text = await host.metrics()
                assert metric(text, 'assay_cache_hits_total{model="rm",tier="disk"}') == cached
                assert (await host.score(asked(*many))).cached == cached  # from memory now

    run(work(before, 0))
    run(work(after, len(many)))
    run(work(newer, 0))
    assert (after.calls, len(newer.seen)) == ([], len(many))


def test_late_requests_are_not_scored_and_are_counted() -> None:
    engine = Engine()

    async def work() -> None:
        async with serving(engine) as host:
            async with busy(host, engine):
                with pytest.raises(LateError, match="not scored within"):
                    await host.score(asked("late", "later", timeout_s=0.05))
                assert host.queues["rm"].waiting == 0
            assert metric(await host.metrics(), 'assay_dropped_items_total{model="rm",reason="late"}') == 2

    run(work())
    assert engine.seen == ["keeps it busy"]


def test_an_engine_that_is_busy_elsewhere_is_the_servers_busy() -> None:
    engine = Engine()

    async def work() -> None:
        async with serving(engine) as host:
            engine.error = BusyError("a server behind this one is full", retry_after=3)
            with pytest.raises(BusyError, match="full"):
                await host.score(asked("a"))
            engine.error = None
            assert rewards(await host.score(asked("a"))) == expected("a")
            engine.error = BusyError("full again")
            several = [asyncio.create_task(host.score(asked("c"))) for _ in range(3)]
            for task in several:  # those that waited for the first one's score are told as it is
                with pytest.raises(BusyError, match="full again"):
                    await task

    run(work())


def test_one_broken_request_of_many_is_found_in_few_calls() -> None:
    engine = Engine()

    async def work() -> None:
        async with serving(engine) as host:
            async with busy(host, engine):
                good = [asyncio.create_task(host.score(asked(f"good {n}"))) for n in range(63)]
                bad = asyncio.create_task(host.score(asked(POISON)))
                await until_waiting(host, 64)
            assert [rewards(answer) for answer in await asyncio.gather(*good)] == [
                expected(f"good {n}") for n in range(63)
            ]
            assert rewards(await bad) == ["backend"]

    run(work())
    assert len(engine.calls) <= 2 + 2 * 6


def test_a_broken_engine_is_not_tried_with_every_request() -> None:
    class Broken(Engine):
        def score(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[ScoreResult]:
            super().score(items)
            if len(self.calls) > 1:
                raise RuntimeError("out of order")
            return [self.result(item) for item in items]

    engine = Broken()

    async def work() -> None:
        async with serving(engine) as host:
            async with busy(host, engine):
                waiting = [asyncio.create_task(host.score(asked(f"{n}"))) for n in range(256)]
                await until_waiting(host, 256)
            assert {rewards(answer)[0] for answer in await asyncio.gather(*waiting)} == {"backend"}

    run(work())
    assert len(engine.calls) < 60


def test_stopping_answers_nobody_with_silence() -> None:
    engine = Engine()

    async def work() -> None:
        host = InProcessBackend({"rm": engine}, ServerSettings(window_s=0, engine_call_s=600.0))
        await host.start()
        engine.door.clear()
        with_engine = asyncio.create_task(host.score(asked("a")))
        while not engine.calls:
            await asyncio.sleep(0.002)
        queued = asyncio.create_task(host.score(asked("b", "a")))
        following = asyncio.create_task(host.score(asked("a")))
        await until_waiting(host, 1)
        await host.stop()
        engine.door.set()
        for task in (with_engine, queued, following):
            with pytest.raises(BusyError):
                await task

    run(work())


REQUESTS = st.lists(
    st.tuples(
        st.lists(st.sampled_from(["a", "b", "c", "d", "e", "f" * 50, POISON, BAD]), min_size=1, max_size=6),
        st.sampled_from(list(Priority)),
        st.sampled_from(["one", "two"]),
        st.sampled_from(["", "x" * 100]),  # the prompt's text
        st.integers(0, 3),  # turns of the loop before it comes
        st.sampled_from([None, None, 0, 2, 5]),  # turns of the loop after which its client hangs up
    ),
    max_size=25,
)


@pytest.mark.slow
@hypothesis_settings(max_examples=60)
@given(REQUESTS, st.sampled_from([1, 3, 512]), st.booleans())
def test_every_request_gets_exactly_its_own_results(
    requests: list[tuple[list[str], Priority, str, str, int, int | None]], batch: int, repeatable: bool
) -> None:
    engine = Engine(identity="" if repeatable else None)

    def items(prompt: str, responses: list[str]) -> tuple[ScoreItem, ...]:
        return tuple(ScoreItem((Message("user", prompt),), response) for response in responses)

    async def turns(count: int) -> None:
        for _ in range(count):
            await asyncio.sleep(0)

    async def one(
        host: InProcessBackend, responses: list[str], priority: Priority, client: str, prompt: str, gone: int | None
    ) -> None:
        request = ScoreRequest(items(prompt, responses), priority=priority, client=Client(client))
        task = asyncio.create_task(host.score(request))
        if gone is not None:
            await turns(gone)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            if task.cancelled():
                return
        answer = await task
        assert len(answer.results) == len(responses)
        for item, result in zip(request.items, answer.results, strict=True):
            if isinstance(result, Score):
                assert (result.reward, result.model) == (reward_of(item), "rm")
                assert item.response not in (POISON, BAD)
            else:  # a request that broke the engine may lose all of its own items, no other request any
                assert (result.code, item.response) == ("too_long", BAD) or (
                    result.code == "backend" and POISON in responses
                )

    async def work() -> None:
        async with serving(engine, settings=ServerSettings(window_s=0, engine_call_s=600.0, batch_items=batch)) as host:
            tasks = []
            for responses, priority, client, prompt, pause, gone in requests:
                await turns(pause)
                tasks.append(asyncio.create_task(one(host, responses, priority, client, prompt, gone)))
            await asyncio.gather(*tasks)
            while host.registry.live[0]._computing:  # the engine may be at work for somebody who is gone
                await asyncio.sleep(0.002)
            assert host.queues["rm"].waiting == 0
            assert host.ready

    run(work())
