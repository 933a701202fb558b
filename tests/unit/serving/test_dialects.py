"""Every wire format by the bytes that its real client sent, and by what that client reads of the reply.

Recorded from OpenRLHF 0.11.2 (`SingleTurnAgentExecutor`), verl 0.9.1 (`RewardLoopWorker`), vLLM 0.32, SGLang 0.5.23;
slime, LLaMA-Factory and NeMo-Gym as their sources write them. `tests/conformance` runs the clients.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from assay.domain import Message
from assay.score import Score
from assay_serving.engines.transformers import TransformersScorer
from assay_serving.model_config import ModelConfig
from assay_serving.process import RunningServer, running_server
from assay_serving.scorer import ScoreItem
from assay_serving.server.core.settings import ServerSettings

PROMPT = (Message("user", "Name a metal."),)
TEXT = "<|im_start|>user\nName a metal.<|im_end|>\n<|im_start|>assistant\nGold.<|im_end|>\n"
OTHER = TEXT.replace("Gold", "Glass")
JSON = {"Content-Type": "application/json"}

OPENRLHF = (
    b'{"query": ["<|im_start|>user\\nName a metal.<|im_end|>\\n<|im_start|>assistant\\nGold.<|im_end|>"], '
    b'"prompts": ["<|im_start|>user\\nName a metal.<|im_end|>\\n<|im_start|>assistant\\n"], "labels": [null]}'
)
# verl takes the tokenizer's BOS off, which of this template is the first turn's opening.
VERL_VLLM = (
    b'{"model": "rm", "input": "user\\nName a metal.<|im_end|>\\n<|im_start|>assistant\\nGold.<|im_end|>\\n", '
    b'"use_activation": false}'
)
VERL_SGLANG = b'{"model": "rm", "input": "user\\nName a metal.<|im_end|>\\n<|im_start|>assistant\\nGold.<|im_end|>\\n"}'
SLIME = b'{"prompt": "Name a metal.", "response": "Gold.<|im_end|>", "label": "gold"}'
SAID = {
    "id": "resp_1",
    "object": "response",
    "output": [
        {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "hm"}]},
        {
            "type": "message",
            "id": "m",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "Gold.", "annotations": []}],
        },
    ],
}


@pytest.fixture(scope="module")
def scorer(tiny_reward_model: Path) -> TransformersScorer:
    return TransformersScorer.load(ModelConfig(str(tiny_reward_model), device="cpu", served_as="rm"))


@pytest.fixture(scope="module")
def rewards(scorer: TransformersScorer) -> dict[str, float]:
    """The model's own rewards of the two responses that all these requests are about."""
    found = scorer.score([ScoreItem(PROMPT, "Gold."), ScoreItem(PROMPT, "Glass.")])
    gold, glass = (result.reward for result in found if isinstance(result, Score))
    return {"gold": gold, "glass": glass}


@pytest.fixture(scope="module")
def server(scorer: TransformersScorer) -> Iterator[RunningServer]:
    with running_server({"rm": scorer}, settings=ServerSettings(max_items=8)) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: RunningServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=240) as made:
        yield made


def sent(client: httpx.Client, path: str, body: bytes | dict[str, Any]) -> Any:
    """The reply's JSON, as the peers' clients get at it."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    reply = client.post(path, content=content, headers=JSON)
    reply.raise_for_status()
    return reply.json()


def near(value: float) -> Any:
    return pytest.approx(value, abs=1e-5)


def test_openrlhf(client: httpx.Client, rewards: dict[str, float]) -> None:
    reply = sent(client, "/get_reward", OPENRLHF)
    assert reply["rewards"] == reply["scores"] == [near(rewards["gold"])]
    assert all(isinstance(values, list) and len(values) == 1 for values in reply["extra_logs"].values())


def test_openrlhf_sends_empty_lists_to_all_but_its_first_url(client: httpx.Client) -> None:
    reply = sent(client, "/get_reward", b'{"query": [], "prompts": [], "labels": []}')
    assert reply == {"rewards": [], "scores": [], "extra_logs": {}}


def test_a_policy_of_another_family_is_carried_over(client: httpx.Client, rewards: dict[str, float]) -> None:
    query = (
        "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nName a metal.<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\nGold.<|eot_id|>"
    )
    assert sent(client, "/get_reward", {"query": [query]})["rewards"] == [near(rewards["gold"])]
    reply = client.post("/get_reward", json={"query": ["<|start|>user<|message|>Name a metal.<|end|>"]})
    assert reply.status_code == 422
    assert "Harmony" in reply.json()["detail"]
    assert "ChatML" in reply.json()["detail"]


def test_verl_behind_its_router(client: httpx.Client, rewards: dict[str, float]) -> None:
    assert sent(client, "/classify", VERL_VLLM)["data"][-1]["probs"][-1] == near(rewards["gold"])
    assert sent(client, "/v1/embeddings", VERL_SGLANG)["data"][-1]["embedding"][-1] == near(rewards["gold"])


def test_vllm_classify(client: httpx.Client, scorer: TransformersScorer, rewards: dict[str, float]) -> None:
    reply = sent(client, "/classify", {"model": "rm", "input": [TEXT, OTHER], "use_activation": True})
    tokens = len(scorer.renderer.encode(PROMPT, "Gold.")) + len(scorer.renderer.encode(PROMPT, "Glass."))
    assert reply.pop("id").startswith("classify-")
    assert isinstance(reply.pop("created"), int)
    assert reply == {
        "object": "list",
        "model": "rm",
        "data": [
            {"index": 0, "label": "LABEL_0", "probs": [near(rewards["gold"])], "num_classes": 1},
            {"index": 1, "label": "LABEL_0", "probs": [near(rewards["glass"])], "num_classes": 1},
        ],
        "usage": {
            "prompt_tokens": tokens,
            "total_tokens": tokens,
            "completion_tokens": 0,
            "prompt_tokens_details": None,
            "completion_tokens_details": None,
        },
    }
    ids = list(scorer.renderer.encode(PROMPT, "Gold.").ids)
    parts = [{"type": "text", "text": "Gold."}]
    messages = [{"role": "user", "content": "Name a metal."}, {"role": "assistant", "content": parts}]
    for body in ({"input": TEXT}, {"input": ids}, {"input": [ids]}, {"messages": messages}):
        [entry] = sent(client, "/classify", body)["data"]
        assert entry["probs"] == [near(rewards["gold"])]


def test_sglang_classify_answers_a_list_for_a_list(
    client: httpx.Client, scorer: TransformersScorer, rewards: dict[str, float]
) -> None:
    several = sent(client, "/classify", {"model": "rm", "text": [TEXT, OTHER]})
    assert [entry["embedding"] for entry in several] == [[near(rewards["gold"])], [near(rewards["glass"])]]
    assert several[0]["meta_info"]["weight_version"] == scorer.info.version
    one = sent(client, "/classify", {"text": TEXT})
    assert one["embedding"][0] == near(rewards["gold"])
    assert one["meta_info"]["prompt_tokens"] == len(scorer.renderer.encode(PROMPT, "Gold."))
    ids = list(scorer.renderer.encode(PROMPT, "Gold.").ids)
    assert sent(client, "/classify", {"input_ids": ids})["embedding"] == [near(rewards["gold"])]
    assert sent(client, "/classify", {"input_ids": [ids]})[0]["embedding"] == [near(rewards["gold"])]
    assert sent(client, "/classify", {"text": []}) == []


def test_embeddings_by_openais_client(server: RunningServer, rewards: dict[str, float]) -> None:
    """It asks for base64 unless told otherwise."""
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0) as client:
        for more in ({}, {"encoding_format": "float"}):
            made = client.embeddings.create(model="rm", input=[TEXT, OTHER], **more)  # type: ignore[arg-type]
            assert [list(entry.embedding) for entry in made.data] == [[near(rewards["gold"])], [near(rewards["glass"])]]
        with pytest.raises(openai.BadRequestError, match="empty"):
            client.embeddings.create(model="rm", input=[])


def test_vllm_pooling_score_and_rerank(client: httpx.Client, rewards: dict[str, float]) -> None:
    [entry] = sent(client, "/pooling", {"input": TEXT, "task": "classify"})["data"]
    assert entry == {"index": 0, "object": "pooling", "data": [near(rewards["gold"])]}
    [entry] = sent(client, "/pooling", {"input": TEXT, "encoding_format": "base64"})["data"]
    assert struct.unpack("<f", base64.b64decode(entry["data"])) == (near(rewards["gold"]),)
    expected = [near(rewards["gold"]), near(rewards["glass"])]
    for body in (
        {"queries": "Name a metal.", "documents": ["Gold.", "Glass."]},
        {"queries": ["Name a metal."] * 2, "items": ["Gold.", "Glass."]},
        {"text_1": "Name a metal.", "text_2": ["Gold.", "Glass."]},
        {"data_1": ["Name a metal."], "data_2": ["Gold.", "Glass."]},
    ):
        for path in ("/score", "/v1/score"):
            assert [entry["score"] for entry in sent(client, path, body)["data"]] == expected
    best = max(rewards, key=lambda name: rewards[name])
    for path in ("/rerank", "/v1/rerank", "/v2/rerank"):
        ranked = sent(client, path, {"query": "Name a metal.", "documents": ["Gold.", "Glass."]})["results"]
        assert [entry["relevance_score"] for entry in ranked] == sorted(expected, key=lambda each: -each.expected)
        [first] = sent(client, path, {"query": "Name a metal.", "documents": ["Gold.", "Glass."], "top_n": 1})[
            "results"
        ]
        assert first["document"]["text"] == f"{best.capitalize()}."
        assert first["index"] == ["gold", "glass"].index(best)


def test_slime(client: httpx.Client, rewards: dict[str, float]) -> None:
    assert sent(client, "/slime", SLIME) == near(rewards["gold"])
    rendered = {"prompt": TEXT[: TEXT.index("Gold.")], "response": "Gold.<|im_end|>", "label": None}
    assert sent(client, "/slime", rendered) == near(rewards["gold"])
    messages = {"prompt": [{"role": "user", "content": "Name a metal."}], "response": "Gold.", "label": {"answer": 1}}
    assert sent(client, "/slime?detail=true&model=rm", messages)["reward"] == near(rewards["gold"])


def test_llama_factory(client: httpx.Client, rewards: dict[str, float]) -> None:
    reply = sent(client, "/v1/score/evaluation", {"model": "rm", "messages": [TEXT, OTHER], "max_length": None})
    assert (reply["object"], reply["model"]) == ("score.evaluation", "rm")
    assert reply["id"].startswith("scoreval-")
    assert reply["scores"] == [near(rewards["gold"]), near(rewards["glass"])]


def test_nemo_gym(client: httpx.Client, rewards: dict[str, float], scorer: TransformersScorer) -> None:
    asked = {"input": [{"role": "user", "content": "Name a metal.", "type": "message"}], "temperature": 0.5}
    body = {"responses_create_params": asked, "response": SAID, "row": {"id": 7, "tags": [None]}}
    reply = sent(client, "/verify", body)
    assert {name: reply[name] for name in body} == body
    assert reply["reward"] == near(rewards["gold"])
    assert reply["reward_version"] == scorer.info.version
    glass = {"output": [{"type": "message", "content": [{"type": "output_text", "text": "Glass."}]}]}
    body = {"conversation_history": [m.to_dict() for m in PROMPT], "response_objs": [SAID, glass, SAID]}
    reply = sent(client, "/compare", body)
    assert reply["rewards"] == [near(rewards["gold"]), near(rewards["glass"]), near(rewards["gold"])]
    pairs = reply["comparison_results"]
    assert [(pair["response_i"], pair["response_j"]) for pair in pairs] == [(0, 1), (1, 2), (2, 0)]
    first_is_better = rewards["gold"] > rewards["glass"]
    assert [pair["ranking"] <= 3 for pair in pairs[:2]] == [first_is_better, not first_is_better]
    assert pairs[2]["ranking"] == 3.5
    assert all(isinstance(value, float) for value in reply["metrics"].values())
    assert sent(client, "/compare", body | {"response_objs": []})["rewards"] == []


LONG = TEXT.replace("Gold", "x" * 3000)
REFUSED = [
    ("/classify", {"input": [TEXT, LONG]}, 400, "item 1: too_long"),
    ("/classify", {"input": [TEXT, [1, 2]]}, 400, "input"),
    ("/classify", {"input": [1, 10**6]}, 400, "vocabulary"),
    ("/classify", {"input": []}, 400, "empty"),
    ("/v1/rerank", {"query": "a", "documents": []}, 400, "empty"),
    ("/classify", {"input": ""}, 400, "no tokens"),
    ("/classify", {}, 400, "input: is missing"),
    ("/classify", {"messages": [{"role": "user", "content": "Hi"}]}, 400, "assistant"),
    ("/classify", {"messages": [], "chat_template": "x"}, 400, "chat_template"),
    ("/classify", {"text": TEXT, "input_ids": [1]}, 400, "either"),
    ("/classify", {"text": TEXT, "image_data": "x"}, 400, "image_data"),
    ("/classify", {"input": [TEXT] * 9}, 413, "9 items"),
    ("/pooling", {"input": TEXT, "task": "token_classify"}, 400, "task"),
    ("/score", {"queries": ["a", "b", "c"], "documents": ["d", "e"]}, 400, "do not pair"),
    ("/score", {"queries": "a"}, 400, "give queries and documents"),
    ("/v1/score", {"queries": "a"}, 400, "give queries and documents"),
    ("/v1/score", {"text_1": "a", "text_2": 3}, 400, "text_2"),
    ("/tokenize", {}, 400, "either"),
    ("/tokenize", {"prompt": "a", "messages": []}, 400, "either"),
    ("/tokenize", {"messages": []}, 400, "at least one message"),
    ("/tokenize", {"messages": [{"role": "user", "content": "a"}], "add_generation_prompt": False}, 400, "assistant"),
    ("/tokenize", {"prompt": "a", "chat_template": "x"}, 400, "chat_template"),
    ("/detokenize", {"tokens": [1, 10**6]}, 400, "vocabulary"),
    ("/detokenize", {"tokens": [-1]}, 400, "vocabulary"),
    ("/detokenize", {"tokens": "a"}, 400, "tokens"),
    ("/rerank", {"query": "a", "documents": ["b", "x" * 3000]}, 400, "item 1: too_long"),
]


@pytest.mark.parametrize(("path", "body", "status", "said"), REFUSED)
def test_vllms_errors(client: httpx.Client, path: str, body: dict[str, Any], status: int, said: str) -> None:
    reply = client.post(path, json=body)
    assert reply.status_code == status, reply.text
    error = reply.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["code"] == status
    assert said in error["message"]


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/get_reward", {"query": [TEXT, LONG]}, 422),
        ("/get_reward", {"query": [TEXT], "labels": [1, 2]}, 422),
        ("/slime", {"prompt": "Hi", "response": "x" * 3000}, 422),
        ("/slime", {"prompt": [], "response": "x"}, 422),
        ("/v1/score/evaluation", {"model": "rm", "messages": []}, 422),
        ("/v1/score/evaluation", {"model": "rm", "messages": [LONG]}, 422),
        ("/verify", {"responses_create_params": {"input": []}, "response": SAID}, 422),
        (
            "/verify",
            {"responses_create_params": {"input": "Hi"}, "response": {"output": [{"type": "function_call"}]}},
            422,
        ),
        ("/compare", {"conversation_history": [], "response_objs": []}, 422),
        ("/compare", {"conversation_history": [{"role": "boss", "content": "x"}], "response_objs": [SAID]}, 422),
    ],
)
def test_other_dialects_answer_problems_and_never_a_number(
    client: httpx.Client, path: str, body: dict[str, Any], status: int
) -> None:
    reply = client.post(path, json=body)
    assert reply.status_code == status, reply.text
    assert reply.headers["content-type"] == "application/problem+json"
    assert isinstance(reply.json()["detail"], str)


def test_sglangs_errors_have_no_envelope(client: httpx.Client) -> None:
    for body in ({"input": ""}, {"input": TEXT, "dimensions": 3}, {"input": LONG}):
        reply = client.post("/v1/embeddings", json=body)
        assert reply.status_code == 400
        assert reply.json()["object"] == "error"
        assert reply.json()["code"] == 400


def test_a_text_is_cut_where_the_request_says_so(client: httpx.Client, scorer: TransformersScorer) -> None:
    limit = scorer.info.max_length
    reply = client.post("/classify", json={"input": LONG, "truncate_prompt_tokens": -1})
    assert reply.json()["usage"]["prompt_tokens"] == limit
    assert reply.headers["x-assay-truncated"] == "1"
    left = sent(client, "/classify", {"input": LONG, "truncate_prompt_tokens": 9})
    right = sent(client, "/classify", {"input": LONG, "truncate_prompt_tokens": 9, "truncation_side": "right"})
    assert left["data"][0]["probs"] != right["data"][0]["probs"]
    assert sent(client, "/v1/score/evaluation", {"model": "rm", "messages": [LONG], "max_length": 9})["scores"] == [
        near(right["data"][0]["probs"][0])
    ]
    turns = [
        {"role": "user", "content": "x" * limit},
        {"role": "assistant", "content": "y"},
        *[m.to_dict() for m in PROMPT],
        {"role": "assistant", "content": "Gold."},
    ]
    assert client.post("/classify", json={"messages": turns}).status_code == 400
    assert client.post("/classify", json={"messages": turns, "truncate_prompt_tokens": -1}).status_code == 200


def test_the_header_says_who_answered(client: httpx.Client, scorer: TransformersScorer) -> None:
    reply = client.post("/slime", content=SLIME, headers=JSON)
    assert reply.headers["x-assay-model"] == "rm"
    assert reply.headers["x-assay-version"] == scorer.info.version
    assert reply.headers["x-assay-truncated"] == "0"


def test_a_model_answers_to_its_path_and_its_aliases(tiny_reward_model: Path, scorer: TransformersScorer) -> None:
    from fastapi.testclient import TestClient

    from assay_serving.server.app import app_of
    from assay_serving.server.in_process import InProcessBackend

    settings = ServerSettings()
    plan = ModelConfig(str(tiny_reward_model), "one", aliases=("first",))
    host = InProcessBackend({"one": scorer, "two": scorer}, settings, plans={"one": plan})
    with TestClient(app_of(host, settings=settings)) as client:
        for name, status in (("one", 200), ("first", 200), (str(tiny_reward_model), 200), ("third", 404), (None, 400)):
            body = {"input": TEXT} | ({"model": name} if name else {})
            reply = client.post("/classify", json=body)
            assert reply.status_code == status, (name, reply.text)
            assert status != 200 or reply.json()["model"] == "one"


def test_every_dialect_is_described_with_examples(server: RunningServer) -> None:
    described = server.app.openapi()
    dialects = {
        path: operation["post"]
        for path, operation in described["paths"].items()
        if "dialects" in operation.get("post", {}).get("tags", ()) and path != "/ping"  # without a body
    }
    assert {
        "/classify",
        "/pooling",
        "/score",
        "/rerank",
        "/v1/rerank",
        "/v2/rerank",
        "/v1/embeddings",
        "/get_reward",
        "/slime",
        "/v1/score/evaluation",
        "/verify",
        "/compare",
        "/seed_session",
        "/close_session",
        "/aggregate_metrics",
        "/tokenize",
        "/detokenize",
        "/v1/chat/completions",
    } == set(dialects)
    for path, operation in dialects.items():
        [content] = operation["requestBody"]["content"].values()
        assert content.get("examples"), path
        assert operation["responses"]["200"]["content"]["application/json"]["schema"], path
        assert {"401", "413", "503"} <= set(operation["responses"]), path
        assert operation["description"], path


def test_where_one_model_is_served_any_name_is_its(client: httpx.Client, rewards: dict[str, float]) -> None:
    """LLaMA-Factory's client always sends "model", verl's a path of another machine."""
    gold = near(rewards["gold"])
    assert sent(client, "/v1/score/evaluation", {"model": "model", "messages": [TEXT]})["scores"] == [gold]
    reply = client.post("/classify", json={"model": "/elsewhere/rm", "input": TEXT})
    assert reply.json()["data"][0]["probs"] == [gold]
    assert (reply.json()["model"], reply.headers["x-assay-model"]) == ("rm", "rm")
    assert sent(client, "/get_reward?model=other", {"query": [TEXT]})["rewards"] == [gold]
    assert len(sent(client, "/tokenize", {"model": "other", "prompt": TEXT})["tokens"]) > 5
    native = {"model": "other", "prompt": "Name a metal.", "responses": ["Gold."]}
    assert client.post("/v1/score", json=native).status_code == 404


def test_a_model_that_was_unloaded_is_not_replaced_by_the_one_that_is_left(
    tiny_reward_model: Path, scorer: TransformersScorer
) -> None:
    from fastapi.testclient import TestClient

    from assay_serving.server.app import app_of
    from assay_serving.server.in_process import InProcessBackend

    settings = ServerSettings(open_admin=True)
    plan = ModelConfig(str(tiny_reward_model), "one", aliases=("first",))
    host = InProcessBackend({"one": scorer, "two": scorer}, settings, plans={"one": plan})
    with TestClient(app_of(host, settings=settings)) as client:
        assert client.delete("/v1/admin/models/one").status_code == 200
        for name, status in (("one", 404), ("first", 404), (str(tiny_reward_model), 404), ("two", 200), ("x", 200)):
            reply = client.post("/classify", json={"model": name, "input": TEXT})
            assert reply.status_code == status, (name, reply.text)


def test_tokens_are_those_that_the_model_reads(client: httpx.Client, scorer: TransformersScorer) -> None:
    tokenizer: Any = scorer.renderer.tokenizer
    ids = tokenizer(TEXT).input_ids
    reply = sent(client, "/tokenize", {"prompt": TEXT, "return_token_strs": True})
    assert (reply["tokens"], reply["count"], reply["max_model_len"]) == (ids, len(ids), scorer.info.max_length)
    assert reply["token_strs"] == tokenizer.convert_ids_to_tokens(ids)
    several = sent(client, "/tokenize", {"model": "default", "prompt": [TEXT, "Gold."], "add_special_tokens": False})
    assert several["tokens"] == [tokenizer(text, add_special_tokens=False).input_ids for text in (TEXT, "Gold.")]
    assert several["count"] == [len(row) for row in several["tokens"]]
    turns = [{"role": "user", "content": "Name a metal."}]
    assert sent(client, "/tokenize", {"messages": turns})["tokens"] == list(scorer.renderer.encode(PROMPT).ids)
    turns.append({"role": "assistant", "content": "Gold."})
    read = sent(client, "/tokenize", {"messages": turns, "add_generation_prompt": False})["tokens"]
    assert read == list(scorer.renderer.encode(PROMPT, "Gold.").ids)
    assert sent(client, "/detokenize", {"tokens": read}) == {"prompt": tokenizer.decode(read)} | {
        "text": tokenizer.decode(read)
    }
    plain = sent(client, "/detokenize", {"tokens": [read, ids], "skip_special_tokens": True})["text"]
    assert plain == [tokenizer.decode(row, skip_special_tokens=True) for row in (read, ids)]
    long = sent(client, "/tokenize", {"prompt": "metal " * 2000})
    assert long["count"] > long["max_model_len"]


def test_probes_of_inference_servers(client: httpx.Client, scorer: TransformersScorer) -> None:
    from assay import __version__

    for method, path in (("GET", "/health"), ("GET", "/ping"), ("POST", "/ping")):
        reply = client.request(method, path)
        assert (reply.status_code, reply.content) == (200, b"")
    assert client.get("/version").json() == {"version": __version__}
    for path in ("/get_model_info", "/model_info"):
        info = client.get(path).json()
        assert (info["model_path"], info["is_generation"]) == ("rm", False)
        assert (info["weight_version"], info["context_length"]) == (scorer.info.version, scorer.info.max_length)
    assert client.get("/get_model_info?model=other").status_code == 404


def test_nemo_gym_with_observability_names_the_rollout_in_the_path(client: httpx.Client) -> None:
    body = {"resources_session_id": "s"}
    for path in ("/seed_session", "/ng-rollout/0-1/seed_session"):
        assert client.post(path, json=body).cookies, path  # without one its environment server stops
    rollout = {"responses_create_params": {"input": "Hi"}, "response": SAID}
    assert sent(client, "/ng-rollout/0-1-a2/verify", rollout) == sent(client, "/verify", rollout)
    assert sent(client, "/ng-rollout/0-1/close_session", body) == body


def test_probes_need_a_key_where_there_are_keys(scorer: TransformersScorer) -> None:
    from fastapi.testclient import TestClient

    from assay_serving.server.app import create_app

    gets = ("/health", "/ping", "/version", "/get_model_info", "/model_info", "/reverify_mode")
    posts = (
        "/ping",
        "/tokenize",
        "/detokenize",
        "/seed_session",
        "/ng-rollout/0-1/verify",
        "/close_session",
        "/aggregate_metrics",
        "/v1/score",
    )
    for settings, opened in (
        (ServerSettings(api_keys=("k" * 32,)), ()),
        (ServerSettings(api_keys=("k" * 32,), open_health=True), ("/health", "/ping")),
    ):
        with TestClient(create_app({"rm": scorer}, settings=settings)) as guarded:
            for path in gets:
                assert guarded.get(path).status_code == (200 if path in opened else 401), path
                assert guarded.get(path, headers={"Authorization": "Bearer " + "k" * 32}).status_code == 200, path
            for path in posts:
                assert guarded.post(path, json={"text_1": "a", "text_2": "b"}).status_code == 401, path


def test_nemo_gyms_sessions_and_metrics(client: httpx.Client) -> None:
    assert sent(client, "/seed_session", {"responses_create_params": {"input": "Hi"}}) == {}
    opened = sent(client, "/seed_session", {"resources_session_id": "s", "episode_id": "e", "task_data": {}})
    assert opened == {"resources_session_id": "s", "resources_tools": None, "sandbox_access": None}
    assert sent(client, "/close_session", {"resources_session_id": "s", "episode_id": "e"}) == {
        "resources_session_id": "s"
    }
    rows = [
        {"_ng_task_index": task, "_ng_rollout_index": repeat, "reward": reward, "passed": reward > 1}
        for task, repeat, reward in ((0, 0, 1.0), (0, 1, 2.0), (1, 0, 3.0), (1, 1, 6.0))
    ]
    rows[3]["mask_sample"], rows[0]["mask_sample"] = True, False
    metrics = sent(client, "/aggregate_metrics", {"verify_responses": rows})
    assert metrics["agent_metrics"]["mean/reward"] == 2.0
    assert metrics["agent_metrics"]["std/reward"] == 1.0
    assert metrics["agent_metrics"]["num_repeats"] == 2
    assert metrics["key_metrics"]["coverage/masked_rollouts"] == 1
    assert metrics["key_metrics"]["mean/passed"] == pytest.approx(2 / 3)
    assert not any("mask_sample" in name for name in metrics["agent_metrics"])
    assert [(group["_ng_task_index"], group["mean/reward"]) for group in metrics["group_level_metrics"]] == [
        (0, 1.5),
        (1, 3.0),
    ]
    assert [(row["mean/reward"], row["missing_count"]) for row in metrics["repeat_level_metrics"]] == [
        (2.0, 0),
        (2.0, 1),
    ]
    assert sent(client, "/aggregate_metrics", {"verify_responses": []})["agent_metrics"] == {}
