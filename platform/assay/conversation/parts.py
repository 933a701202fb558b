"""What a message is made of: text, thinking, images, tool definitions, tool calls and tool results.

Covers: the immutable parts, their JSON form (`type` and the fields that have a value), and what each shows in the text
view. Leaves out: messages (`assay.conversation.message`), the forms that other people write
(`assay.data.message_forms`).

The text view is for search, duplicates, contamination, embeddings, statistics and people's eyes. Nothing is trained on
it, and no reward model scores it.
"""

import hashlib
from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

from assay.errors import BadInputError


class _Part(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, tag_field="type"):
    @property
    def text_view(self) -> str:
        raise NotImplementedError

    def to_dict(self) -> dict[str, str]:
        """JSON form."""
        form: dict[str, str] = msgspec.to_builtins(self)
        return form


class TextPart(_Part, frozen=True, tag="text"):
    text: str

    @property
    def text_view(self) -> str:
        return self.text


class ThinkingPart(_Part, frozen=True, tag="thinking"):
    """What an assistant thought before it answered."""

    text: str

    @property
    def text_view(self) -> str:
        return f"<thinking>\n{self.text}\n</thinking>"


class ImagePart(_Part, frozen=True, tag="image"):
    """An image of the workspace's media folder, by the hash of its bytes; or one that was never fetched, by `url`."""

    content_hash: str | None = None
    media_type: str | None = None
    url: str | None = None

    @property
    def text_view(self) -> str:
        name = self.content_hash or self.url or ""
        if name.startswith("data:"):
            name = f"{name.partition(',')[0]} {hashlib.sha256(name.encode()).hexdigest()[:12]}"
        return f"[image {name}]"


class ToolDefinitionPart(_Part, frozen=True, tag="tool_definition"):
    """A tool that the assistant may call. `parameters`: its JSON schema as text, its keys in the source's order, for
    that is what a chat template writes."""

    name: str
    description: str | None = None
    parameters: str | None = None

    @property
    def text_view(self) -> str:
        return f"[tool {self.name}]"


class ToolCallPart(_Part, frozen=True, tag="tool_call"):
    """`arguments`: JSON text without spaces between tokens, keys in the source's order; where an assistant wrote broken
    JSON, what it wrote."""

    name: str
    arguments: str
    call_id: str | None = None

    @property
    def text_view(self) -> str:
        return f"{self.name}({self.arguments})"


class ToolResultPart(_Part, frozen=True, tag="tool_result"):
    """What a tool answered. `call_id`: the call's. `name`: the tool's."""

    content: str
    call_id: str | None = None
    name: str | None = None

    @property
    def text_view(self) -> str:
        return self.content


Part: TypeAlias = TextPart | ThinkingPart | ImagePart | ToolDefinitionPart | ToolCallPart | ToolResultPart


def part_of(form: Mapping[str, Any]) -> Part:
    """A part from its JSON form. Raises BadInputError for another one."""
    try:
        part: Part = msgspec.convert(form, Part)
    except msgspec.ValidationError as error:
        raise BadInputError(f"not a part of a message: {error}", field="content") from error
    return part
