"""Messages with typed parts as chat templates take them, and whether a template shows them at all.

Covers: tool definitions as `tools`, calls as `tool_calls`, results as messages of the role tool, thinking as
`reasoning_content`, images as parts of a content; a small conversation for each, with words that the template must
write. Leaves out: tokens (`assay.models.chat.renderer`), what stands for an image (`image_reader`).

The form is the one that transformers documents. A template that knows no tools leaves them out without a word, so that
only what it writes tells.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from assay.conversation.message import Message
from assay.conversation.parts import (
    ImagePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolDefinitionPart,
    ToolResultPart,
)

#: What a template may have no place for, as messages name it.
Feature: TypeAlias = Literal[
    "tool definitions", "tool calls", "tool results", "thinking", "developer messages", "tool messages", "images"
]
Plain: TypeAlias = Callable[[str], str]

_PARTS: dict[type, Feature] = {
    ImagePart: "images",
    ThinkingPart: "thinking",
    ToolDefinitionPart: "tool definitions",
    ToolCallPart: "tool calls",
    ToolResultPart: "tool results",
}
_ROLES: dict[str, Feature] = {"developer": "developer messages", "tool": "tool messages"}


class TemplateForm(NamedTuple):
    """Arguments of `apply_chat_template`."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None = None


class TemplateProbe(NamedTuple):
    """A conversation, and the words of it that show whether a template has a place for a feature."""

    messages: tuple[Message, ...]
    words: tuple[str, ...]


_DEFINITION = ToolDefinitionPart("zqtool", "zqpurpose", '{"type":"object","properties":{"zqkey":{"type":"string"}}}')
_CALL = ToolCallPart("zqtool", '{"zqkey":"zqvalue"}', "zqcall001")
_USER = Message("user", "zquser")
_ANSWER = Message("assistant", "zqanswer")
_CALLED = (
    _USER,
    Message("assistant", (_CALL,)),
    Message("tool", (ToolResultPart("zqresult", "zqcall001", "zqtool"),)),
    _ANSWER,
)

PROBES: dict[Feature, TemplateProbe] = {
    "tool definitions": TemplateProbe(
        (Message("system", (_DEFINITION,)), _USER, _ANSWER), ("zqtool", "zqpurpose", "zqkey")
    ),
    "tool calls": TemplateProbe(_CALLED, ("zqtool", "zqkey", "zqvalue")),
    "tool results": TemplateProbe(_CALLED, ("zqresult",)),
    "thinking": TemplateProbe(
        (_USER, Message("assistant", (ThinkingPart("zqthought"), TextPart("zqanswer")))), ("zqthought",)
    ),
    "developer messages": TemplateProbe((Message("developer", "zqdeveloper"), _USER, _ANSWER), ("zqdeveloper",)),
    "tool messages": TemplateProbe((_USER, _ANSWER, Message("tool", "zqtoolsays"), _ANSWER), ("zqtoolsays",)),
}


def features_of(messages: Sequence[Message]) -> Iterator[Feature]:
    """What the messages have that a template may not show; nothing for texts of the three common roles."""
    for message in messages:
        if isinstance(message.content, str):
            if message.role in _ROLES:
                yield _ROLES[message.role]
            continue
        if message.role == "developer":
            yield "developer messages"
        for part in message.content:
            if type(part) in _PARTS:
                yield _PARTS[type(part)]


def template_form(
    messages: Sequence[Message], plain: Plain, *, arguments_as_text: bool = False, as_parts: bool = False
) -> TemplateForm:
    """`plain`: what is done with every text. `arguments_as_text`: a call's arguments as JSON text, not as an object:
    some templates write them so. `as_parts`: contents are lists of parts, also those of one text. Texts of one turn
    that follow each other are joined by a line break."""
    turns: list[dict[str, Any]] = []
    tools: list[dict[str, Any]] = []
    for message in messages:
        if isinstance(message.content, str):
            turns.append({"role": message.role, "content": plain(message.content)})
            continue
        before = len(turns)
        for part in message.content:
            if isinstance(part, ToolDefinitionPart):
                tools.append(_definition(part, plain))
            elif isinstance(part, ToolResultPart):
                turns.append(_result(message.role, part, plain))
            else:
                # What follows a call in one turn is written after it, as a turn of its own.
                if len(turns) == before or ("tool_calls" in turns[-1] and not isinstance(part, ToolCallPart)):
                    turns.append({"role": message.role, "content": ""})
                _add(turns[-1], part, plain, arguments_as_text)
    for turn in turns if as_parts else ():
        if isinstance(turn["content"], str):
            turn["content"] = [{"type": "text", "text": turn["content"]}] if turn["content"] else []
    return TemplateForm(turns, tools or None)


def _add(turn: dict[str, Any], part: object, plain: Plain, arguments_as_text: bool) -> None:
    if isinstance(part, TextPart | ImagePart):
        _add_content(turn, None if isinstance(part, ImagePart) else plain(part.text))
    elif isinstance(part, ThinkingPart):
        thought = f"{turn['reasoning_content']}\n" if "reasoning_content" in turn else ""
        turn["reasoning_content"] = turn["thinking"] = thought + plain(part.text)
    elif isinstance(part, ToolCallPart):
        arguments = _json(part.arguments, plain)
        if arguments_as_text or not isinstance(arguments, dict):
            arguments = plain(part.arguments)
        call: dict[str, Any] = {"type": "function", "function": {"name": plain(part.name), "arguments": arguments}}
        if part.call_id is not None:
            call["id"] = plain(part.call_id)
        turn.setdefault("tool_calls", []).append(call)


def _add_content(turn: dict[str, Any], text: str | None) -> None:
    """A text, or (None) an image, which makes the content a list of parts."""
    content = turn["content"]
    if isinstance(content, str) and text is not None:
        turn["content"] = f"{content}\n{text}" if content else text
        return
    if isinstance(content, str):
        content = turn["content"] = [{"type": "text", "text": content}] if content else []
    if text is None:
        content.append({"type": "image"})
    elif content and content[-1]["type"] == "text":
        content[-1]["text"] += f"\n{text}"
    else:
        content.append({"type": "text", "text": text})


def _definition(part: ToolDefinitionPart, plain: Plain) -> dict[str, Any]:
    function: dict[str, Any] = {"name": plain(part.name), "description": plain(part.description or "")}
    function["parameters"] = _json(part.parameters, plain) if part.parameters else {"type": "object", "properties": {}}
    return {"type": "function", "function": function}


def _result(role: str, part: ToolResultPart, plain: Plain) -> dict[str, Any]:
    turn = {"role": role, "content": plain(part.content)}
    named = {"tool_call_id": part.call_id, "name": part.name}
    return turn | {key: plain(value) for key, value in named.items() if value is not None}


def _json(text: str, plain: Plain) -> Any:
    """The JSON of a text with all its strings plain; the text itself where it is no JSON."""
    try:
        return _plain(json.loads(text), plain)
    except (ValueError, RecursionError):
        return plain(text)


def _plain(node: Any, plain: Plain) -> Any:
    if isinstance(node, str):
        return plain(node)
    if isinstance(node, dict):
        return {plain(key): _plain(value, plain) for key, value in node.items()}
    if isinstance(node, list):
        return [_plain(value, plain) for value in node]
    return node
