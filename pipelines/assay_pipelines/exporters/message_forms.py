"""Typed conversations in the messages that trainers read (OpenAI's form), and what a format has no place for.

Covers: which parts a format holds, one conversation in its form with tools and images apart, the copies of images
beside the file. Leaves out: the tables of an export (`exporters.conversations`), LLaMA-Factory's turns
(`exporters.llama_factory`).
"""

import json
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.conversation.message import Message
from assay.conversation.parts import (
    ImagePart,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolDefinitionPart,
    ToolResultPart,
)
from assay.store.media import MediaFolder

IMAGE_MARK = "<image>"  #: where an image belongs, in formats whose contents are texts
_PLURAL = {
    "thinking": "thinking",
    "image": "images",
    "tool_definition": "tool definitions",
    "tool_call": "tool calls",
    "tool_result": "tool results",
}
EVERYTHING = frozenset(_PLURAL)
#: The keys that a message has beside role and content, by the part that they are for.
KEYS = {"thinking": ("reasoning_content",), "tool_call": ("tool_calls",), "tool_result": ("tool_call_id", "name")}
_CALL_TYPE = {"id": "VARCHAR", "type": "VARCHAR", "function": {"name": "VARCHAR", "arguments": "VARCHAR"}}


class UnwritableError(Exception):
    """What a format has no place for, in words."""


@dataclass(frozen=True)
class MessageForm:
    """`holds`: the types of parts beside text. `marks`: images as `<image>` in texts, otherwise as parts. `turns`:
    whether a response may be more than one message. `equal_keys`: whether every message has the keys of all, some null:
    `datasets` reads messages of different keys as JSON values, and writes another text into such a column as a list of
    its characters. `structs`: messages are structs, as Parquet has them, the arguments of calls JSON text."""

    holds: frozenset[str] = frozenset()
    marks: bool = False
    turns: bool = True
    equal_keys: bool = False
    structs: bool = False


TEXTS = MessageForm(turns=False)


def message_type(keys: Iterable[str], *, listed: bool) -> dict[str, Any]:
    """The type of a message's struct, as DuckDB's json_transform takes it."""
    content: Any = [{"type": "VARCHAR", "text": "VARCHAR"}] if listed else "VARCHAR"
    return {"role": "VARCHAR", "content": content} | {
        key: [_CALL_TYPE] if key == "tool_calls" else "VARCHAR" for key in keys
    }


@dataclass(frozen=True)
class ImageCopies:
    """Copies of images in `folder`, beside the exported file; paths in the file are relative to that file's folder."""

    media: MediaFolder
    folder: Path
    written: dict[str, str] = field(default_factory=dict)

    def path(self, image: ImagePart) -> str:
        """Raises UnwritableError for an image whose bytes are not in the workspace."""
        if image.content_hash is None:
            raise UnwritableError("an image that was never fetched")
        if image.content_hash not in self.written:
            source = self.media.find(image.content_hash)
            if source is None:
                raise UnwritableError("an image whose file is missing")
            self.folder.mkdir(exist_ok=True)
            shutil.copyfile(source, self.folder / source.name)
            self.written[image.content_hash] = f"{self.folder.name}/{source.name}"
        return self.written[image.content_hash]


@dataclass(frozen=True)
class WrittenTurns:
    """`tools`: JSON text of OpenAI's definitions. `images`: paths in the order of their places."""

    messages: list[dict[str, Any]]
    tools: str | None
    images: list[str]


def left_out_notes(counted: Iterable[tuple[str, int, str]]) -> tuple[str, ...]:
    """For people, of (reason, how many, one of them)."""
    return tuple(f"left out, no place in this form for {why}: {count} (as {first})" for why, count, first in counted)


def check_parts(messages: Sequence[Message], form: MessageForm, *, response: bool) -> None:
    """Raises UnwritableError for a part that the form does not hold."""
    if response and len(messages) > 1 and not form.turns:
        raise UnwritableError("responses of several turns")
    for number, message in enumerate(messages):
        for part in message.parts:
            kind = kind_of(part)
            if kind != "text" and kind not in form.holds:
                raise UnwritableError(_PLURAL[kind])
            if kind == "image" and response:
                raise UnwritableError("images in responses")
            if kind == "tool_definition" and (number or response):
                raise UnwritableError("tool definitions after the first message")


def kind_of(part: Part) -> str:
    return str(part.to_dict()["type"])


def openai_turns(
    messages: Sequence[Message], form: MessageForm, copies: ImageCopies, *, response: bool, listed: bool = False
) -> WrittenTurns:
    """The messages in OpenAI's form. `listed`: every content as a list of parts, so that a column has one type.
    Raises UnwritableError."""
    check_parts(messages, form, response=response)
    written: list[dict[str, Any]] = []
    images: list[str] = []
    tools: list[dict[str, Any]] = []
    for message in messages:
        definitions = [part for part in message.parts if isinstance(part, ToolDefinitionPart)]
        tools += map(definition, definitions)
        parts = tuple(part for part in message.parts if not isinstance(part, ToolDefinitionPart))
        if definitions and not parts:
            continue
        results = [part for part in parts if isinstance(part, ToolResultPart)]
        if results and len(results) < len(parts):
            raise UnwritableError("tool results beside other parts")
        if results:
            written += [_result(part, listed) for part in results]
        else:
            written.append(_turn(message.role, parts, form, listed))
            images += [copies.path(part) for part in parts if isinstance(part, ImagePart)]
    return WrittenTurns(written, json.dumps(tools, ensure_ascii=False) if tools else None, images)


def definition(part: ToolDefinitionPart) -> dict[str, Any]:
    """OpenAI's form of a tool's definition."""
    function: dict[str, Any] = {"name": part.name}
    if part.description is not None:
        function["description"] = part.description
    if part.parameters is not None:
        function["parameters"] = object_of(part.parameters, "parameters of a tool that are no JSON object")
    return {"type": "function", "function": function}


def object_of(text: str, reason: str) -> dict[str, Any]:
    """A JSON object. Raises UnwritableError with that reason."""
    try:
        read = json.loads(text)
    except ValueError as error:
        raise UnwritableError(reason) from error
    if not isinstance(read, dict):
        raise UnwritableError(reason)
    return read


def call_arguments(part: ToolCallPart) -> dict[str, Any]:
    """What a chat template writes as JSON. Raises UnwritableError for arguments that are no JSON object."""
    return object_of(part.arguments or "{}", "tool calls whose arguments are no JSON object")


def joined_text(parts: Iterable[Part]) -> str:
    """The texts of a message, `<image>` where an image is. Raises UnwritableError for a text that has this mark."""
    texts = []
    for part in parts:
        if isinstance(part, ImagePart):
            texts.append(IMAGE_MARK)
        elif isinstance(part, TextPart):
            if IMAGE_MARK in part.text:
                raise UnwritableError(f"texts with {IMAGE_MARK}, the mark of an image")
            texts.append(part.text)
    return "".join(texts)


def _turn(role: str, parts: Sequence[Part], form: MessageForm, listed: bool) -> dict[str, Any]:
    thoughts = [part.text for part in parts if isinstance(part, ThinkingPart)]
    calls = [part for part in parts if isinstance(part, ToolCallPart)]
    order = [0 if isinstance(part, ThinkingPart) else 2 if isinstance(part, ToolCallPart) else 1 for part in parts]
    if order != sorted(order) or len(thoughts) > 1:
        raise UnwritableError("thinking after text, or text after tool calls")
    turn: dict[str, Any] = {"role": role, "content": _content(parts, form, listed)}
    if thoughts:
        turn["reasoning_content"] = thoughts[0]
    if calls:
        turn["tool_calls"] = [_call(part) for part in calls]
    return turn


def _content(parts: Sequence[Part], form: MessageForm, listed: bool) -> Any:
    content = [part for part in parts if isinstance(part, TextPart | ImagePart)]
    if form.marks and any(isinstance(part, ImagePart) for part in content):
        return joined_text(content)
    if not listed and all(isinstance(part, TextPart) for part in content):
        return "".join(part.text_view for part in content)
    return [
        {"type": "image"} if isinstance(part, ImagePart) else {"type": "text", "text": part.text} for part in content
    ]


def _call(part: ToolCallPart) -> dict[str, Any]:
    call = {"type": "function", "function": {"name": part.name, "arguments": call_arguments(part)}}
    return call if part.call_id is None else {"id": part.call_id, **call}


def _result(part: ToolResultPart, listed: bool) -> dict[str, Any]:
    content: Any = [{"type": "text", "text": part.content}] if listed else part.content
    turn = {"role": "tool", "content": content, "tool_call_id": part.call_id, "name": part.name}
    return {name: value for name, value in turn.items() if value is not None}
