"""HTTP worker and engine: the messages, the client over a real socket, an engine that goes away and comes back."""

from __future__ import annotations

import asyncio
import math
import socket
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import assay.errors
from assay.domain import Message
from assay.errors import AssayError, BackendError, BadInputError, BusyError, LateError, NotFoundError, RateLimitError
from assay.score import Score, ScoreFailure, ScorePart
from assay_serving.engine_process import wire
from assay_serving.engine_process.connection import FrameConnection
from assay_serving.engine_process.engine_client import MOST_LOSSES, EngineClient
from assay_serving.engine_process.engine_server import EngineServer
from assay_serving.engine_process.folder import SOCKET, private_folder
from assay_serving.engine_process.launch import EngineLaunch, HttpWorkerLaunch, line_of, max_frame_bytes
from assay_serving.engines.transformers import TransformersScorer
from assay_serving.model_config import ModelConfig
from assay_serving.scorer import Rendered, ScoreItem
from assay_serving.server.core.scoring_backend import (
    ChatRequest,
    Client,
    Priority,
    ScoreRequest,
    ScoreResponse,
    TokenRequest,
)
from assay_serving.server.core.settings import ServeConfig, ServerSettings
from assay_serving.server.http.config_file import path_of
from assay_serving.server.in_process import InProcessBackend
from assay_serving.server.rollout.lifecycle import Commit, at_once

PROMPT = (Message("system", "Be brief."), Message("user", "Name a metal."))
TOKEN = "token of this test"
FRAME_BYTES = 1 << 20
PATIENCE_S = 240.0

rendered = Rendered("text", (1, 2), True, True, 7, False)
full_item = ScoreItem(PROMPT, "Gold.", "correct", rendered, "gold", ("a", "b"), ("Go", "ld."))
full_request = ScoreRequest((full_item,), "rm", Priority.BULK, 1.5, Client("ci", 60.0, 600.0), "id-1", True)
part = ScorePart("p", 0.5, 0.6, 2.0, "m", "v", None, "no answer", "has a digit", "veto", 0.4)
full_score = Score(0.1, "rm", "v", "t", 9, True, 0.2, 0.3, "correct", "c", (part,), "because", 0.5)


def through(message: Any) -> Any:
    return wire.decode(wire.encode(message), type(message))


def test_every_field_of_a_request_and_an_answer_arrives() -> None:
    for whole in (full_item, full_request, full_score, full_score.parts[0]):
        plain: Any = {ScoreItem: ScoreItem((), ""), ScoreRequest: ScoreRequest(()), ScorePart: ScorePart("")}.get(
            type(whole)
        )
        plain = plain or Score(0.0, "", "", "", 0, False)
        named = {f.name for f in fields(whole)} - {"skipped"}
        assert all(getattr(whole, name) != getattr(plain, name) for name in named), "a field is not set in this test"
    assert wire.score_request(through(wire.shared_request(full_request))) == full_request
    answer = ScoreResponse("rm", "v", (full_score, ScoreFailure("too_long", "too long", "rm")), 1, 3)
    assert wire.score_response(through(wire.typed_response(answer))) == answer


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False))
def test_floats_arrive_bit_for_bit(reward: float, probability: float) -> None:
    answer = ScoreResponse("rm", "v", (replace(full_score, reward=reward, probability=probability),))
    score = wire.score_response(through(wire.typed_response(answer))).results[0]
    assert isinstance(score, Score)
    assert score.probability is not None
    assert score.reward.hex() == reward.hex()
    assert math.copysign(1, score.probability) == math.copysign(1, probability)
    assert score.probability.hex() == probability.hex()


def test_shared_text_travels_once_and_is_one_object_again() -> None:
    long = "A long answer. " * 5000
    items = tuple(ScoreItem(PROMPT, long, f"principle {n % 3}", references=(long,)) for n in range(200))
    message = wire.shared_request(ScoreRequest(items))
    assert len(wire.encode(message)) < 1.2 * len(long)
    arrived = wire.score_request(through(message)).items
    assert arrived == items
    assert len({id(item.prompt) for item in arrived}) == 1
    assert len({id(text) for item in arrived for text in (item.response, *item.references)}) == 1


@pytest.mark.parametrize(
    "error",
    [
        NotFoundError("no such model"),
        BadInputError("must be positive", file="serve.yaml", row=3, field="port"),
        BusyError("full", retry_after=2.5),
        RateLimitError("too many", retry_after=7.0),
        LateError("late"),
        BackendError("broken"),
    ],
)
def test_an_error_is_the_same_on_the_other_side(error: AssayError) -> None:
    found = wire.exception_of(through(wire.method_error(4, error)))
    assert type(found) is type(error)
    assert str(found) == str(error)
    for name in ("retry_after", "field"):
        assert getattr(found, name, None) == getattr(error, name, None)


def test_every_kind_of_error_has_its_way() -> None:
    kinds = [kind for kind in vars(assay.errors).values() if isinstance(kind, type) and issubclass(kind, AssayError)]
    assert len(kinds) > 5
    for kind in kinds:
        assert type(wire.exception_of(wire.method_error(1, kind("why")))) is kind

    class SpecialError(BadInputError):
        """Known to one side only."""

    assert type(wire.exception_of(wire.method_error(1, SpecialError("why")))) is BadInputError


@pytest.mark.parametrize(
    "data", [b"", b"\x00", b"\xc1", b"[1]", wire.encode(wire.EngineState(True, 1.0)), b"\x93\x01\x01"]
)
def test_bytes_that_are_no_message_are_refused(data: bytes) -> None:
    with pytest.raises(BackendError):
        wire.decode(data, wire.ToEngine)


def test_a_place_outside_the_tables_and_an_empty_result_are_refused() -> None:
    with pytest.raises(BackendError):
        wire.score_request(replace_struct(wire.shared_request(full_request), texts=[]))
    with pytest.raises(BackendError):
        wire.score_response(wire.TypedResponse("rm", "v", [(None, None)], 0, 0))


def replace_struct(message: Any, **changes: Any) -> Any:
    return msgspec.structs.replace(message, **changes)


def test_what_no_encoding_can_hold_is_the_callers_fault() -> None:
    with pytest.raises(BadInputError, match="Unicode"):
        wire.encode(wire.shared_request(ScoreRequest((ScoreItem(PROMPT, "half \ud800"),))))
    with pytest.raises(BadInputError, match="too large"):
        wire.encode({"number": 2**70})


def test_what_a_child_is_told_arrives_whole() -> None:
    settings = ServerSettings(api_keys=("ä key",), max_items=3)
    plans = (ModelConfig("rm", "served", engine_options={"a": [1, None]}), ModelConfig("other"))
    config = ServeConfig(plans, "::1", 1, 2, 3, "cert", "key", True, "json", "/workspace", settings)
    engine = EngineLaunch(3, TOKEN, config, plans[1:], True, 4, False)
    worker = HttpWorkerLaunch(4, TOKEN, config, ("/socket", "/socket 2"), "/metrics")
    for launch in (engine, worker):
        line = line_of(launch)
        assert line.index(b"\n") == len(line) - 1
        assert msgspec.json.decode(line, type=type(launch), dec_hook=path_of) == launch


@pytest.fixture(scope="module")
def scorer(tiny_reward_model: Path) -> TransformersScorer:
    return TransformersScorer.load(ModelConfig(str(tiny_reward_model), device="cpu", served_as="rm"))


class Pair:
    """A worker's client and the engine's server around one socket, which stays when the server goes."""

    def __init__(self, listening: socket.socket, link: EngineClient) -> None:
        self.listening = listening
        self.link = link
        self.host: InProcessBackend
        self.server: EngineServer

    async def start_engine(self, host: InProcessBackend) -> None:
        self.host = host
        await host.start()
        self.server = EngineServer(host, TOKEN, max_frame_bytes=FRAME_BYTES)
        await self.server.start(self.listening.dup())

    async def until_ready(self, ready: bool = True) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while self.link.ready != ready:
                await asyncio.sleep(0.005)

    async def engine_dies(self) -> None:
        """As a killed process leaves it: its ends of all connections closed, nothing said."""
        workers = list(self.server.workers)
        await self.server.stop(0)
        for worker in workers:
            worker.connection.abort()
        await self.host.stop()


@asynccontextmanager
async def pair(host: InProcessBackend | None, *, token: str = TOKEN) -> AsyncIterator[Pair]:
    with private_folder() as folder, socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder / SOCKET))
        listening.listen()
        link = EngineClient([str(folder / SOCKET)], token, max_frame_bytes=FRAME_BYTES)
        both = Pair(listening, link)
        try:
            if host is not None:
                await both.start_engine(host)
            await link.start()
            yield both
        finally:
            await link.stop()
            if hasattr(both, "server"):
                await both.server.stop(0)
                await both.host.stop()


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, PATIENCE_S))


def local(scorer: TransformersScorer, **settings: Any) -> InProcessBackend:
    return InProcessBackend({"rm": scorer}, ServerSettings(**settings))


def some_items(count: int) -> tuple[ScoreItem, ...]:
    return tuple(ScoreItem(PROMPT, f"Answer {n}. " * (1 + n % 5)) for n in range(count))


def test_scores_are_those_of_the_host_itself(scorer: TransformersScorer) -> None:
    async def work() -> None:
        async with pair(local(scorer)) as both:
            await both.until_ready()
            items = some_items(30)
            whole = await both.link.score(ScoreRequest(items, "rm"))
            here = await both.host.score(ScoreRequest(items, "rm"))  # from the cache: the very same
            assert here.cached == len(items)
            assert whole == replace(here, cached=0)
            assert whole.version == scorer.info.version
            single = await asyncio.gather(*(both.link.score(ScoreRequest((item,))) for item in items))
            for answer, expected in zip(single, whole.results, strict=True):
                assert isinstance(expected, Score)
                assert isinstance(score := answer.results[0], Score)
                assert score.reward == pytest.approx(expected.reward, abs=1e-5)
            assert await both.link.models() == await both.host.models()
            assert b'assay_items_total{model="rm"}' in await both.link.metrics()

    run(work())


def test_an_answer_with_a_result_too_few_is_no_answer(
    scorer: TransformersScorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        host = local(scorer)
        whole = host.score

        async def short(request: ScoreRequest) -> ScoreResponse:
            answer = await whole(request)
            return replace(answer, results=answer.results[1:])

        monkeypatch.setattr(host, "score", short)
        async with pair(host) as both:
            await both.until_ready()
            with pytest.raises(BackendError, match="2 results for 3 items"):
                await both.link.score(ScoreRequest(some_items(3)))

    run(work())


def test_refusals_come_through(scorer: TransformersScorer) -> None:
    async def work() -> None:
        async with pair(local(scorer, max_items=2, max_queue_items=2)) as both:
            await both.until_ready()
            with pytest.raises(NotFoundError):
                await both.link.score(ScoreRequest(some_items(1), "other"))
            with pytest.raises(BusyError) as busy:
                await both.link.score(ScoreRequest(some_items(3)))
            assert busy.value.retry_after is not None
            with pytest.raises(LateError):
                await both.link.score(ScoreRequest(some_items(2), timeout_s=1e-6))
            with pytest.raises(BadInputError):
                await both.link.chat(ChatRequest("rm", PROMPT, 8))
            with pytest.raises(AssayError):
                await both.link.manage({"action": "no such order"})
            with pytest.raises(BadInputError, match="at most"):
                await both.link.score(ScoreRequest((ScoreItem(PROMPT, "x" * (FRAME_BYTES + 1)),)))
            assert (await both.link.score(ScoreRequest(some_items(2)))).results

    run(work())


class Held(InProcessBackend):
    """Answers when the door is opened; counts those who wait and those who gave up."""

    def prepare(self) -> Held:
        self.door, self.waiting, self.cancelled, self.orders = asyncio.Event(), 0, 0, list[dict[str, Any]]()
        return self

    async def score(self, request: ScoreRequest) -> ScoreResponse:
        self.waiting += 1
        try:
            await self.door.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return await super().score(request)

    async def manage(self, order: dict[str, Any], commit: Commit = at_once) -> dict[str, Any]:
        if "fail" in order:
            raise RuntimeError(f"a fault of {order['fail']}")
        self.orders.append(order)
        return {"plans": [], "done": order}


async def until(condition: Any) -> None:
    while not condition():
        await asyncio.sleep(0.005)


def test_a_caller_that_hangs_up_cancels_the_work_in_the_engine(scorer: TransformersScorer) -> None:
    async def work() -> None:
        host = Held({"rm": scorer}, ServerSettings()).prepare()
        async with pair(host) as both:
            await both.until_ready()
            stays, leaves = (asyncio.create_task(both.link.score(ScoreRequest(some_items(1)))) for _ in range(2))
            await until(lambda: host.waiting == 2)
            leaves.cancel()
            await until(lambda: host.cancelled == 1)
            host.door.set()
            assert (await stays).results

    run(work())


def test_orders_come_through_and_a_fault_tells_nothing(scorer: TransformersScorer, caplog: Any) -> None:
    async def work() -> None:
        async with pair(Held({"rm": scorer}, ServerSettings()).prepare()) as both:
            await both.until_ready()
            order = {"action": "load", "plan": {"reference": "x", "n": [1, 2.5, None, True]}}
            assert await both.link.manage(order) == {"plans": [], "done": order}
            with pytest.raises(RuntimeError) as fault:
                await both.link.manage({"fail": "secret"})
            assert "secret" not in str(fault.value) + caplog.text
            assert "RuntimeError" in caplog.text
            assert (await both.link.models())[0].name == "rm"

    run(work())


def test_an_engine_that_dies_hands_what_it_had_to_the_next(scorer: TransformersScorer) -> None:
    async def work() -> None:
        host = Held({"rm": scorer}, ServerSettings()).prepare()
        async with pair(host) as both:
            await both.until_ready()
            assert both.link.state == "ready"
            asked = [asyncio.create_task(both.link.score(ScoreRequest(some_items(1)))) for _ in range(20)]
            await until(lambda: host.waiting == 20)
            await both.engine_dies()
            await both.until_ready(False)
            assert both.link.state == "the engine is restarting"
            asked.append(asyncio.create_task(both.link.score(ScoreRequest(some_items(1)))))  # it waits as well
            listed = asyncio.create_task(both.link.models())
            ids = asyncio.create_task(both.link.tokenize(TokenRequest(None, texts=("Gold.",))))
            with pytest.raises(BusyError, match="restarting") as late:
                await both.link.score(ScoreRequest(some_items(1), timeout_s=0.1))
            assert late.value.retry_after is not None
            with pytest.raises(BusyError, match="restarting"):
                await both.link.manage({"action": "load"})  # an order is never given twice
            assert await both.link.metrics() == b""  # the worker's own are still reported
            await asyncio.sleep(0.5)  # it is connected to the socket by now, where nobody answers yet
            assert not both.link.ready
            await both.start_engine(local(scorer))
            await both.until_ready()
            assert all([len((await answer).results) == 1 for answer in asked])
            assert (await listed)[0].name == "rm"
            assert len((await ids).ids) == 1
            assert (await both.link.score(ScoreRequest(some_items(3)))).results

    run(work())


def test_a_request_that_is_there_whenever_an_engine_dies_is_refused(scorer: TransformersScorer) -> None:
    async def work() -> None:
        host = Held({"rm": scorer}, ServerSettings()).prepare()
        async with pair(host) as both:
            asked = asyncio.create_task(both.link.score(ScoreRequest(some_items(1))))
            for number in range(MOST_LOSSES):
                if number:
                    await both.start_engine(host := Held({"rm": scorer}, ServerSettings()).prepare())
                await until(lambda: host.waiting == 1)
                await both.engine_dies()
            with pytest.raises(BusyError, match="the engine is restarting"):
                await asked

    run(work())


def test_a_worker_that_drains_waits_for_no_engine(scorer: TransformersScorer) -> None:
    async def work() -> None:
        async with pair(local(scorer)) as both:
            await both.until_ready()
            await both.engine_dies()
            await both.until_ready(False)
            asked = asyncio.create_task(both.link.score(ScoreRequest(some_items(1))))
            await asyncio.sleep(0.01)
            assert not asked.done()
            both.link.drain()
            with pytest.raises(BusyError):
                await asyncio.wait_for(asked, PATIENCE_S)

    run(work())


def test_before_the_engine_and_while_it_drains_requests_are_refused(scorer: TransformersScorer) -> None:
    async def work() -> None:
        async with pair(None) as both:
            with pytest.raises(BusyError, match="the engine is starting"):
                await both.link.score(ScoreRequest(some_items(1), timeout_s=0.05))
            await both.start_engine(local(scorer))
            await both.until_ready()
            both.host.drain()
            await both.until_ready(False)
            assert both.link.state == "the engine is not ready"
            with pytest.raises(BusyError, match="draining"):
                await both.link.score(ScoreRequest(some_items(1)))

    run(work())


def test_a_stop_of_the_engine_answers_what_is_in_progress(scorer: TransformersScorer) -> None:
    async def work() -> None:
        host = Held({"rm": scorer}, ServerSettings()).prepare()
        async with pair(host) as both:
            await both.until_ready()
            asked = asyncio.create_task(both.link.score(ScoreRequest(some_items(4))))
            await until(lambda: host.waiting == 1)
            stopping = asyncio.create_task(both.server.stop(PATIENCE_S))
            await asyncio.sleep(0.01)
            host.door.set()
            await stopping
            assert len((await asked).results) == 4

    run(work())


def test_a_worker_without_the_token_gets_nothing(scorer: TransformersScorer, caplog: Any) -> None:
    async def work() -> None:
        async with pair(local(scorer), token="another token") as both:
            await until(lambda: "without the token" in caplog.text)
            assert not both.link.ready
            assert not both.server.workers

    run(work())


def test_frames_past_the_bound_end_the_connection(scorer: TransformersScorer, caplog: Any) -> None:
    async def work() -> None:
        async with pair(local(scorer)) as both:
            await both.until_ready()
            for frame in (b"\xff\xff\xff\xff", (1 << 20).to_bytes(4, "big"), b"\x00\x00\x00\x01\x00"):
                reader, writer = await asyncio.open_unix_connection(sock=_connected(both.listening))
                writer.write(frame)
                with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                    await reader.readexactly(1)
                writer.close()
            assert both.link.ready
            assert (await both.link.score(ScoreRequest(some_items(1)))).results

    run(work())


def _connected(listening: socket.socket) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    client.connect(listening.getsockname())
    return client


def test_a_side_that_does_not_read_holds_the_other_back() -> None:
    async def work() -> None:
        near, far = socket.socketpair()
        received: list[bytes] = []
        sender, receiver = (FrameConnection(received.append, limit=FRAME_BYTES) for _ in "ab")
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: sender, sock=near)
        frames = [bytes([n]) * 100_000 for n in range(50)]
        sent = 0

        async def send_all() -> None:
            nonlocal sent
            for frame in frames:
                await sender.writable()
                sender.send(frame, limit=FRAME_BYTES)
                await asyncio.sleep(0)
                sent += 1

        sending = asyncio.create_task(send_all())
        await asyncio.sleep(0.1)
        assert sent < len(frames)  # nobody reads
        assert sender.full
        await loop.create_connection(lambda: receiver, sock=far)
        await sending
        sender.close()
        assert await receiver.closed is None
        assert received == frames

    run(work())


def test_frames_hold_every_accepted_body() -> None:
    assert max_frame_bytes(ServerSettings(max_body_bytes=1 << 30, max_buffered_bytes=1 << 30)) >= 1 << 30
    assert max_frame_bytes(ServerSettings(max_body_bytes=1)) >= 1 << 20
