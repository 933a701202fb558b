"""Both clients: right answers from the real server, bounded retries of what is retryable, typed errors."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from assay.domain import Message
from assay.errors import (
    AssayError,
    BackendError,
    BadInputError,
    BusyError,
    LateError,
    NotFoundError,
    RateLimitError,
)
from assay.models.chat.principle_renderer import QUESTION
from assay.score import Score, ScoreFailure, ScoreResult, score_from_dict
from assay_serving.client import AsyncRewardClient, RemoteScorer, RewardClient
from assay_serving.client import circuit as circuits
from assay_serving.client.circuit import FAULTS, Circuit
from assay_serving.client.connection import POOL_SIZE, ConnectionSettings
from assay_serving.client.protocol import CHARACTERS_PER_REQUEST, cut, score_body
from assay_serving.client.retries import RetryPolicy
from assay_serving.engines.principle import PrincipleScorer
from assay_serving.engines.transformers import TransformersScorer
from assay_serving.model_config import ModelConfig
from assay_serving.process import RunningServer, running_server
from assay_serving.scorer import ScoreItem
from assay_serving.server.core.settings import ServerSettings

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
    return TransformersScorer.load(ModelConfig(str(tiny_reward_model), device="cpu", served_as="rm"))


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
        with pytest.raises(BadInputError, match=r"401 .*--api-key or \$ASSAY_API_KEY .*`assay keys create NAME`"):
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
        ask(url, ONE, deadline=10)
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
            ask(url, ONE, timeout=1.0)
    assert "tries" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "remaining", "seconds"),
    [
        ({}, 590.0, 590.0),
        ({"timeout": 20}, 590.0, 20.0),
        ({"timeout": 20}, 5.0, 5.0),
        ({"deadline": None}, None, 180.0),
    ],
)
def test_a_try_lasts_as_long_as_the_deadline_leaves(
    given: dict[str, Any], remaining: float | None, seconds: float
) -> None:
    limits = ConnectionSettings("http://slow.test", **given).timeout_within(remaining)
    assert (limits.read, limits.connect) == (seconds, 5.0)


@pytest.mark.slow
def test_a_deadline_alone_ends_a_request_to_a_silent_server(ask: Ask) -> None:
    with socket.socket() as silent_server:
        silent_server.bind(("127.0.0.1", 0))
        silent_server.listen()
        url = f"http://127.0.0.1:{silent_server.getsockname()[1]}"
        with pytest.raises(BackendError, match="no answer in time"):
            ask(url, ONE, deadline=2.0)


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
            client.wait_until_ready(240)
        assert asked == ["/readyz"] * 3
    with scripted_server([(401, {}, b"")]) as (url, asked), RewardClient(url) as client:
        with pytest.raises(BadInputError):
            client.wait_until_ready(240)
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


def test_neighbours_that_share_a_prompt_share_it_on_the_wire() -> None:
    settings = ConnectionSettings("http://x", model="rm", priority="bulk")
    other = (Message("user", "Name a gas."),)
    told = {"model": "rm", "priority": "bulk"}
    metal = {"prompt": [{"role": "user", "content": "Name a metal."}]}
    gas = {"prompt": [{"role": "user", "content": "Name a gas."}]}
    both = [ScoreItem(PROMPT, "Gold."), ScoreItem(PROMPT, "Iron.")]
    assert score_body(both, settings) == told | metal | {"responses": ["Gold.", "Iron."]}
    assert score_body([*both, ScoreItem(other, "Neon.", label="Neon")], settings) == told | {
        "groups": [metal | {"responses": ["Gold.", "Iron."]}, gas | {"responses": ["Neon."], "label": "Neon"}]
    }
    apart = [ScoreItem(PROMPT, "Gold.", "short"), ScoreItem(PROMPT, "Iron.", references=("Tin.",))]
    assert score_body(apart, settings) == told | {
        "items": [
            metal | {"response": "Gold.", "principle": "short"},
            metal | {"response": "Iron.", "references": ["Tin."]},
        ]
    }


def test_comparisons_ranks_and_principles(server: RunningServer, scorer: TransformersScorer) -> None:
    responses = ["Gold.", "Glass is no metal.", "Gold."]
    first, second, _ = scorer.score([ScoreItem(PROMPT, r) for r in responses])
    assert isinstance(first, Score)
    assert isinstance(second, Score)

    async def same() -> tuple[Any, ...]:
        async with AsyncRewardClient(server.url, api_key=KEY) as client:
            compared = await client.compare("Name a metal.", responses[0], responses[1])
            many = await client.compare_pairs([(PROMPT, "Gold.", "\ud800"), (PROMPT, responses[0], responses[1])])
            return compared, many, await client.rank(PROMPT, [*responses, "x" * 3000]), await client.principles()

    with RewardClient(server.url, api_key=KEY) as client:
        compared = client.compare("Name a metal.", responses[0], responses[1])
        many = client.compare_pairs([(PROMPT, "Gold.", "\ud800"), (PROMPT, responses[0], responses[1])])
        found = compared, many, client.rank(PROMPT, [*responses, "x" * 3000]), client.principles()
    for compared, many, ranking, principles in (found, asyncio.run(same())):
        assert compared.margin == pytest.approx(first.reward - second.reward, abs=1e-5)
        assert compared.basis == "bradley_terry"
        assert compared.preferred == ("a" if first.reward > second.reward else "b")
        assert [isinstance(pair.a, Score) for pair in many] == [False, True]
        assert many[1].margin == pytest.approx(compared.margin, abs=1e-5)
        assert ranking.ranks[3] is None
        assert ranking.order[3] == 3
        assert ranking.ranks[0] == ranking.ranks[2]
        assert [(use.model, use.use, use.examples) for use in principles] == [("rm", "refused", ())]


def test_several_principles_come_back_by_principle(tiny_principle_model: Path) -> None:
    principles = ["It is short.", "It is true."]
    judge = PrincipleScorer.load(ModelConfig(str(tiny_principle_model), device="cpu", served_as="judge"))
    offline = {p: judge.score([ScoreItem(PROMPT, r, p) for r in ("Gold.", "Glass.")]) for p in principles}
    with running_server({"judge": judge}) as running, RewardClient(running.url) as client:
        body = {"prompt": "Name a metal.", "responses": ["Gold.", "Glass."], "principles": principles}
        reply = httpx.post(running.url + "/v1/score", json=body, timeout=240).json()
        [use] = client.principles()
    assert [entry["principle"] for entry in reply["by_principle"]] == principles
    assert reply["results"] == []
    assert reply["usage"]["items"] == 4
    for entry in reply["by_principle"]:
        assert_same([score_from_dict(result) for result in entry["results"]], offline[entry["principle"]])
        assert {result["principle"] for result in entry["results"]} == {entry["principle"]}
    assert (use.use, use.question, use.reason is not None) == ("required", QUESTION, True)


def test_the_key_comes_from_the_environment_and_stays_out_of_pickles(
    ask: Ask, server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASSAY_API_KEY", KEY)
    assert isinstance(ask(server.url, ONE)[0], Score)
    with pytest.raises(BadInputError, match="401"):
        ask(server.url, ONE, api_key="")  # none at all, whatever the environment says
    for client in (RewardClient(server.url), AsyncRewardClient(server.url)):
        assert KEY.encode() not in pickle.dumps(client)
    assert KEY not in repr(ConnectionSettings(server.url, api_key=KEY))


def test_a_client_goes_through_pickle_and_fork(server: RunningServer) -> None:
    with RewardClient(server.url, api_key=KEY, model="rm", max_concurrency=3) as client:
        [expected] = client.score(ONE)
        with pickle.loads(pickle.dumps(client)) as copy:
            assert asdict(copy) == asdict(client)
            assert_same(copy.score(ONE), [expected])
        child = os.fork()
        if child == 0:  # the parent's connections are open here too, and must not be used
            status = 1
            try:
                status = 0 if isinstance(client.score(ONE)[0], Score) else 1
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        assert_same(client.score(ONE), [expected])


def test_one_asynchronous_client_serves_many_event_loops(server: RunningServer) -> None:
    client = AsyncRewardClient(server.url, api_key=KEY, max_concurrency=4)
    copy: AsyncRewardClient = pickle.loads(pickle.dumps(client))
    expected = asyncio.run(client.score(ONE))  # this loop ends with its connections open
    for _ in range(3):
        assert_same(asyncio.run(client.score(ONE)), expected)
    assert_same(asyncio.run(copy.score(ONE)), expected)
    found: list[list[ScoreResult]] = []
    threads = [threading.Thread(target=lambda: found.append(asyncio.run(client.score(ONE)))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    assert len(found) == 4
    for each in found:
        assert_same(each, expected)


def test_limits_and_lateness_have_their_own_errors(ask: Ask) -> None:
    script: Script = [(429, {"Retry-After": "7", "X-Request-Id": "abc"}, b'{"detail": "too many"}')]
    with scripted_server(script) as (url, _), pytest.raises(RateLimitError, match=r"request abc") as caught:
        ask(url, ONE, retries=0)
    assert caught.value.retry_after == 7
    with scripted_server([(504, {}, b"{}")]) as (url, _), pytest.raises(LateError):
        ask(url, ONE, retries=0)


def test_a_dead_server_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("assay_serving.client.circuit.time.monotonic", lambda: now)
    circuit = Circuit()
    for _ in range(FAULTS):
        assert circuit.admits()
        circuit.failed()
    assert not circuit.admits()
    assert 0.25 <= circuit.wait_s <= 0.5
    for _ in range(50):  # those that were under way when it broke
        circuit.failed()
    assert circuit.wait_s <= 0.5
    now += 0.5
    assert [circuit.admits() for _ in range(3)] == [True, False, False]  # one finds out
    circuit.failed()
    assert 0.5 <= circuit.wait_s <= 1.0
    for _ in range(12):
        now += 60
        assert circuit.admits()
        circuit.failed()
    assert circuit.wait_s <= circuits.LONGEST_PAUSE_S
    circuit.answered()
    assert [circuit.admits() for _ in range(3)] == [True] * 3


@pytest.mark.slow
def test_a_broken_server_gets_few_of_the_tries_and_none_is_lost_when_it_is_back() -> None:
    script: Script = [(0, {}, b"")] * 12 + [good_reply()]

    async def run(url: str) -> list[list[ScoreResult]]:
        async with AsyncRewardClient(url, retries=60, max_concurrency=32) as client:
            return await asyncio.gather(*(client.score(ONE) for _ in range(32)))

    with scripted_server(script) as (url, asked):
        found = asyncio.run(run(url))
    assert all(isinstance(result, Score) for results in found for result in results)
    assert len(asked) < 32 + 12 + 32  # the first try of all, and then one at a time


def test_own_authorities(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"no such file: .*none\.pem"):
        ConnectionSettings("https://x", ca=str(tmp_path / "none.pem")).certificates()
    (tmp_path / "text.pem").write_text("no certificate")
    with pytest.raises(BadInputError, match="no certificates"):
        ConnectionSettings("https://x", ca=str(tmp_path / "text.pem")).certificates()
    assert ConnectionSettings("https://x").certificates().get_ca_certs()
    assert not ConnectionSettings("http://x").certificates().get_ca_certs()


HEAVY = (
    *("torch", "transformers", "numpy", "duckdb", "polars", "pyarrow", "yaml"),
    *("fastapi", "starlette", "uvicorn", "pydantic", "prometheus_client", "typer", "rich", "tokenizers"),
)


def test_the_client_needs_httpx_alone(server: RunningServer) -> None:
    """An RL run that only asks for rewards loads no model library and no server: it works where none is installed."""
    code = f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {HEAVY!r}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
from assay_serving.client import RewardClient
import assay_serving.trainers.trl, assay_serving.trainers.verl, assay_serving.trainers.openrlhf
with RewardClient({server.url!r}, api_key={KEY!r}) as client:
    client.wait_until_ready(30)
    print(client.score_group("Name a metal.", ["Gold."])[0].model, client.rank("Hi.", ["a", "b"]).order)
print(*(name for name in {HEAVY!r} if name in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    scored, loaded = done.stdout.splitlines()
    assert scored.startswith("rm (")
    assert loaded == ""


def test_a_proxy_of_the_environment_is_not_asked_for_this_machine(
    ask: Ask, server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert all(isinstance(result, Score) for result in ask(server.url, some_items(2), api_key=KEY, retries=0))


@pytest.mark.parametrize("route", ["/v1", "/v1/", "/score", "/v1/score", "/get_reward"])
def test_a_route_in_place_of_the_address_names_the_address(route: str) -> None:
    with pytest.raises(BadInputError, match=r"is a route of a server, .* asked for: http://gpu:8000/rewards$"):
        RewardClient(f"http://gpu:8000/rewards{route}")
    for address in ("http://gpu:8000/rewards", "http://reward", "https://score/"):  # behind a proxy; hosts' own names
        RewardClient(address).close()


def test_every_route_that_scores_is_known_as_one(server: RunningServer) -> None:
    paths = httpx.get(f"{server.url}/openapi.json", headers={"Authorization": f"Bearer {KEY}"}).json()["paths"]
    scoring = [
        path
        for path, methods in paths.items()
        if "post" in methods and not re.search(r"session|admin|metrics|ping", path)
    ]
    assert len(scoring) > 10
    for path in scoring:
        with pytest.raises(BadInputError, match="is a route of a server"):
            RewardClient(f"{server.url}{path}")
