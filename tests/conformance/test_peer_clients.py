"""Other projects' own client code against the server: OpenRLHF, verl, LLaMA-Factory, SGLang, NeMo-Gym, OpenAI,
Cohere.

Each runs in the environment that `make peers-env` builds for it, as a program of tests/support/peers, whose docstring
names what of it is a stand-in; without one its test skips. `ASSAY_PEERS_ENV` names another folder of them. slime ships
no client that can be installed: `SlimeDouble` is a test double, written from the wire format it publishes. vLLM's and
SGLang's example requests are those of their documentation. What all of them must
get are the engine's own rewards. TRL is in `test_trl_training`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import openai
import pytest
from peer_programs import said_by

from assay.domain import Message
from assay.score import Score
from assay_serving.engines.transformers import TransformersScorer
from assay_serving.process import RunningServer
from assay_serving.scorer import ScoreItem

PROMPT = (Message("user", "Name a metal."),)
TEXT = "<|im_start|>user\nName a metal.<|im_end|>\n<|im_start|>assistant\nGold.<|im_end|>\n"


@pytest.fixture(scope="module")
def gold(scorer: TransformersScorer) -> Any:
    """The engine's own reward of "Gold."."""
    return near(scorer, "Gold.")


def near(scorer: TransformersScorer, response: str) -> Any:
    [score] = scorer.score([ScoreItem(PROMPT, response)])
    assert isinstance(score, Score)
    return pytest.approx(score.reward, abs=1e-5)


def result_of(peer: str, server: RunningServer, model: Path) -> Any:
    return said_by(peer, f"{peer.replace('-', '_')}_client.py", server.url, model, TEXT)


def test_openrlhfs_executor(server: RunningServer, tiny_reward_model: Path, gold: Any) -> None:
    assert result_of("openrlhf", server, tiny_reward_model) == [[gold], [gold]]


@pytest.mark.slow
def test_verls_reward_worker_and_managers(server: RunningServer, tiny_reward_model: Path, gold: Any) -> None:
    """The router's wire formats, and `compute_score` and `compute_score_sync` by the managers that take them."""
    scored = result_of("verl", server, tiny_reward_model)
    assert set(scored) == {
        "vllm",
        "sglang",
        "naive compute_score",
        "naive compute_score_sync",
        "remote compute_score_sync",
    }
    for way, result in scored.items():
        assert result["reward_score"] == gold, way


def test_llama_factorys_rewards_from_a_server(server: RunningServer, tiny_reward_model: Path, gold: Any) -> None:
    """Its model name is always "model"."""
    assert result_of("llamafactory", server, tiny_reward_model) == [gold, gold]


def test_coheres_clients(server: RunningServer, scorer: TransformersScorer, tiny_reward_model: Path) -> None:
    expected = {"0": near(scorer, "Gold."), "1": near(scorer, "Glass.")}
    assert result_of("cohere", server, tiny_reward_model) == [expected, expected]


def test_sglangs_runtime_endpoint(server: RunningServer, tiny_reward_model: Path) -> None:
    assert result_of("sglang", server, tiny_reward_model) == ["rm", False]


#: Of NeMo-Gym's aggregate metrics, what is left out here (docs/serving/dialects.md).
LEFT_OUT = re.compile(
    "across_repeats|/(ci_|sem/|p25/|p75/)|/sample/|expected_num_rollouts|missing_num_rollouts|completion_pct|perf_summary"
)


@pytest.mark.slow
def test_nemo_gyms_agent_and_environment_server(
    server: RunningServer, scorer: TransformersScorer, tiny_reward_model: Path, gold: Any
) -> None:
    """Rollouts with a session, the comparison of two responses, and the metrics that its own servers would reply."""
    result = result_of("nemo-gym", server, tiny_reward_model)
    assert result["agent"] == [gold] * 4
    assert result["plain"] == result["turn"] == gold
    assert result["compare"] == [gold, near(scorer, "Glass.")]
    assert result["not stateless"] == []
    for ours, its_own in (("aggregated", "its own"), ("aggregated by the agent", "its own of the agent")):
        expected = {path: value for path, value in leaves(result[its_own]) if not LEFT_OUT.search(path)}
        actual = {path: value for path, value in leaves(result[ours]) if not LEFT_OUT.search(path)}
        assert len(expected) > 100
        assert actual.keys() == expected.keys()
        for path, value in expected.items():
            assert actual[path] == (value if isinstance(value, str) else pytest.approx(value)), (ours, path)


def leaves(reply: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of a JSON reply with its path."""
    if isinstance(reply, dict | list):
        for name, value in reply.items() if isinstance(reply, dict) else enumerate(reply):
            yield from leaves(value, f"{path}/{name}")
    else:
        yield path, reply


def test_openais_client(server: RunningServer, gold: Any) -> None:
    with openai.OpenAI(base_url=server.url + "/v1", api_key="EMPTY", max_retries=0) as client:
        assert [model.id for model in client.models.list()] == ["rm"]
        [entry] = client.embeddings.create(model="text-embedding-3-small", input=[TEXT]).data
        assert list(entry.embedding) == [gold]


class SlimeDouble:
    """slime's `remote_rm`: one sample a request, the reply is the reward. A test double: slime has no package."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def reward(self, prompt: str, response: str, label: str | None) -> Any:
        payload = {"prompt": prompt, "response": response, "label": label}
        async with aiohttp.ClientSession() as session, session.post(self.url, json=payload) as reply:
            reply.raise_for_status()
            return await reply.json()


def test_slimes_published_wire_format(server: RunningServer, gold: Any) -> None:
    for response in ("Gold.", "Gold.<|im_end|>"):
        assert asyncio.run(SlimeDouble(server.url + "/slime").reward("Name a metal.", response, "Gold.")) == gold
    detail = asyncio.run(SlimeDouble(server.url + "/slime?detail=true").reward("Name a metal.", "Gold.", None))
    assert detail["reward"] == gold


#: The bodies of vLLM's examples of pooling models (docs, "Pooling Models" and "OpenAI-Compatible Server").
VLLM: list[tuple[str, dict[str, Any], list[str]]] = [
    (
        "/classify",
        {"model": "jason9693/Qwen2.5-1.5B-apeach", "input": ["Hello, my name is", "The future is"]},
        ["data"],
    ),
    ("/pooling", {"model": "internlm/internlm2-1_8b-reward", "input": "vLLM is great!"}, ["data"]),
    (
        "/v1/score",
        {
            "model": "BAAI/bge-reranker-v2-m3",
            "encoding_format": "float",
            "text_1": "What is the capital of France?",
            "text_2": ["The capital of Brazil is Brasilia.", "The capital of France is Paris."],
        },
        ["data", "usage"],
    ),
    (
        "/score",
        {
            "model": "BAAI/bge-reranker-v2-m3",
            "text_1": ["What is the capital of Brazil?", "What is the capital of France?"],
            "text_2": ["The capital of Brazil is Brasilia.", "The capital of France is Paris."],
        },
        ["data", "usage"],
    ),
    (
        "/v1/rerank",
        {
            "model": "BAAI/bge-reranker-base",
            "query": "What is the capital of France?",
            "documents": ["The capital of Brazil is Brasilia.", "The capital of France is Paris."],
        },
        ["results"],
    ),
    ("/tokenize", {"model": "meta-llama/Llama-3", "prompt": "Hello, my name is"}, ["count", "max_model_len", "tokens"]),
    ("/detokenize", {"model": "meta-llama/Llama-3", "tokens": [40, 41, 42]}, ["prompt"]),
]
#: SGLang's documentation of reward models ("Query with SGLang", "Classify (reward model)", "Tokenize").
SGLANG: list[tuple[str, dict[str, Any]]] = [
    ("/classify", {"model": "Skywork/Skywork-Reward-Llama-3.1-8B-v0.2", "text": [TEXT, TEXT]}),
    ("/v1/embeddings", {"model": "Skywork/Skywork-Reward-Llama-3.1-8B-v0.2", "input": TEXT}),
    ("/tokenize", {"model": "qwen/qwen2.5-0.5b-instruct", "prompt": "SGLang provides efficient tokenization."}),
    ("/detokenize", {"model": "qwen/qwen2.5-0.5b-instruct", "tokens": [40, 41], "skip_special_tokens": True}),
]


def test_vllms_example_requests(server: RunningServer) -> None:
    with httpx.Client(base_url=server.url, timeout=240) as client:
        for path, body, fields in VLLM:
            reply = client.post(path, json=body)
            assert reply.status_code == 200, (path, reply.text)
            assert set(fields) <= set(reply.json()), path
        for path in ("/health", "/ping", "/version", "/v1/models"):
            assert client.get(path).status_code == 200, path


def test_sglangs_example_requests(server: RunningServer, gold: Any) -> None:
    with httpx.Client(base_url=server.url, timeout=240) as client:
        replies = []
        for path, body in SGLANG:
            reply = client.post(path, json=body)
            assert reply.status_code == 200, (path, reply.text)
            replies.append(reply.json())
        assert [entry["embedding"] for entry in replies[0]] == [[gold], [gold]]
        assert replies[1]["data"][0]["embedding"] == [gold]
        assert isinstance(replies[3]["text"], str)
        assert client.get("/get_model_info").json()["model_path"] == "rm"
