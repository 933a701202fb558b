"""The local chat server over real HTTP: OpenAI's shapes, what it refuses, and the judge in front of it."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from assay.domain import Comparison, Message
from assay.errors import BadInputError
from assay.http.running import running_app
from assay.workspace import Workspace
from assay_pipelines.judging.asking import ask
from assay_pipelines.judging.local import LocalJudge
from assay_pipelines.judging.openai_compatible import LlmJudge, LlmJudgeConfig
from assay_pipelines.llm.annotators import annotator_of
from assay_pipelines.llm.configuration import EndpointConfig
from assay_pipelines.llm.questions import Question
from assay_serving.chat.app import create_chat_app
from assay_serving.chat.completion import TooLongError
from assay_serving.chat.generation import ChatModel, QueuedModel
from assay_serving.server.auth.key_store import create_key
from assay_serving.server.chat_app import guarded_chat_app
from assay_serving.server.core.settings import ServerSettings

KEY = "the-key"
ASKED = {"model": "tiny", "messages": [{"role": "user", "content": "Name a metal."}], "max_tokens": 8}


@pytest.fixture(scope="module")
def model() -> ChatModel:
    return ChatModel.load("tiny", device="cpu", dtype="float32")


@pytest.fixture(scope="module")
def client(model: ChatModel) -> Iterator[httpx.Client]:
    with (
        running_app(guarded_chat_app(QueuedModel(model), ServerSettings(api_keys=(KEY,)))) as url,
        httpx.Client(base_url=url, headers={"Authorization": f"Bearer {KEY}"}, timeout=240) as client,
    ):
        yield client


def test_a_completion_has_text_counts_and_a_reason(client: httpx.Client) -> None:
    reply = client.post("/v1/chat/completions", json=ASKED | {"temperature": 0})
    body = reply.json()
    choice = body["choices"][0]
    assert reply.status_code == 200
    assert choice["message"]["role"] == "assistant"
    assert choice["finish_reason"] == "length"
    assert body["usage"]["completion_tokens"] == 8
    assert body["usage"]["prompt_tokens"] > len("Name a metal.")
    assert body["usage"]["total_tokens"] == body["usage"]["prompt_tokens"] + 8
    again = client.post("/v1/chat/completions", json=ASKED | {"temperature": 0}).json()
    assert again["choices"][0]["message"] == choice["message"]


def test_a_key_that_is_limited_to_other_models_gets_nothing(model: ChatModel, tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    keys = [create_key(file, name, ["score"], models=[name])[0] for name in ("tiny", "rm")]
    app = guarded_chat_app(QueuedModel(model), ServerSettings(keys_file=str(file)))
    with running_app(app) as url, httpx.Client(base_url=url, timeout=240) as client:
        for key, status in zip(keys, (200, 403), strict=True):
            headers = {"Authorization": f"Bearer {key}"}
            replies = [client.post("/v1/chat/completions", json=ASKED, headers=headers)]
            replies += [client.get("/v1/models", headers=headers)]
            assert [reply.status_code for reply in replies] == [status, status]
            assert status == 200 or not any("tiny" in reply.text for reply in replies)


def test_a_seed_repeats_a_sample_and_another_seed_does_not(client: httpx.Client) -> None:
    def sample(seed: int) -> str:
        body = client.post("/v1/chat/completions", json=ASKED | {"temperature": 1.0, "seed": seed, "max_tokens": 24})
        return str(body.json()["choices"][0]["message"]["content"])

    assert sample(1) == sample(1)
    assert sample(1) != sample(2)


def test_a_stop_string_ends_the_text(model: ChatModel) -> None:
    messages = [Message("user", "Go on.")]
    for seed in range(20):  # random weights write random bytes: take a sample with two readable ones together
        whole = model.complete(messages, max_tokens=32, seed=seed)
        if found := re.search(r"[!-~]{2}", whole.text[3:]):
            break
    assert found is not None
    word = found[0]
    cut = model.complete(messages, max_tokens=32, seed=seed, stop=[word])
    assert cut.finish == "stop"
    assert word not in cut.text
    assert whole.text.startswith(cut.text)


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"model": "gpt"}, 404, "model_not_found"),
        ({"stream": True}, 400, "unsupported_parameter"),
        ({"n": 2}, 400, "unsupported_parameter"),
        ({"tools": [{}]}, 400, "unsupported_parameter"),
        ({"response_format": {"type": "json_schema"}}, 400, "unsupported_parameter"),
        ({"max_tokens": 5000}, 400, "context_length_exceeded"),
        ({"messages": []}, 400, "bad_input"),
        ({"messages": [{"role": "oracle", "content": "x"}]}, 400, "bad_input"),
        ({"temperature": -1}, 400, "bad_input"),
    ],
)
def test_what_it_cannot_do_is_refused_in_openais_shape(
    client: httpx.Client, change: dict[str, object], status: int, code: str
) -> None:
    reply = client.post("/v1/chat/completions", json=ASKED | change)
    assert (reply.status_code, reply.json()["error"]["code"]) == (status, code)
    assert reply.json()["error"]["message"]


def test_keys_paths_and_models(client: httpx.Client) -> None:
    assert client.get("/v1/models").json()["data"][0]["id"] == "tiny"
    assert client.get("/health", headers={"Authorization": ""}).status_code == 401
    assert client.get("/health").status_code == 200
    assert client.get("/docs", headers={"Authorization": ""}).json()["error"]["code"] == "invalid_api_key"
    for wrong in ("", "Bearer nope", f"Basic {KEY}"):
        assert client.post("/v1/chat/completions", json=ASKED, headers={"Authorization": wrong}).status_code == 401
    assert client.get("/v1/nothing").status_code == 404


def test_past_its_queue_it_says_when_to_come_back(model: ChatModel, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, refused, complete = threading.Event(), threading.Event(), model.complete

    def held(*messages: Any, **options: Any) -> Any:
        begun.set()
        assert refused.wait(240)
        return complete(*messages, **options)

    monkeypatch.setattr(model, "complete", held)
    with running_app(create_chat_app(QueuedModel(model, max_waiting=1))) as url, ThreadPoolExecutor(1) as pool:

        def post() -> httpx.Response:
            return httpx.post(f"{url}/v1/chat/completions", json=ASKED, timeout=240)

        first = pool.submit(post)
        assert begun.wait(240)
        late = post()
        refused.set()
        assert first.result().status_code == 200
    assert (late.status_code, late.headers.get("retry-after")) == (429, "1")


def test_a_reward_model_is_no_chat_model(tiny_reward_model: object) -> None:
    with pytest.raises(BadInputError, match="reward model"):
        ChatModel.load(str(tiny_reward_model), device="cpu")


def test_a_conversation_that_does_not_fit_is_not_cut_in_silence(model: ChatModel) -> None:
    with pytest.raises(TooLongError, match="context length"):
        model.complete([Message("user", "x" * 5000)], max_tokens=1)


def some_questions(count: int) -> list[Question]:
    made = []
    for n in range(count):
        pair, _ = Comparison.of((Message("user", f"Question {n}?"),), f"yes {n}", f"no {n}")
        made.append(Question(pair.id, pair.prompt, pair.response_a, pair.response_b))
    return made


def test_the_judge_asks_a_real_server_which_takes_no_schema(workspace: Workspace, model: ChatModel) -> None:
    """A model of random weights never answers: every reply is read, counted as unreadable, and none becomes a vote."""
    with running_app(create_chat_app(QueuedModel(model))) as url:
        endpoint = EndpointConfig(f"{url}/v1", "tiny", max_tokens=8, concurrency=2)
        judge = LlmJudge(LlmJudgeConfig(endpoint), workspace)
        report = ask(workspace, judge, some_questions(3), None)
    assert report.answered == 0
    assert sum(report.failures.values()) == 3
    assert set(report.failures) <= {"bad_answer", "truncated"}
    assert report.tokens_out > 0
    with workspace.store.unit() as db:
        outcomes = dict(db.execute("SELECT outcome, count(*) FROM model_calls GROUP BY ALL").fetchall())
        assert db.execute("SELECT count(*) FROM judgments").fetchone() == (0,)
    assert 1 <= outcomes.pop("no_schema") <= 2
    assert sum(outcomes.values()) == 6  # each was asked, and asked again with what was wrong


def test_a_local_judge_brings_its_server_and_its_version(workspace: Workspace) -> None:
    with LocalJudge("tiny", workspace, device="cpu", max_tokens=4) as judge:
        before = annotator_of(judge).id
        report = ask(workspace, judge, some_questions(1), None)
        assert annotator_of(judge).id == before  # the address is not part of who it is
        assert report.asked == 1
        assert report.tokens_in > 0
        assert judge.config["version"] == judge.version
    with workspace.store.unit() as db:
        assert db.execute("SELECT count(*) FROM model_calls WHERE outcome = 'no_schema'").fetchone() == (0,)
