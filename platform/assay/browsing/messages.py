"""Messages as pages show them: whole, with their typed parts, or as a text that stands for one.

Covers: the JSON form of a message as types, for replies that are described and checked. Leaves out: the parts
themselves (`assay.conversation.parts`).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NotRequired, TypeAlias

from typing_extensions import TypedDict

from assay.conversation.message import Message, Response, Role


class TextualPart(TypedDict):
    type: Literal["text", "thinking"]
    text: str


class ShownImage(TypedDict):
    """`content_hash`: of the workspace's media. `url`: of an image that was never fetched."""

    type: Literal["image"]
    content_hash: NotRequired[str]
    media_type: NotRequired[str]
    url: NotRequired[str]


class ShownTool(TypedDict):
    """A tool that the assistant may call. `parameters`: its JSON schema as text."""

    type: Literal["tool_definition"]
    name: str
    description: NotRequired[str]
    parameters: NotRequired[str]


class ShownCall(TypedDict):
    """`arguments`: JSON text, or what the assistant wrote in place of it."""

    type: Literal["tool_call"]
    name: str
    arguments: str
    call_id: NotRequired[str]


class ShownResult(TypedDict):
    type: Literal["tool_result"]
    content: str
    call_id: NotRequired[str]
    name: NotRequired[str]


ShownPart: TypeAlias = TextualPart | ShownImage | ShownTool | ShownCall | ShownResult


@dataclass(frozen=True, slots=True)
class ShownMessage:
    """`content`: a text, or the parts of what is more than text."""

    role: Role
    content: str | list[ShownPart]


@dataclass(frozen=True, slots=True)
class ConversationTurn:
    """The text view of a message, for lists that show a part of it."""

    role: str
    content: str


def shown_messages(messages: Iterable[Message]) -> list[ShownMessage]:
    return [ShownMessage(**message.to_dict()) for message in messages]


def shown_turns(response: Response) -> list[ShownMessage] | None:
    """The turns of a response that is more than text."""
    return None if isinstance(response, str) else shown_messages(response)
