"""A client of several servers with one model: homes of prompts, servers that are gone or busy, one version a group."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from assay.domain import Message
from assay.errors import BackendError, BadInputError, BusyError, RateLimitError
from assay.score import Score, ScoreFailure, ScoreResult
from assay_policy_training.rollouts.open_rewards import keys_of, open_rewards
from assay_serving.client import AsyncRewardClient, RemoteScorer, RewardClient
from assay_serving.client.administration import AdminClient
from assay_serving.client.circuit import FAULTS_OF_SEVERAL
from assay_serving.client.protocol import SCORE, cut, score_call
from assay_serving.process import running_server
from assay_serving.routing import preference, prompt_key
from assay_serving.scorer import ModelInfo, ScoreItem

A, B, C = "http://a:8000", "http://b:8000", "http://c:8000"
PROMPTS = 48


class CountingScorer:
    """The reward of a response is its length; remembers the prompts that it was asked."""

    score_identity = ""

    def __init__(self, version: str = "v1") -> None:
        self.info = ModelInfo("rm", version, "scalar", "t", 100, False, "passed", "float32", "cpu")
        self.prompts: list[str] = []

    def score(self, items: Sequence[ScoreItem], on_progress: Any = None) -> list[ScoreResult]:
        self.prompts += [item.prompt[0].text for item in items]
        return [Score(float(len(item.response)), "rm", self.info.version, "t", 1, False) for item in items]


def items(responses: int = 3) -> list[ScoreItem]:
    """Every prompt with several responses, not one after the other; all of different length."""
    return [
        ScoreItem((Message("user", f"Question {n}"),), "x" * (1 + n + PROMPTS * number))
        for number in range(responses)
        for n in range(PROMPTS)
    ]


def rewards(results: Sequence[ScoreResult]) -> list[float]:
    assert all(isinstance(result, Score) for result in results)
    return [result.reward for result in results if isinstance(result, Score)]


@pytest.fixture
def servers() -> Iterator[dict[str, CountingScorer]]:
    """Two, by their addresses."""
    scorers = [CountingScorer(), CountingScorer()]
    with ExitStack() as stack:
        yield {stack.enter_context(running_server({"rm": scorer})).url: scorer for scorer in scorers}


@pytest.fixture
def nobody() -> Iterator[str]:
    """The address of a port that is held, and where nothing listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{held.getsockname()[1]}"


def test_every_prompt_is_asked_at_its_home_in_one_piece(servers: dict[str, CountingScorer]) -> None:
    urls = list(servers)
    homes = {item.prompt[0].text: urls[preference(prompt_key(item), urls)[0]] for item in items()}
    with RewardClient(",".join(urls), max_items_per_request=7) as client:
        assert client.urls == urls
        assert rewards(client.score(items())) == [float(len(item.response)) for item in items()]
    asked = {url: set(scorer.prompts) for url, scorer in servers.items()}
    assert asked == {url: {prompt for prompt, home in homes.items() if home == url} for url in urls}

    async def again() -> list[ScoreResult]:
        async with AsyncRewardClient(f"{urls[1]}/, {urls[0]}") as client:  # in another order
            return await client.score(items(4))

    assert len(rewards(asyncio.run(again()))) == 4 * PROMPTS
    assert {url: set(scorer.prompts) for url, scorer in servers.items()} == asked


@pytest.mark.slow
def test_the_prompts_of_a_server_that_is_gone_are_asked_at_the_others(
    servers: dict[str, CountingScorer], nobody: str
) -> None:
    with RewardClient(",".join([*servers, nobody]), max_items_per_request=1) as client:
        assert rewards(client.score(items())) == [float(len(item.response)) for item in items()]
        gone = client._circuits[2]
        assert gone._faults >= FAULTS_OF_SEVERAL  # it is asked occasionally from now on
        assert not gone.admits() or not gone.admits()
    assert sum(len(set(scorer.prompts)) for scorer in servers.values()) == PROMPTS  # each at one place still
    none = RewardClient(nobody + "," + nobody.replace("127.0.0.1", "localhost"), retries=1)
    with none, pytest.raises(BackendError, match="2 tries"):
        none.score(items()[:1])


def test_a_server_that_ends_in_use_is_replaced_by_the_others() -> None:
    stays, goes = CountingScorer(), CountingScorer()
    with running_server({"rm": stays}) as first, ExitStack() as stack:
        second = stack.enter_context(running_server({"rm": goes}))
        with RewardClient(f"{first.url},{second.url}") as client:
            before = client.score(items())
            assert stays.prompts
            assert goes.prompts
            stack.close()
            assert client.score(items(4))[: len(before)] == before
    assert set(goes.prompts) < set(stays.prompts)


def test_a_policys_reward_is_of_several_servers(servers: dict[str, CountingScorer]) -> None:
    with ExitStack() as stack:
        (source,) = open_rewards(stack, [",".join(servers)], [None], wait=60.0, deadline=60.0)
        scored: Any = source
        assert rewards(scored.scorer.score(items())) == [float(len(item.response)) for item in items()]
    assert all(scorer.prompts for scorer in servers.values())


def test_servers_of_different_models_are_one_line() -> None:
    with ExitStack() as stack:
        urls = [
            stack.enter_context(running_server({"rm": CountingScorer(version)})).url for version in ("v1", "v1", "v2")
        ]
        assert RemoteScorer(RewardClient(",".join(urls[:2]))).info.version == "v1"
        with pytest.raises(BadInputError) as refused:
            RemoteScorer(RewardClient(",".join(urls)))
    assert str(refused.value) == (
        f"{urls[0]} serves rm, version v1, and {urls[2]} rm, version v2: one reward needs servers of one model"
    )


@pytest.mark.parametrize("url", [f"{A},{A}/", f"{A},ftp://b", f"{A},http://"])
def test_addresses_that_cannot_be_are_refused(url: str) -> None:
    with pytest.raises(BadInputError, match="url"):
        RewardClient(url)


def test_an_order_is_for_one_server() -> None:
    with pytest.raises(BadInputError, match="one server"):
        AdminClient(f"{A},{B}")


def test_a_key_goes_to_the_servers_of_the_first_reward_only() -> None:
    assert keys_of(["verifier", f"{A},{B}#rm", f"x={B}", C, f"{B},{C}"], "k") == ["", "k", "k", "", ""]


class Steps:
    """One request, tried without I/O. `at`: the servers that were tried, in turn."""

    def __init__(self, *urls: str, **settings: Any) -> None:
        self.client = RewardClient(",".join(urls), **settings)
        self.home, self.other = (urls[n] for n in preference(b"key", urls)[:2])
        self._steps = self.client._exchange("POST", SCORE, {}, key=b"key")
        self.step: Any = next(self._steps)

    @property
    def at(self) -> str:
        return str(self.step["url"]).removesuffix(SCORE)

    def answer(self, status: int, **headers: str) -> None:
        request = httpx.Request("POST", self.step["url"])
        self._send(httpx.Response(status, headers=headers, json={"detail": "no"}, request=request))

    def _send(self, outcome: Any) -> None:
        self.step = self._steps.send(outcome)

    def break_off(self) -> None:
        self._send(httpx.ConnectError("refused"))

    def wait(self) -> float:
        seconds = self.step
        assert isinstance(seconds, float)
        self._send(None)
        return seconds


def test_another_server_is_tried_at_once_and_the_home_first_after_a_pause() -> None:
    steps = Steps(A, B)
    assert steps.at == steps.home
    steps.break_off()
    assert steps.at == steps.other
    steps.answer(503, **{"Retry-After": "3"})
    assert steps.wait() >= 3
    assert steps.at == steps.home
    with pytest.raises(StopIteration) as answered:
        steps.answer(200)
    assert answered.value.value.status_code == 200


def test_a_keys_limit_is_not_passed_on_to_another_server() -> None:
    steps = Steps(A, B, retries=1)
    steps.answer(429, **{"Retry-After": "2"})
    assert steps.wait() >= 2
    assert steps.at == steps.home
    with pytest.raises(RateLimitError):
        steps.answer(429)


def test_what_no_server_can_answer_is_not_tried_again() -> None:
    with pytest.raises(BadInputError):
        Steps(A, B).answer(422)
    steps = Steps(A, B, retries=0)
    steps.break_off()
    with pytest.raises(BusyError):
        steps.answer(503)


def scored(version: str, run: Sequence[Any]) -> list[ScoreResult]:
    return [Score(float(len(item.response)), "rm", version, "t", 1, False) for (item,) in run]


def test_a_group_of_two_versions_is_asked_again() -> None:
    client = RewardClient(A, max_items_per_request=2)
    group = [ScoreItem((Message("user", "Name a metal."),), "x" * n) for n in range(6)]
    alone = ScoreItem((Message("user", "Name a stone."),), "y")
    call = score_call([*group, alone], client)
    assert [len(run) for run in call.runs] == [2, 2, 2, 1]
    rounds = call.rounds()
    assert next(rounds) == [0, 1, 2, 3]
    # The model was replaced before the third request.
    assert rounds.send(
        [scored("v1", call.runs[0]), scored("v1", call.runs[1]), scored("v2", call.runs[2]), scored("v1", call.runs[3])]
    ) == [0, 1, 2]
    with pytest.raises(StopIteration) as end:
        rounds.send([scored("v2", call.runs[n]) for n in (0, 1, 2)])
    results = end.value.value
    assert rewards(results) == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 1.0]
    assert [result.version for result in results] == ["v2"] * 6 + ["v1"]  # another prompt is another matter


@pytest.mark.parametrize("in_place", [True, False])
def test_a_group_that_stays_of_two_versions_has_no_scores(in_place: bool) -> None:
    client = RewardClient(A, max_items_per_request=1, failures_in_place=in_place)
    call = score_call([ScoreItem((Message("user", "Name a metal."),), "x" * n) for n in range(2)], client)
    rounds = call.rounds()
    numbers = next(rounds)
    outcome: Any = None
    while outcome is None:
        try:
            numbers = rounds.send([scored(f"v{number}", call.runs[number]) for number in numbers])
        except (StopIteration, BackendError) as end:
            outcome = end
    if in_place:
        assert all(isinstance(result, ScoreFailure) and result.code == "backend" for result in outcome.value)
    else:
        assert "several versions" in str(outcome)


def test_a_group_stays_in_one_request_where_it_fits() -> None:
    def named(*sizes: int) -> list[ScoreItem]:
        return [ScoreItem((Message("user", f"{n}"),), "x") for n, size in enumerate(sizes) for _ in range(size)]

    assert [len(run) for run in cut(named(3, 3, 3, 3), 8)] == [6, 6]
    assert [len(run) for run in cut(named(1, 10, 1), 4)] == [1, 4, 4, 3]
    assert [len(run) for run in cut(named(*[1] * 10), 4)] == [4, 4, 2]
    assert cut([], 4) == []
