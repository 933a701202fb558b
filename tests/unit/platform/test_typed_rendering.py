"""Typed parts through chat templates: shown where the template has a place for them, else refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from assay.conversation.parts import (
    ImagePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolDefinitionPart,
    ToolResultPart,
)
from assay.domain import Message, PreferencePair, Prompt, Response
from assay.errors import BadInputError
from assay.models.chat.renderer import Renderer
from assay.models.loading import load_tokenizer
from assay.models.tiny import tiny_model
from assay_rm_training.data.pair_dataset import encode_pairs

#: As Qwen's: tools in the system's turn, calls and results between marks, thoughts of the last turn.
WITH_TOOLS = """{%- if tools %}{{- '<system>' }}{%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n' }}
{%- endif %}{%- for tool in tools %}{{- tool | tojson }}{%- endfor %}{{- '</system>\\n' }}{%- endif %}
{%- for message in messages %}{%- if message.role == 'tool' %}{{- '<result>' + message.content + '</result>\\n' }}
{%- elif message.role != 'system' or not tools %}{{- '<' + message.role + '>' }}
{%- if message.reasoning_content %}{{- '<think>' + message.reasoning_content + '</think>' }}{%- endif %}
{{- message.content }}{%- for call in message.tool_calls or [] %}
{{- '<call>' + call.function.name + ' ' + (call.function.arguments | tojson) + '</call>' }}{%- endfor %}{{- '\\n' }}
{%- endif %}{%- endfor %}{%- if add_generation_prompt %}{{- '<assistant>' }}{%- endif %}"""
WITHOUT = "{% for message in messages %}{{ message.role + ': ' + message.content + '\\n' }}{% endfor %}"

SYSTEM = Message("system", (TextPart("Be brief."), ToolDefinitionPart("weather", "of a town", '{"type":"object"}')))
USER = Message("user", "Is it raining?")
CALL = Message("assistant", (ToolCallPart("weather", '{"town":"Ulm"}', "call00001"),))
RESULT = Message("tool", (ToolResultPart("rain", "call00001"),))
ANSWERED: Response = (CALL, RESULT, Message("assistant", "Yes."))


def renderer(template: str | None) -> Renderer:
    tokenizer: Any = load_tokenizer(str(tiny_model()))
    tokenizer.chat_template = template
    return Renderer(tokenizer, max_length=2_000)


def test_a_template_with_tools_shows_every_part() -> None:
    shown = renderer(WITH_TOOLS)
    text = shown.render((SYSTEM, USER), ANSWERED)
    for words in (
        "Be brief.",
        '"name": "weather"',
        '<call>weather {"town": "Ulm"}</call>',
        "<result>rain</result>",
        "Yes.",
    ):
        assert words in text
    encoded = shown.encode((SYSTEM, USER), ANSWERED)
    response = str(shown.tokenizer.decode(list(encoded.ids[encoded.response_start :])))
    assert response.replace(" ", "").startswith("<call>weather"), "the response begins with its first call"
    thought = (Message("assistant", (ThinkingPart("Hm."), TextPart("Yes."))),)
    assert "<think>Hm.</think>Yes." in shown.render((USER,), thought)


@pytest.mark.parametrize("template", [WITHOUT, None])
@pytest.mark.parametrize(
    ("prompt", "response", "lacking"),
    [
        ((SYSTEM, USER), "Yes.", "tool definitions"),
        ((USER,), ANSWERED, "tool calls"),
        ((USER,), (Message("assistant", (ThinkingPart("Hm."), TextPart("Yes."))),), "thinking"),
        ((Message("user", (ImagePart("ab" * 16, "image/png"),)),), "Red.", "images"),
    ],
)
def test_what_a_template_has_no_place_for_is_refused_by_name(
    template: str | None, prompt: Prompt, response: Response, lacking: str
) -> None:
    with pytest.raises(BadInputError, match=f"has no place for {lacking}"):
        renderer(template).render(prompt, response)


def test_special_tokens_in_arguments_stay_text() -> None:
    tokenizer: Any = load_tokenizer(str(tiny_model()))
    special = next(str(t) for t in tokenizer.added_tokens_decoder.values() if t.special and len(str(t)) > 2)
    tokenizer.chat_template = WITH_TOOLS
    call = Message("assistant", (ToolCallPart("weather", f'{{"town":"{special}"}}'),))
    assert special not in Renderer(tokenizer, max_length=2_000).render((USER,), (call,))


def test_training_leaves_out_and_counts_what_cannot_be_shown() -> None:
    pairs = [
        PreferencePair((USER,), "Yes.", "No.", "c-1"),
        PreferencePair((SYSTEM, USER), ANSWERED, "No.", "c-2"),
    ]
    encoded = encode_pairs(pairs, renderer(WITHOUT))
    assert len(encoded) == 1
    ((reason, count),) = encoded.left_out.items()
    assert (reason, count) == ("chosen cannot be rendered", 1)
    assert encoded.first_fault.startswith("pair 2 (c-2): ")
    assert "no place for tool definitions" in encoded.first_fault
    assert len(encode_pairs(pairs, renderer(WITH_TOOLS))) == 2
