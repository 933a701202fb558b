"""The reward functions for TRL, verl and OpenRLHF: called as those trainers call them, against the real server."""

from __future__ import annotations

import asyncio
import inspect
import pickle
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from assay.conversation.parts import ImagePart, ToolCallPart, ToolResultPart
from assay.domain import Message
from assay.errors import BackendError, BadInputError, NotFoundError
from assay.models.loading import load_tokenizer
from assay.score import Score, ScoreFailure
from assay_serving.engines.principle import PrincipleScorer
from assay_serving.engines.transformers import TransformersScorer
from assay_serving.model_config import ModelConfig
from assay_serving.process import RunningServer, running_server
from assay_serving.scorer import ScoreItem
from assay_serving.server.core.settings import ServerSettings
from assay_serving.trainers import openrlhf, verl
from assay_serving.trainers.conversations import prompt_and_response, references_of
from assay_serving.trainers.trl import AssayReward

KEY = "trainer-key"
QUESTIONS = ("Name a metal.", "Name a gas.")
ANSWERS = ("Gold.", "Glass is none.", "Neon.", "Air, perhaps.")


@pytest.fixture(scope="module")
def scorer(tiny_reward_model: Path) -> TransformersScorer:
    return TransformersScorer.load(ModelConfig(str(tiny_reward_model), device="cpu", served_as="rm"))


@pytest.fixture(scope="module")
def server(scorer: TransformersScorer, tiny_principle_model: Path) -> Iterator[RunningServer]:
    judge = PrincipleScorer.load(ModelConfig(str(tiny_principle_model), device="cpu", served_as="judge"))
    with running_server({"rm": scorer, "judge": judge}, settings=ServerSettings(api_keys=(KEY,))) as running:
        yield running


@pytest.fixture
def dead_url() -> Iterator[str]:
    with socket.socket() as taken:  # bound, never listening: connections are refused
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


def offline(scorer: TransformersScorer, question: str, answer: str) -> float:
    [result] = scorer.score([ScoreItem((Message("user", question),), answer)])
    assert isinstance(result, Score)
    return result.reward


def group() -> dict[str, Any]:
    """What TRL passes for two prompts with two completions each, text form, with columns that nobody asked for."""
    return {
        "prompts": [question for question in QUESTIONS for _ in range(2)],
        "completions": list(ANSWERS),
        "completion_ids": [[1, 2], [3], [4], [5]],
        "trainer_state": object(),
        "environments": None,
        "source": ["here"] * 4,
    }


class Told:
    """TRL's two callbacks."""

    def __init__(self) -> None:
        self.metrics: dict[str, float] = {}
        self.columns: dict[str, list[Any]] = {}

    def log_metric(self, name: str, value: float) -> None:
        self.metrics[name] = value

    def log_extra(self, name: str, values: list[Any]) -> None:
        self.columns[name] = values

    @property
    def callbacks(self) -> dict[str, Any]:
        return {"log_metric": self.log_metric, "log_extra": self.log_extra}


def test_trl_gets_one_reward_a_completion_in_text_and_in_messages(
    server: RunningServer, scorer: TransformersScorer
) -> None:
    reward = AssayReward(server.url, model="rm", api_key=KEY)
    assert inspect.iscoroutinefunction(reward.__call__)
    assert reward.__name__ == "assay_rm"
    expected = [offline(scorer, QUESTIONS[n // 2], answer) for n, answer in enumerate(ANSWERS)]
    told = Told()
    assert asyncio.run(reward(**group(), **told.callbacks)) == pytest.approx(expected, abs=1e-5)
    assert told.metrics == {"assay_rm/failed": 0.0, "assay_rm/truncated": 0.0}
    assert told.columns == {"assay_rm/error": [None] * 4}
    in_messages = group() | {
        "prompts": [[{"role": "user", "content": p}] for p in group()["prompts"]],
        "completions": [[{"role": "assistant", "content": answer}] for answer in ANSWERS],
    }
    assert asyncio.run(reward(**in_messages)) == pytest.approx(expected, abs=1e-5)
    assert asyncio.run(reward([], [])) == []


def test_trl_gets_none_for_a_completion_without_a_score(
    server: RunningServer, caplog: pytest.LogCaptureFixture
) -> None:
    reward = AssayReward(server.url, model="rm", api_key=KEY, name="helpfulness")
    told = Told()
    asked = group() | {"completions": ["Gold.", "x" * 3000, "\ud800", [{"role": "user", "content": "?"}]]}
    found = asyncio.run(reward(**asked, **told.callbacks))
    assert [value is None for value in found] == [False, True, True, True]
    assert told.metrics["helpfulness/failed"] == 0.75
    reasons = told.columns["helpfulness/error"]
    assert reasons[0] is None
    assert [reason.partition(":")[0] for reason in reasons[1:]] == ["too_long", "bad_input", "bad_input"]
    assert "no reward for 3 of 4 completions (2 bad_input, 1 too_long)" in caplog.text
    uncalibrated = AssayReward(server.url, model="rm", api_key=KEY, use="probability")
    assert asyncio.run(uncalibrated(**group())) == [None] * 4


def test_trl_columns_choose_principle_label_and_references(server: RunningServer) -> None:
    reward = AssayReward(server.url, model="judge", api_key=KEY, principle_column="rule", label_column="answer")
    columns: dict[str, Any] = {
        "rule": ["It is short.", "It is true.", None, "It is short."],
        "answer": ["a", 1, None, {"k": [2]}],
    }
    found = asyncio.run(reward(**group(), **columns))
    assert [value is None for value in found] == [False, False, True, False]
    results = asyncio.run(reward.score(group()["prompts"], ANSWERS, **columns))
    assert [r.principle for r in results if isinstance(r, Score)] == ["It is short.", "It is true.", "It is short."]
    fixed = AssayReward(server.url, model="judge", api_key=KEY, principle="It is true.")
    assert None not in asyncio.run(fixed(**group()))
    with pytest.raises(BadInputError, match="no column 'rule'"):
        asyncio.run(reward(**group()))
    assert references_of(["a", [{"role": "assistant", "content": "b"}]]) == ("a", "b")
    assert references_of("a") == ("a",)


def test_the_trl_reward_goes_through_pickle_and_event_loops(server: RunningServer) -> None:
    reward = AssayReward(server.url, model="rm", api_key=KEY)
    first = asyncio.run(reward(**group()))  # this loop ends with its connections open
    copy: AssayReward = pickle.loads(pickle.dumps(reward))
    assert copy.__name__ == reward.__name__
    for one in (reward, copy, pickle.loads(pickle.dumps(copy))):
        assert asyncio.run(one(**group())) == pytest.approx(first, abs=1e-5)


def test_trl_keeps_going_without_a_server_and_stops_for_a_wrong_key(server: RunningServer, dead_url: str) -> None:
    told = Told()
    assert asyncio.run(AssayReward(dead_url, retries=0)(**group(), **told.callbacks)) == [None] * 4
    assert told.metrics["assay_reward/failed"] == 1.0
    with pytest.raises(BackendError):
        asyncio.run(AssayReward(dead_url, retries=0, keep_going=False)(**group()))
    with pytest.raises(BadInputError, match="401"):
        asyncio.run(AssayReward(server.url, model="rm", api_key="wrong")(**group()))
    with pytest.raises(NotFoundError):
        asyncio.run(AssayReward(server.url, model="other", api_key=KEY)(**group()))


def test_what_trainers_call_a_sample() -> None:
    turns = [{"role": "user", "content": "Name a metal."}]
    assert prompt_and_response(turns, "Gold.") == ((Message("user", "Name a metal."),), "Gold.")
    begun = [*turns, {"role": "assistant", "content": "It is "}]
    assert prompt_and_response(begun, [{"role": "assistant", "content": "gold."}]) == (
        (Message("user", "Name a metal."),),
        "It is gold.",
    )
    for wrong in (None, [], 3, [{"role": "boss", "content": "a"}], [{"role": "user", "content": [{"type": "x"}]}]):
        with pytest.raises(BadInputError):
            prompt_and_response(wrong, "Gold.")


def test_a_completion_with_calls_of_tools_is_a_response_of_turns() -> None:
    turns = [{"role": "user", "content": "Name a metal."}]
    arguments = {"name": "gold", "period": None}  # a data set's null: not given
    completion = [
        {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "find", "arguments": arguments}}]},
        {"role": "tool", "name": "find", "content": "Au"},
        {"role": "assistant", "content": [{"type": "text", "text": "Gold."}]},
    ]
    prompt, response = prompt_and_response(np.array(turns, dtype=object), np.array(completion, dtype=object))
    assert prompt == (Message("user", "Name a metal."),)
    assert response == (
        Message("assistant", (ToolCallPart("find", '{"name":"gold"}'),)),
        Message("tool", (ToolResultPart("Au", name="find"),)),
        Message("assistant", "Gold."),
    )
    begun = [*turns, completion[0], completion[1]]
    assert prompt_and_response(begun, "Gold.")[0][1:] == response[:2], "calls of earlier turns are the prompt's"
    image = [
        {"role": "user", "content": [{"type": "image", "image": "a.png"}, {"type": "text", "text": "What is it?"}]}
    ]
    assert prompt_and_response(image, "Gold.")[0][0].parts[0] == ImagePart(url="a.png")
    with pytest.raises(BadInputError, match="a tool call without a name"):
        prompt_and_response(turns, [{"role": "assistant", "content": None, "tool_calls": [{}]}])
    with pytest.raises(BadInputError, match="ends with the assistant's turn"):
        prompt_and_response(turns, completion[:2])


def test_typed_completions_are_refused_by_name_where_the_model_has_no_place(server: RunningServer) -> None:
    reward = AssayReward(server.url, model="rm", api_key=KEY)
    call = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "find", "arguments": "{}"}}]}
    prompts = [[{"role": "user", "content": QUESTIONS[0]}]] * 2
    done = {"role": "assistant", "content": "Gold."}
    failure, score = asyncio.run(reward.score(prompts, [[call, done], [done]]))
    assert isinstance(failure, ScoreFailure)
    assert "has no place for tool calls" in failure.message
    assert isinstance(score, Score)


def test_verl_gets_the_same_keys_for_every_sample(server: RunningServer, scorer: TransformersScorer) -> None:
    settings: dict[str, Any] = {"url": server.url, "model": "rm", "api_key": KEY}

    async def batch() -> list[dict[str, float]]:
        return await asyncio.gather(
            *(
                verl.compute_score(
                    data_source="made",
                    solution_str=answer,
                    ground_truth="Gold",
                    extra_info={"question": QUESTIONS[n // 2], "num_turns": 2, "rollout_reward_scores": {}},
                    **settings,
                )
                for n, answer in enumerate((*ANSWERS[:3], "x" * 3000))
            )
        )

    with pytest.raises(BackendError, match="too_long"):
        asyncio.run(batch())
    settings["failure_score"] = -5.0
    found = asyncio.run(batch())
    assert {tuple(each) for each in found} == {("score", "failed", "truncated", "tokens")}
    expected = [offline(scorer, QUESTIONS[n // 2], answer) for n, answer in enumerate(ANSWERS[:3])]
    assert [each["score"] for each in found] == pytest.approx([*expected, -5.0], abs=1e-5)
    assert [each["failed"] for each in found] == [0.0, 0.0, 0.0, 1.0]
    alone = verl.compute_score_sync(
        data_source="made",
        solution_str="Gold.",
        ground_truth=None,
        extra_info={"chat": [{"role": "user", "content": QUESTIONS[0]}]},
        reward_router_address=server.url.removeprefix("http://"),
        prompt_key="chat",
        model="rm",
        api_key=KEY,
    )
    assert alone["score"] == pytest.approx(expected[0], abs=1e-5)


def test_verl_says_what_is_missing(server: RunningServer, dead_url: str) -> None:
    sample = {"data_source": "made", "solution_str": "Gold.", "ground_truth": None}
    with pytest.raises(BadInputError, match="extra_info"):
        verl.compute_score_sync(**sample, extra_info={"index": 3}, url=server.url)
    with pytest.raises(BadInputError, match=r"reward_kwargs\.url"):
        verl.compute_score_sync(**sample, extra_info={"question": "?"})
    with pytest.raises(BackendError):  # a server that is gone is no sample's fault: never a number
        verl.compute_score_sync(**sample, extra_info={"question": "?"}, url=dead_url, retries=0, failure_score=0.0)


def test_openrlhf_gets_tensors_of_the_conversations_scores(
    server: RunningServer,
    scorer: TransformersScorer,
    tiny_reward_model: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tokenizer = load_tokenizer(str(tiny_reward_model))

    def rendered(question: str, answer: str) -> str:
        turns = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
        return str(tokenizer.apply_chat_template(turns, tokenize=False))

    queries = [rendered(QUESTIONS[n // 2], answer) for n, answer in enumerate(ANSWERS)]
    expected = [offline(scorer, QUESTIONS[n // 2], answer) for n, answer in enumerate(ANSWERS)]
    monkeypatch.setenv("ASSAY_REWARD_URL", server.url)
    monkeypatch.setenv("ASSAY_REWARD_MODEL", "rm")
    monkeypatch.setenv("ASSAY_API_KEY", KEY)
    openrlhf.from_environment.cache_clear()
    found = openrlhf.reward_func(queries, [""] * 4, [None] * 4, extra=1)
    assert isinstance(found["rewards"], torch.Tensor)
    assert found["rewards"].tolist() == pytest.approx(expected, abs=1e-4)
    assert found["extra_logs"]["failed"].tolist() == [0.0] * 4
    too_long = [*queries[:2], rendered(QUESTIONS[0], "x" * 3000)]
    with pytest.raises((BadInputError, BackendError)):
        openrlhf.reward_func(too_long, [""] * 3, [None] * 3)
    reward: openrlhf.OpenRLHFReward = pickle.loads(
        pickle.dumps(openrlhf.OpenRLHFReward(server.url, model="rm", api_key=KEY, failure_reward=-9.0))
    )
    found = reward(too_long, [""] * 3, [None] * 3)
    assert found["rewards"].tolist() == pytest.approx([*expected[:2], -9.0], abs=1e-4)
    assert found["extra_logs"]["failed"].tolist() == [0.0, 0.0, 1.0]
    assert reward([], [], [])["rewards"].shape == (0,)


def test_openrlhf_says_what_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ASSAY_REWARD_URL", raising=False)
    openrlhf.from_environment.cache_clear()
    with pytest.raises(BadInputError, match="ASSAY_REWARD_URL"):
        openrlhf.reward_func(["a"], ["a"], [None])
