"""OpenAI's chat route on the reward server, by OpenAI's own client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from assay_serving.engines.transformers import TransformersScorer
from assay_serving.generative.engine import GenerativeScorer
from assay_serving.model_config import ModelConfig
from assay_serving.process import RunningServer, running_server
from assay_serving.server.core.settings import ServerSettings

KEY = "a-key"
ASKED: Any = [{"role": "user", "content": "Name a metal."}]


@pytest.fixture(scope="module")
def judge(tiny_judges: dict[str, Path]) -> GenerativeScorer:
    return GenerativeScorer.load(ModelConfig(str(tiny_judges["pointwise"]), device="cpu", served_as="judge"))


@pytest.fixture(scope="module")
def server(judge: GenerativeScorer, tiny_reward_model: Path) -> Iterator[RunningServer]:
    scalar = TransformersScorer.load(ModelConfig(str(tiny_reward_model), device="cpu", served_as="rm"))
    with running_server({"judge": judge, "rm": scalar}, settings=ServerSettings(api_keys=(KEY,))) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: RunningServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=server.url + "/v1", api_key=KEY, max_retries=0) as made:
        yield made


def test_a_generative_model_answers_openais_client(client: openai.OpenAI, judge: GenerativeScorer) -> None:
    made = client.chat.completions.create(model="judge", messages=ASKED, max_tokens=24, temperature=0)
    [choice] = made.choices
    assert choice.message.role == "assistant"
    assert choice.message.content == "Verdict: No"  # what the tiny judge was trained to say
    assert choice.finish_reason == "stop"
    assert (made.model, made.system_fingerprint) == ("judge", judge.info.version)
    assert made.usage is not None
    assert made.usage.total_tokens == made.usage.prompt_tokens + made.usage.completion_tokens > 20
    cut = client.chat.completions.create(model="judge", messages=ASKED, max_tokens=3, temperature=0)
    assert cut.choices[0].finish_reason == "length"
    stopped = client.chat.completions.create(model="judge", messages=ASKED, max_tokens=24, temperature=0, stop=[" No"])
    assert stopped.choices[0].message.content == "Verdict:"
    assert stopped.choices[0].finish_reason == "stop"


def test_a_seed_gives_the_same_answer_again(client: openai.OpenAI) -> None:
    def drawn(seed: int) -> str | None:
        made = client.chat.completions.create(
            model="judge", messages=ASKED, max_tokens=16, temperature=2, top_p=1, seed=seed
        )
        return str(made.choices[0].message.content)

    assert drawn(5) == drawn(5)
    assert len({drawn(seed) for seed in range(6)}) > 1


def test_errors_are_the_clients_own_exceptions(client: openai.OpenAI, server: RunningServer) -> None:
    body: dict[str, Any] = {"model": "judge", "messages": ASKED, "max_tokens": 4}
    changes: dict[str, Any]
    for changes, said in (
        ({"model": "rm"}, "writes nothing"),
        ({"max_tokens": 100_000}, "context length"),
        ({"stream": True}, "stream"),
        ({"n": 2}, "n is not supported"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
        ({"temperature": 3}, "temperature"),
        ({"messages": []}, "messages"),
    ):
        with pytest.raises(openai.BadRequestError, match=said) as refused:
            client.chat.completions.create(**(body | changes))
        assert refused.value.type == "invalid_request_error"
    with pytest.raises(openai.NotFoundError, match="served: judge, rm"):
        client.chat.completions.create(model="other", messages=ASKED)
    with (
        openai.OpenAI(base_url=server.url + "/v1", api_key="wrong", max_retries=0) as stranger,
        pytest.raises(openai.AuthenticationError),
    ):
        stranger.chat.completions.create(model="judge", messages=ASKED)


def test_scoring_and_chat_of_one_model_do_not_disturb_each_other(client: openai.OpenAI, server: RunningServer) -> None:
    headers = {"Authorization": f"Bearer {KEY}"}
    body = {"model": "judge", "prompt": "Name a metal.", "responses": ["Gold.", "Glass."]}
    before = httpx.post(server.url + "/v1/score", json=body, headers=headers, timeout=240).json()["results"]
    client.chat.completions.create(model="judge", messages=ASKED, max_tokens=24, temperature=1)
    after = httpx.post(server.url + "/v1/score", json=body, headers=headers, timeout=240).json()["results"]
    assert [entry["reward"] for entry in before] == pytest.approx([entry["reward"] for entry in after], abs=1e-5)
