"""Trainers' prompts and completions as items to score.

Covers: text, message lists, content in parts; prompts that end with an assistant turn, which the completion continues.
Leaves out: text with a chat template's tokens (`openrlhf`), images.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from assay.domain import ROLES, Message, Prompt
from assay.errors import BadInputError


def prompt_of(prompt: object) -> Prompt:
    """A text is one user turn. Raises BadInputError for anything but a text or a non-empty list of messages."""
    if isinstance(prompt, str):
        return (Message("user", prompt),)
    prompt = _plain(prompt)
    if not isinstance(prompt, Sequence) or not prompt:
        raise BadInputError(f"a prompt is a text or a list of messages, not {_kind(prompt)}")
    return tuple(_message(message) for message in prompt)


def prompt_and_response(prompt: object, completion: object) -> tuple[Prompt, str]:
    """Prompt and response of one sample. Of a completion of several turns (calls of tools) the last is the response,
    those before it end the prompt. Raises BadInputError for what is neither text nor messages."""
    before = prompt_of(prompt)
    completion = _plain(completion)
    if isinstance(completion, str):
        turns: Prompt = (Message("assistant", completion),)
    elif isinstance(completion, Sequence) and completion:
        turns = tuple(_message(message) for message in completion)
    else:
        raise BadInputError(f"a completion is a text or a list of messages, not {_kind(completion)}")
    *middle, last = turns
    if last.role != "assistant":
        raise BadInputError(f"a completion ends with the assistant's turn, not with one of {last.role}")
    if not middle and len(before) > 1 and before[-1].role == "assistant":
        return before[:-1], before[-1].content + last.content  # the prompt starts the response
    return (*before, *middle), last.content


def label_of(value: object) -> str | None:
    """A data set's column as the label of an item: text as it is, anything else as JSON."""
    if value is None or isinstance(value, str):
        return value
    try:
        return json.dumps(_plain(value), ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise BadInputError(f"a label of {_kind(value)} is no JSON") from error


def references_of(value: object) -> tuple[str, ...]:
    """A data set's column as reference responses: one text, or several; messages count as their text."""
    value = _plain(value)
    if value is None:
        return ()
    if isinstance(value, str):
        return (value,)
    if isinstance(value, Sequence):
        return tuple(one if isinstance(one, str) else prompt_and_response("", one)[1] for one in value)
    raise BadInputError(f"references are texts, not {_kind(value)}")


def _message(message: object) -> Message:
    if not isinstance(message, Mapping) or message.get("role") not in ROLES:
        raise BadInputError(f"a message has a role ({', '.join(ROLES)}) and content")
    return Message(message["role"], _text(message.get("content")))


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    if content is None:  # a turn that only calls a tool
        return ""
    parts: list[Any] = list(content) if isinstance(content, Sequence) else [content]
    if not all(isinstance(part, Mapping) and isinstance(part.get("text"), str) for part in parts):
        raise BadInputError("content other than text cannot be scored")
    return "".join(part["text"] for part in parts)


def _plain(value: object) -> object:
    """Lists and numbers from arrays, which data sets store columns in."""
    return value.tolist() if hasattr(value, "tolist") else value


def _kind(value: object) -> str:
    return "nothing" if value is None or value == [] or value == () else type(value).__name__
