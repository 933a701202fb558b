"""Typed parts through the chat templates that published models bring: shown whole, or refused by the part's name."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from assay.conversation.parts import TextPart, ThinkingPart, ToolCallPart, ToolDefinitionPart, ToolResultPart
from assay.domain import Message, Prompt, Response
from assay.errors import BadInputError, NotFoundError
from assay.models.chat.renderer import Renderer
from assay.models.loading import load_tokenizer
from assay.models.tiny import tiny_model

DEFINITION = ToolDefinitionPart("weather", "of a town", '{"type":"object","properties":{"town":{"type":"string"}}}')
USER = Message("user", "Is it raining?")
CALL = Message("assistant", (ToolCallPart("weather", '{"town":"Ulm"}', "call00001"),))
RESULT = Message("tool", (ToolResultPart("drizzle", "call00001", "weather"),))
DEFINED: Prompt = (Message("system", (TextPart("Be brief."), DEFINITION)), USER)
ANSWERED: Response = (CALL, RESULT, Message("assistant", "Yes."))
THOUGHT: Response = (Message("assistant", (ThinkingPart("Clouds."), TextPart("Yes."))),)

#: A conversation with one kind of typed part, the words of it that a rendering must hold, the part's name.
PARTS: dict[str, tuple[Prompt, Response, tuple[str, ...]]] = {
    "tool definitions": (DEFINED, "Yes.", ("weather", "of a town", "town")),
    "tool calls": ((USER,), ANSWERED, ("weather", "Ulm", "drizzle", "Yes.")),
    "thinking": ((USER,), THOUGHT, ("Clouds.", "Yes.")),
}
#: Templates that TRL brings, and what they show of these.
PUBLISHED: dict[str, set[str]] = {
    "deepseekv3": {"tool calls"},
    "gemma": set(),
    "gemma3": set(),
    "gemma4": {"tool definitions", "tool calls"},
    "glm4moe": {"tool definitions", "tool calls", "thinking"},
    "gptoss": {"tool definitions", "tool calls", "thinking"},
    "llama3": set(),
    "llama3_1": {"tool definitions", "tool calls"},
    "qwen2_5": {"tool definitions", "tool calls"},
    "qwen3": {"tool definitions", "tool calls", "thinking"},
}


def published(name: str) -> Renderer:
    found = find_spec("trl")
    folder = Path(found.origin).parent / "chat_templates" if found is not None and found.origin else Path()
    file = folder / f"{name}.jinja"
    if not file.is_file():
        pytest.skip(f"TRL is not installed, or brings no {file.name}")
    tokenizer: Any = load_tokenizer(str(tiny_model()))
    tokenizer.chat_template = file.read_text()
    return Renderer(tokenizer, max_length=8_000)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_template_shows_a_part_whole_or_refuses_it_by_name(name: str, part: str) -> None:
    shown(published(name), part, part in PUBLISHED[name])


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
def test_the_packaged_model_has_no_place_for_typed_parts(part: str) -> None:
    try:
        tokenizer = load_tokenizer("smollm2")
    except NotFoundError as error:
        pytest.skip(str(error))
    shown(Renderer(tokenizer, max_length=8_000), part, False)


def shown(renderer: Renderer, part: str, expected: bool) -> None:
    prompt, response, words = PARTS[part]
    if not expected:
        with pytest.raises(BadInputError, match=f"has no place for {part}"):
            renderer.render(prompt, response)
        return
    text = renderer.render(prompt, response)
    assert all(word in text for word in words), text
