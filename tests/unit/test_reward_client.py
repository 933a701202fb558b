"""Both clients: right answers from the real server, bounded retries of what is retryable, typed errors."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from assay.domain import Message
from assay.errors import AssayError, BackendError, BadInputError, BusyError, NotFoundError
from assay.score import Score, ScoreFailure, ScoreResult
from assay_serving.client import AsyncRewardClient, RemoteScorer, RewardClient
from assay_serving.client.connection import POOL_SIZE, ConnectionSettings
from assay_serving.client.protocol import CHARACTERS_PER_REQUEST, cut
from assay_serving.client.retries import RetryPolicy
from assay_serving.process import RunningServer, running_server
from assay_serving.scorer import ScoreItem
from assay_serving.server import ServerSettings
from assay_serving.transformers_engine import TransformersScorer

PROMPT = (Message("user", "Name a metal."),)
KEY = "the-key"
#: Scores the items with a client of the given settings.
Ask = Callable[..., list[ScoreResult]]


def ask_blocking(url: str, items: Sequence[ScoreItem], **options: Any) -> list[ScoreResult]:
    with RewardClient(url, **options) as client:
        return client.score(items)


def ask_async(url: str, items: Sequence[ScoreItem], **options: Any) -> list[ScoreResult]:
    async def run() -> list[ScoreResult]:
        async with AsyncRewardClient(url, **options) as client:
            return await client.score(items)

    return asyncio.run(run())


@pytest.fixture(params=[ask_blocking, ask_async], ids=["blocking", "async"])
def ask(request: pytest.FixtureRequest) -> Ask:
    found: Ask = request.param
    return found


@pytest.fixture(scope="module")
def scorer(tiny_reward_model: Path) -> TransformersScorer:
    return TransformersScorer.load(str(tiny_reward_model), device="cpu", served_as="rm")


@pytest.fixture(scope="module")
def server(scorer: TransformersScorer) -> Iterator[RunningServer]:
    with running_server({"rm": scorer}, settings=ServerSettings(api_keys=(KEY,))) as running:
        yield running


def some_items(count: int) -> list[ScoreItem]:
    return [ScoreItem((Message("user", f"Question {n % 3}"),), f"Answer {n}.") for n in range(count)]


def assert_same(found: Sequence[ScoreResult], expected: Sequence[ScoreResult]) -> None:
    for one, other in zip(found, expected, strict=True):
        assert isinstance(one, Score)
        assert isinstance(other, Score)
        assert one.reward == pytest.approx(other.reward, abs=1e-5)


Script = list[tuple[int, dict[str, str], bytes]]


@contextmanager
def scripted_server(script: Script) -> Iterator[tuple[str, list[str]]]:
    """A server that gives these replies in turn, the last one for ever; yields its URL and the paths asked for."""
    asked: list[str] = []
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            with lock:
                status, headers, body = script[min(len(asked), len(script) - 1)]
                asked.append(self.path)
            if status == 0:  # the server dies in the middle of the request
                self.close_connection = True
                return
            self.send_response(status)
            for name, value in ({"Content-Length": str(len(body))} | headers).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST  # noqa: N815 - the library's name

        def log_message(self, format: str, *args: Any) -> None:
            pass

    fake = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=fake.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{fake.server_address[1]}", asked
    finally:
        fake.shutdown()
        fake.server_close()
        thread.join()


def good_reply(count: int = 1) -> tuple[int, dict[str, str], bytes]:
    score = Score(reward=1.5, model="m", version="v", template_hash="t", tokens=3, truncated=False).to_dict()
    return 200, {}, json.dumps({"results": [score | {"from_a_newer_server": 1}] * count}).encode()


ONE = [ScoreItem(PROMPT, "Gold.")]


def test_scores_equal_the_engines_whatever_the_requests(
    ask: Ask, server: RunningServer, scorer: TransformersScorer
) -> None:
    items = some_items(41)
    expected = scorer.score(items)
    for most in (1, 7, 64):
        assert_same(ask(server.url, items, api_key=KEY, max_items_per_request=most, max_concurrency=8), expected)
    assert ask(server.url, [], api_key=KEY) == []


def test_groups_models_readiness_and_the_remote_scorer(server: RunningServer, scorer: TransformersScorer) -> None:
    responses = ["Gold.", "Glass.", "Gold."]
    expected = scorer.score([ScoreItem(PROMPT, r) for r in responses])
    with RewardClient(server.url, api_key=KEY) as client:
        client.wait_until_ready(10)
        assert client.models() == [scorer.info]
        assert_same(client.score_group("Name a metal.", responses), expected)
        assert_same(client.score_group(PROMPT, responses), expected)
        remote = RemoteScorer(client)
        assert remote.info == scorer.info
        done: list[int] = []
        assert_same(remote.score([ScoreItem(PROMPT, r) for r in responses], done.append), expected)
        assert sum(done) == 3

    async def same() -> None:
        async with AsyncRewardClient(server.url, api_key=KEY, model="rm") as client:
            await client.wait_until_ready(10)
            assert await client.models() == [scorer.info]
            assert_same(await client.score_group("Name a metal.", responses), expected)

    asyncio.run(same())


def test_failed_items_stay_in_their_place(ask: Ask, server: RunningServer) -> None:
    items = [*ONE, ScoreItem(PROMPT, "\ud800"), ScoreItem(PROMPT, "x" * 3000), *ONE]
    results = ask(server.url, items, api_key=KEY)
    codes = [r.code if isinstance(r, ScoreFailure) else "" for r in results]
    assert codes == ["", "bad_input", "too_long", ""]


def test_a_wrong_key_and_an_unknown_model_are_typed(ask: Ask, server: RunningServer) -> None:
    for key in (None, "wrong"):
        with pytest.raises(BadInputError, match="401"):
            ask(server.url, ONE, api_key=key)
    with pytest.raises(NotFoundError, match="404"):
        ask(server.url, ONE, api_key=KEY, model="other")
    with RewardClient(server.url, api_key=KEY, model="other") as client, pytest.raises(NotFoundError, match="other"):
        RemoteScorer(client)


BUSY = (503, {"Retry-After": "0"}, b'{"detail": "full"}')


@pytest.mark.parametrize("first", [BUSY, (429, {}, b""), (502, {}, b"<html>"), (504, {}, b""), (0, {}, b"")])
def test_what_is_retryable_is_tried_again(ask: Ask, first: tuple[int, dict[str, str], bytes]) -> None:
    with scripted_server([first, first, good_reply()]) as (url, asked):
        [result] = ask(url, ONE)
    assert isinstance(result, Score)
    assert result.reward == 1.5
    assert asked == ["/v1/score"] * 3


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, BadInputError),
        (401, BadInputError),
        (403, BadInputError),
        (404, NotFoundError),
        (413, BadInputError),
        (422, BadInputError),
        (500, BackendError),
        (301, BackendError),
    ],
)
def test_what_is_not_retryable_is_asked_once(ask: Ask, status: int, kind: type[AssayError]) -> None:
    script: Script = [(status, {}, b'{"detail": "no"}')]
    with scripted_server(script) as (url, asked), pytest.raises(kind, match=str(status)):
        ask(url, ONE)
    assert len(asked) == 1


def test_tries_are_bounded_and_the_error_says_how_many(ask: Ask) -> None:
    with scripted_server([BUSY]) as (url, asked), pytest.raises(BusyError, match=r"full \(3 tries\)") as caught:
        ask(url, ONE, retries=2)
    assert len(asked) == 3
    assert caught.value.retry_after == 0


def test_retry_after_beyond_the_deadline_ends_the_tries(ask: Ask) -> None:
    script: Script = [(503, {"Retry-After": "15"}, b"{}")]
    with scripted_server(script) as (url, asked), pytest.raises(BusyError) as caught:
        ask(url, ONE, deadline=5)
    assert len(asked) == 1
    assert caught.value.retry_after == 15


def test_nobody_there_is_a_backend_error_after_bounded_tries(ask: Ask) -> None:
    with socket.socket() as taken:  # bound, never listening: connections are refused
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(BackendError, match=r"\(2 tries\)"):
            ask(url, ONE, retries=1)
        results = ask(url, some_items(3), retries=0, failures_in_place=True, max_items_per_request=2, model="rm")
        with RewardClient(url) as client, pytest.raises(BackendError, match="not ready after"):
            client.wait_until_ready(0.3)
    assert [r.code for r in results if isinstance(r, ScoreFailure)] == ["backend"] * 3


def test_no_answer_in_time_is_a_backend_error_and_not_repeated(ask: Ask) -> None:
    with socket.socket() as silent_server:
        silent_server.bind(("127.0.0.1", 0))
        silent_server.listen()
        url = f"http://127.0.0.1:{silent_server.getsockname()[1]}"
        with pytest.raises(BackendError, match="no answer in time") as caught:
            ask(url, ONE, timeout=0.2)
    assert "tries" not in str(caught.value)


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"results": 3}', b'{"results": []}', b'{"results": [{}]}'])
def test_another_kind_of_server_is_a_backend_error(ask: Ask, body: bytes) -> None:
    with scripted_server([(200, {}, body)]) as (url, _), pytest.raises(BackendError):
        ask(url, ONE)


def test_one_request_that_fails_leaves_the_scores_of_the_others(ask: Ask) -> None:
    script = [good_reply(2), (500, {}, b'{"detail": "no"}'), good_reply(2)]
    with scripted_server(script) as (url, _):
        results = ask(url, some_items(6), max_items_per_request=2, max_concurrency=1, failures_in_place=True)
    assert sorted(isinstance(r, Score) for r in results) == [False, False, True, True, True, True]
    failed = [r for r in results if isinstance(r, ScoreFailure)]
    assert {r.code for r in failed} == {"backend"}


def test_wait_until_ready_waits_through_503_and_gives_up_at_once_on_a_wrong_key() -> None:
    with scripted_server([(503, {}, b""), (503, {}, b""), (200, {}, b"{}")]) as (url, asked):
        with RewardClient(url) as client:
            client.wait_until_ready(20)
        assert asked == ["/readyz"] * 3
    with scripted_server([(401, {}, b"")]) as (url, asked), RewardClient(url) as client:
        with pytest.raises(BadInputError):
            client.wait_until_ready(20)
        assert len(asked) == 1


def test_pauses_grow_with_jitter_within_their_bounds() -> None:
    policy = RetryPolicy(first_pause_s=1.0, longest_pause_s=4.0)
    for attempt, longest in enumerate((1.0, 2.0, 4.0, 4.0)):
        pauses = {policy.pause(attempt, None) for _ in range(50)}
        assert len(pauses) > 1
        assert all(0 <= pause <= longest for pause in pauses)
    assert 3.0 <= policy.pause(0, 3.0) <= 4.0


def test_requests_go_to_the_pool_with_least_to_do() -> None:
    pools = ConnectionSettings("http://x", max_concurrency=POOL_SIZE * 2 + 1).pools(httpx.Client)
    assert len(pools.clients) == 3
    with pools.least_busy() as first, pools.least_busy() as second:
        with pools.least_busy() as third:
            assert {id(first), id(second), id(third)} == {id(client) for client in pools.clients}
        with pools.least_busy() as again:
            assert again is third
    with pools.least_busy() as alone:
        assert alone is first
    for client in pools.clients:
        client.close()


def test_requests_are_cut_by_items_and_by_size() -> None:
    items = some_items(10)
    assert [len(run) for run in cut(items, 4)] == [4, 4, 2]
    large = ScoreItem(PROMPT, "x" * CHARACTERS_PER_REQUEST)
    assert [len(run) for run in cut([*ONE, large, large, *ONE], 100)] == [1, 1, 1, 1]
    assert cut([], 4) == []


@pytest.mark.parametrize(
    "options",
    [
        {"url": "ftp://x"},
        {"url": "localhost:8000"},
        {"retries": -1},
        {"timeout": 0},
        {"deadline": 0},
        {"max_items_per_request": 0},
        {"api_key": "line\nbreak"},
    ],
)
def test_settings_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(BadInputError):
        RewardClient(**({"url": "http://x"} | options))


def test_the_client_is_light() -> None:
    """An RL run that only asks for rewards loads no model library and no server."""
    code = "import sys, assay_serving.client; print(*{name.split('.')[0] for name in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "httpx" in loaded
    assert not {"torch", "transformers", "numpy", "fastapi", "starlette", "uvicorn", "duckdb", "polars"} & set(loaded)


def test_a_proxy_of_the_environment_is_not_asked_for_this_machine(
    ask: Ask, server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert all(isinstance(result, Score) for result in ask(server.url, some_items(2), api_key=KEY, retries=0))
