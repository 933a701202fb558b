"""`assay serve` and conversations with tools: in every form of a body, over a template that shows them and one that
does not."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from assay.conversation.parts import ImagePart, TextPart, ToolCallPart, ToolDefinitionPart, ToolResultPart
from assay.domain import Message, Prompt, Response
from assay.models.chat.renderer import Renderer
from assay.models.loading import load_tokenizer
from assay.models.quiet import quiet_transformers
from assay.models.spec import RewardModelSpec, weights_digest
from assay.score import Score, ScoreFailure
from assay_serving.client import RewardClient
from assay_serving.engines.transformers import TransformersScorer
from assay_serving.model_config import ModelConfig
from assay_serving.scorer import ScoreItem

START_S = 240
#: As Qwen's: tools in the system's turn, calls and results between marks.
WITH_TOOLS = """{%- if tools %}{{- '<|im_start|>system\\n' }}
{%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
{{- '# Tools\\n<tools>' }}{%- for tool in tools %}{{- '\\n' + (tool | tojson) }}{%- endfor %}
{{- '\\n</tools><|im_end|>\\n' }}{%- endif %}
{%- for message in messages %}{%- if message.role == 'tool' %}
{{- '<|im_start|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response><|im_end|>\\n' }}
{%- elif message.role != 'system' or not tools %}{{- '<|im_start|>' + message.role + '\\n' + message.content }}
{%- for call in message.tool_calls or [] %}{{- '\\n<tool_call>\\n{"name": "' + call.function.name + '", ' }}
{{- '"arguments": ' + (call.function.arguments | tojson) + '}\\n</tool_call>' }}{%- endfor %}{{- '<|im_end|>\\n' }}
{%- endif %}{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""

DEFINITION = ToolDefinitionPart("weather", "of a town", '{"type":"object","properties":{"town":{"type":"string"}}}')
PROMPT: Prompt = (Message("system", (TextPart("Be brief."), DEFINITION)), Message("user", "Is it raining in Ulm?"))
CALL = Message("assistant", (ToolCallPart("weather", '{"town":"Ulm"}', "call00001"),))
RESULT = Message("tool", (ToolResultPart("rain", "call00001"),))
ANSWERED: Response = (CALL, RESULT, Message("assistant", "Yes."))

#: The same, as OpenAI's clients write it.
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "of a town",
            "parameters": {"type": "object", "properties": {"town": {"type": "string"}}},
        },
    }
]
ASKED: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "Is it raining in Ulm?"}]},
]
CALLED: list[dict[str, Any]] = [
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "call00001",
                "type": "function",
                "function": {"name": "weather", "arguments": '{"town": "Ulm"}'},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "call00001", "content": "rain"},
]
YES = {"role": "assistant", "content": "Yes."}


@pytest.fixture(scope="module")
def tool_model(tiny_reward_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tools"
    shutil.copytree(tiny_reward_model, folder)
    tokenizer: Any = load_tokenizer(str(folder))
    tokenizer.chat_template = WITH_TOOLS
    with quiet_transformers():
        tokenizer.save_pretrained(folder)
    spec = RewardModelSpec.read(folder)
    assert spec is not None
    template_hash = Renderer(tokenizer, max_length=512).template_hash
    replace(spec, template_hash=template_hash, version=weights_digest(folder)).write(folder)
    return folder


@pytest.fixture(scope="module")
def url(tool_model: Path, tiny_reward_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of `assay serve` with two models: `tools` shows calls of tools, `plain` has no place for them."""
    paths = {"tools": tool_model, "plain": tiny_reward_model}
    models = [{"reference": str(path), "served_as": name, "device": "cpu"} for name, path in paths.items()]
    config = tmp_path_factory.mktemp("server") / "serve.yaml"
    config.write_text(yaml.safe_dump({"models": models, "port": 0}))
    command = [str(Path(sys.executable).parent / "assay"), "serve", "--config", str(config), "--json"]
    environment = {name: value for name, value in os.environ.items() if name != "ASSAY_API_KEY"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            readable, _, _ = select.select([process.stdout], [], [], START_S)
            line = process.stdout.readline() if readable else ""
            assert '"url"' in line, f"the server did not start: {line}"
            yield json.loads(line)["url"]
        finally:
            process.kill()


@pytest.fixture(scope="module")
def reward(tool_model: Path) -> float:
    """Of the whole conversation, by the engine itself."""
    [score] = TransformersScorer.load(ModelConfig(str(tool_model), device="cpu")).score([ScoreItem(PROMPT, ANSWERED)])
    assert isinstance(score, Score)
    return score.reward


@pytest.mark.slow
def test_the_client_sends_typed_turns(url: str, reward: float) -> None:
    with RewardClient(url, model="tools") as client:
        items = [ScoreItem(PROMPT, ANSWERED), ScoreItem(PROMPT, "No."), ScoreItem(PROMPT[1:], "No.")]
        scores = client.score(items)
        pair = client.compare(PROMPT, ANSWERED, "No.")
        ranked = client.rank(PROMPT, ["No.", ANSWERED])
    assert isinstance(scores[0], Score)
    assert scores[0].reward == pytest.approx(reward, abs=1e-5)
    assert all(isinstance(score, Score) for score in scores)
    assert len({score.reward for score in scores if isinstance(score, Score)}) == 3, "tools and calls are read"
    for compared in (pair.a, ranked.results[1]):
        assert isinstance(compared, Score)
        assert compared.reward == pytest.approx(reward, abs=1e-5)


@pytest.mark.parametrize(
    ("path", "body", "found"),
    [
        (
            "/v1/score",
            {"model": "tools", "prompt": ASKED, "responses": [[*CALLED, YES]], "tools": TOOLS},
            ("results", 0, "reward"),
        ),
        (
            "/v1/score",
            {"model": "tools", "items": [{"messages": [*ASKED, *CALLED, YES], "tools": TOOLS}]},
            ("results", 0, "reward"),
        ),
        (
            "/v1/score",
            {
                "model": "tools",
                "groups": [
                    {
                        "prompt": [message.to_dict() for message in PROMPT],
                        "responses": [[message.to_dict() for message in ANSWERED if not isinstance(message, str)]],
                    }
                ],
            },
            ("results", 0, "reward"),
        ),
        (
            "/v1/rank",
            {"model": "tools", "prompt": ASKED, "responses": [[*CALLED, YES]], "tools": TOOLS},
            ("results", 0, "reward"),
        ),
        (
            "/classify",
            {"model": "tools", "messages": [*ASKED, *CALLED, YES], "tools": TOOLS},
            ("data", 0, "probs", 0),
        ),
        (
            "/verify?model=tools",
            {
                "responses_create_params": {"input": ASKED, "tools": [{"type": "function", **TOOLS[0]["function"]}]},
                "response": {
                    "output": [
                        {"type": "reasoning", "summary": []},
                        {
                            "type": "function_call",
                            "call_id": "call00001",
                            "name": "weather",
                            "arguments": '{"town": "Ulm"}',
                        },
                        {"type": "function_call_output", "call_id": "call00001", "output": "rain"},
                        {
                            "type": "message",
                            "role": "assistant",
                            "content": [{"type": "output_text", "text": "Yes.", "annotations": []}],
                        },
                    ]
                },
            },
            ("reward",),
        ),
    ],
)
def test_every_form_gets_the_same_reward(
    url: str, reward: float, path: str, body: dict[str, Any], found: tuple[str | int, ...]
) -> None:
    reply = httpx.post(url + path, json=body, timeout=240)
    assert reply.status_code == 200, reply.text
    value = reply.json()
    for key in found:
        value = value[key]
    assert value == pytest.approx(reward, abs=1e-5), reply.text


def test_tokens_are_those_of_the_conversation(url: str, tool_model: Path) -> None:
    body = {"model": "tools", "messages": [*ASKED, *CALLED, YES], "tools": TOOLS, "add_generation_prompt": False}
    reply = httpx.post(url + "/tokenize", json=body, timeout=240)
    tokenizer: Any = load_tokenizer(str(tool_model))
    expected = Renderer(tokenizer, max_length=512).encode(PROMPT, ANSWERED)
    assert reply.json()["tokens"] == list(expected.ids), reply.text


def test_a_template_without_a_place_is_named(url: str) -> None:
    image = Message("user", (ImagePart(url="https://example.org/a.png"),))
    with RewardClient(url, model="plain") as client:
        failures = client.score(
            [
                ScoreItem(PROMPT, "Yes."),
                ScoreItem(PROMPT[1:], ANSWERED),
                ScoreItem((image,), "Red."),
                ScoreItem(PROMPT[1:], "No."),
            ]
        )
    lacking = ("tool definitions", "tool calls", "images")
    for failure, feature in zip(failures, lacking, strict=False):
        assert isinstance(failure, ScoreFailure)
        assert failure.code == "bad_input"
        assert f"has no place for {feature}" in failure.message
    assert isinstance(failures[3], Score), "the others are scored"
    body = {"model": "plain", "messages": [*ASKED, *CALLED, YES]}
    reply = httpx.post(url + "/classify", json=body, timeout=240)
    assert reply.status_code == 400
    assert "has no place for tool calls" in reply.json()["error"]["message"]
    assert "has no place" in httpx.post(url + "/tokenize", json=body, timeout=240).json()["error"]["message"]


@pytest.mark.parametrize(
    ("body", "field", "message"),
    [
        (
            {"prompt": [{"role": "user", "content": [{"type": "video", "url": "x"}]}], "responses": ["Yes."]},
            "prompt.0",
            "a message part of the type 'video', which is not known",
        ),
        (
            {"prompt": "x", "responses": ["Yes.", [{"role": "assistant", "tool_calls": [{"id": "1"}]}]]},
            "responses.1.0",
            "a tool call without a name",
        ),
        (
            {"prompt": "x", "responses": [[CALLED[1]]]},
            "responses.0",
            "turns of a response begin and end with the assistant's",
        ),
        ({"prompt": [{"role": "user"}], "responses": ["y"]}, "prompt.0", "a message without role and content"),
        (
            {"prompt": "x", "responses": ["y"], "tools": [{"type": "web_search"}]},
            "tools",
            "a tool definition without a name",
        ),
        (
            {"prompt": [{"role": "user", "content": "x", "contents": ""}], "responses": ["y"]},
            "prompt.0.contents",
            "no such field",
        ),
    ],
)
def test_what_is_no_whole_message_is_refused_at_its_place(
    url: str, body: dict[str, Any], field: str, message: str
) -> None:
    reply = httpx.post(url + "/v1/score", json={"model": "tools", **body}, timeout=240)
    assert reply.status_code == 422, reply.text
    detail = reply.json()["detail"]
    assert message in detail
    assert field in detail.split(": ")[0], detail
