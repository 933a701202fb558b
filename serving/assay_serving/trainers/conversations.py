"""Trainers' prompts and completions as items to score.

Covers: text, message lists, content in parts, calls and results of tools; prompts that end with an assistant turn,
which the completion continues. Leaves out: text with a chat template's tokens (`openrlhf`); what a model has no place
for, which its server refuses by name.
"""

import json
from collections.abc import Sequence
from typing import Any

from assay.conversation.message import final_text, response_of_turns
from assay.data.conversation import turns_of
from assay.domain import Message, Prompt, Response
from assay.domain import prompt_of as read_forms
from assay.errors import BadInputError


def prompt_of(prompt: object) -> Prompt:
    """A text is one user turn. Raises BadInputError for anything but a text or a non-empty list of messages."""
    if isinstance(prompt, str):
        return (Message("user", prompt),)
    prompt = _plain(prompt)
    if not isinstance(prompt, Sequence) or not prompt:
        raise BadInputError(f"a prompt is a text or a list of messages, not {_kind(prompt)}")
    return _messages(prompt)


def prompt_and_response(prompt: object, completion: object) -> tuple[Prompt, Response]:
    """Prompt and response of one sample; a completion of several turns (calls of tools, their results) is a response
    of them. Raises BadInputError for what is neither text nor messages, and for parts that nobody knows."""
    before = prompt_of(prompt)
    completion = _plain(completion)
    if isinstance(completion, str):
        turns: Prompt = (Message("assistant", completion),)
    elif isinstance(completion, Sequence) and completion:
        turns = _messages(completion)
    else:
        raise BadInputError(f"a completion is a text or a list of messages, not {_kind(completion)}")
    if turns[-1].role != "assistant":
        raise BadInputError(f"a completion ends with the assistant's turn, not with one of {turns[-1].role}")
    if len(before) > 1 and before[-1].role == turns[0].role == "assistant":  # the prompt starts the response
        before, turns = before[:-1], (_joined(before[-1], turns[0]), *turns[1:])
    at = next(index for index, turn in enumerate(turns) if turn.role == "assistant")
    return (*before, *turns[:at]), response_of_turns(turns[at:])


def label_of(value: object) -> str | None:
    """A data set's column as the label of an item: text as it is, anything else as JSON."""
    if value is None or isinstance(value, str):
        return value
    try:
        return json.dumps(_plain(value), ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise BadInputError(f"a label of {_kind(value)} is no JSON") from error


def references_of(value: object) -> tuple[str, ...]:
    """A data set's column as reference responses: one text, or several; of messages the last one's text."""
    value = _plain(value)
    if value is None:
        return ()
    if isinstance(value, str):
        return (value,)
    if isinstance(value, Sequence):
        return tuple(one if isinstance(one, str) else final_text(prompt_and_response("", one)[1]) for one in value)
    raise BadInputError(f"references are texts, not {_kind(value)}")


def _messages(messages: Sequence[Any]) -> Prompt:
    return read_forms(turns_of([_plain(message) for message in messages], "messages"))


def _joined(first: Message, second: Message) -> Message:
    """A turn that the next one goes on with."""
    if isinstance(first.content, str) and isinstance(second.content, str):
        return Message(first.role, first.content + second.content)
    return Message(first.role, (*first.parts, *second.parts))


def _plain(value: object) -> object:
    """Lists and numbers from arrays, which data sets store columns in."""
    return value.tolist() if hasattr(value, "tolist") else value


def _kind(value: object) -> str:
    return "nothing" if value is None or value == [] or value == () else type(value).__name__
