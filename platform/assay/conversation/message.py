"""Messages, and the two things that are made of them: prompts and responses.

Covers: a message whose content is text or typed parts, its JSON form, the text view of a response. Leaves out: the
parts (`assay.conversation.parts`), identities (`assay.ids`), rendering to tokens (`assay.models.chat.renderer`).

A content that is one text only IS that text, and a response that is one such message is its text, so that equal
conversations are equal values. Tools that the assistant may call are defined in a prompt's first message, of the role
system, alone or beside its text.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from assay.conversation.parts import ImagePart, Part, TextPart, part_of
from assay.errors import BadInputError
from assay.ids import conversation_json

Role: TypeAlias = Literal["system", "developer", "user", "assistant", "tool"]
ROLES: tuple[str, ...] = get_args(Role)
#: Of turns that some judges' chat templates know; no conversation of data or of a request has them.
JudgeRole: TypeAlias = Literal["response_1", "response_2", "principle"]
JUDGE_ROLES: tuple[str, ...] = get_args(JudgeRole)


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation."""

    role: Role | JudgeRole
    content: str | tuple[Part, ...]

    def __post_init__(self) -> None:
        if self.role not in ROLES and self.role not in JUDGE_ROLES:
            raise BadInputError(f"unknown role {self.role!r}; one of {', '.join(ROLES)}", field="role")
        content = self.content
        if not isinstance(content, str) and (not content or (len(content) == 1 and isinstance(content[0], TextPart))):
            object.__setattr__(self, "content", "".join(part.text_view for part in content))

    @property
    def parts(self) -> tuple[Part, ...]:
        if isinstance(self.content, str):
            return (TextPart(self.content),) if self.content else ()
        return self.content

    @property
    def text(self) -> str:
        """The text view: a plain content as it is, of typed parts what each of them shows."""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(part.text_view for part in self.content)

    def to_dict(self) -> dict[str, Any]:
        """JSON form: `content` is a text or a list of parts."""
        if isinstance(self.content, str):
            return {"role": self.role, "content": self.content}
        return {"role": self.role, "content": [part.to_dict() for part in self.content]}


#: A conversation that ends before the assistant's turn.
Prompt: TypeAlias = tuple[Message, ...]
#: The assistant's answer: a text, or turns of which the first and the last are the assistant's.
Response: TypeAlias = str | tuple[Message, ...]


def prompt_of(messages: Iterable[Mapping[str, Any]]) -> Prompt:
    """Build a prompt from the JSON form of its messages. Raises BadInputError on a wrong shape."""
    return tuple(_message(message, number) for number, message in enumerate(messages, start=1))


def response_of(turns: str | Iterable[Mapping[str, Any]]) -> Response:
    """Build a response from its text or the JSON form of its turns. Raises BadInputError on a wrong shape."""
    if isinstance(turns, str):
        return turns
    messages = prompt_of(turns)
    if not messages or messages[0].role != "assistant" or messages[-1].role != "assistant":
        raise BadInputError("begins and ends with the assistant's turn", field="response")
    return response_of_turns(messages)


def response_of_turns(messages: tuple[Message, ...]) -> Response:
    """The turns, or their text where they are one turn of nothing but text."""
    return messages[0].content if len(messages) == 1 and isinstance(messages[0].content, str) else messages


def response_turns(response: Response) -> tuple[Message, ...]:
    return (Message("assistant", response),) if isinstance(response, str) else response


def response_text(response: Response) -> str:
    """The text view of a response; several turns are told apart by their roles."""
    if isinstance(response, str):
        return response
    if len(response) == 1:
        return response[0].text
    return "\n\n".join(f"{message.role}: {message.text}" for message in response)


def part_spans(response: Response) -> list[tuple[int, int]]:
    """Where the parts of a response stand in its text view: [start, end) in characters."""
    spans, at = [], 0
    turns = response_turns(response)
    for turn in turns:
        at += len(f"{turn.role}: ") if len(turns) > 1 else 0
        for part in turn.parts:
            spans.append((at, at + len(part.text_view)))
            at += len(part.text_view) + len("\n")
        at += len("\n\n") - (len("\n") if turn.parts else 0)
    return spans


def turn_spans(response: Response) -> list[tuple[int, int]]:
    """Where the assistant's turns stand in the text view of a response: [start, end) in characters."""
    spans, at = [], 0
    turns = response_turns(response)
    for turn in turns:
        at += len(f"{turn.role}: ") if len(turns) > 1 else 0
        if turn.role == "assistant":
            spans.append((at, at + len(turn.text)))
        at += len(turn.text) + len("\n\n")
    return spans


def identity_of(response: Response) -> str:
    """A text that no other response has."""
    return response if isinstance(response, str) else conversation_json(response)


def response_form(response: Response) -> str | list[dict[str, Any]]:
    """JSON form of a response, which `response_of` reads."""
    return response if isinstance(response, str) else [message.to_dict() for message in response]


def final_text(response: Response) -> str:
    """The text of a response's last turn, which is what answers the user; empty where that turn has none."""
    if isinstance(response, str):
        return response
    return "\n".join(part.text for part in response[-1].parts if isinstance(part, TextPart))


def images_of(conversation: Response) -> list[ImagePart]:
    turns = () if isinstance(conversation, str) else conversation
    return [part for turn in turns for part in turn.parts if isinstance(part, ImagePart)]


def is_typed(messages: Sequence[Message]) -> bool:
    """Whether any content is more than text."""
    return any(not isinstance(message.content, str) for message in messages)


def stored_prompt(messages: Iterable[Mapping[str, Any]], conversation: str | None) -> Prompt:
    """A prompt from the store's two columns; `conversation` is null where `messages` hold the whole."""
    return prompt_of(messages if conversation is None else json.loads(conversation))


def stored_response(content: str, turns: str | None) -> Response:
    """A response from the store's two columns; `turns` is null where `content` is the whole."""
    return content if turns is None else response_of(json.loads(turns))


def _message(message: Mapping[str, Any], number: int) -> Message:
    try:
        role, content = message["role"], message["content"]
    except (KeyError, TypeError) as error:
        raise BadInputError(f"message {number} needs 'role' and 'content'", field="prompt") from error
    if isinstance(content, str):
        return Message(role, content)
    if not isinstance(content, list | tuple):
        raise BadInputError(f"the content of message {number} is neither text nor a list of parts", field="prompt")
    return Message(role, tuple(part_of(part) for part in content))
