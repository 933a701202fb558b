"""Where a response's steps are read: each at the last token of its text, the last one at the conversation's end.

Covers: a response in steps, rendered as any other, and the token index of every step. Leaves out: the model.

The last step is read where a stock classifier reads a conversation. So any engine's plain score of a whole response is
its last step's reward, without our code; steps before it are read at the last token that has a character of theirs. The
steps of a response in turns are the assistant's turns, each read at the last token of what the template writes of it.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from assay.domain import Message, Prompt
from assay.errors import BadInputError
from assay.models.chat.renderer import Renderer


class StepPlaces(NamedTuple):
    """Token ids of the conversation; `places`: index of the token that each step is read at, rising."""

    ids: tuple[int, ...]
    places: tuple[int, ...]
    truncated: bool


def read_steps(renderer: Renderer, prompt: Prompt, steps: Sequence[str], *, separator: str) -> StepPlaces:
    """Raises BadInputError for no steps, where a response does not fit, where the template changes the steps'
    text, where two steps end in one token, and for a tokenizer that does not tell where its tokens come from."""
    require_steps(steps)
    if not renderer.tokenizer.is_fast:
        raise BadInputError("this tokenizer does not say where in the text a token is")
    response = separator.join(steps)
    conversation = renderer.encode(prompt, response)
    if conversation.response_cut:
        raise BadInputError(f"the response alone passes {renderer.max_length} tokens (max_length)")
    before, text = renderer.render(prompt), renderer.render(prompt, response)
    encoding = renderer.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    # Counted from the end: turns may have been dropped from the beginning.
    total, encoded_length = len(encoding["input_ids"]), len(conversation.ids)
    at = next((n for n, (x, y) in enumerate(zip(before, text, strict=False)) if x != y), min(len(before), len(text)))
    places = []
    token = 0
    for step in steps[:-1]:
        step_text = renderer.plain(step).rstrip()
        begin = text.find(step_text, at)
        if begin < 0:
            raise BadInputError("the chat template changes the text of a step")
        at = begin + len(step_text)
        while encoding["offset_mapping"][token][1] < at:
            token += 1
        places.append(encoded_length - (total - token))
    places.append(encoded_length - 1)
    if min(places) < conversation.response_start or any(a >= b for a, b in pairwise(places)):
        raise BadInputError("two steps end in the same token, or one was cut off")
    if conversation.ids[places[0] :] != tuple(encoding["input_ids"][total - encoded_length + places[0] :]):
        raise BadInputError("cutting the conversation changed its tokens")
    return StepPlaces(conversation.ids, tuple(places), conversation.truncated)


def read_turns(renderer: Renderer, prompt: Prompt, response: Sequence[Message]) -> StepPlaces:
    """Of a response of one or more turns; no step sees a token of a later turn. Raises BadInputError where the response
    does not fit, where the template writes a turn in another way once others follow, and for a tokenizer that does not
    tell where its tokens come from."""
    if not renderer.tokenizer.is_fast:
        raise BadInputError("this tokenizer does not say where in the text a token is")
    whole = tuple(response)
    conversation = renderer.encode(prompt, whole)
    if conversation.response_cut:
        raise BadInputError(f"the response alone passes {renderer.max_length} tokens (max_length)")
    text = renderer.render(prompt, whole)
    encoding = renderer.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    ends = [end for _, end in encoding["offset_mapping"]]
    dropped = len(ends) - len(conversation.ids)  # counted from the end: turns may have been dropped from the beginning
    places = []
    for number, message in enumerate(whole[:-1], start=1):
        if message.role == "assistant":
            before = renderer.render(prompt, whole[:number])
            if not text.startswith(before):
                raise BadInputError("the chat template writes a turn in another way once others follow it")
            places.append(bisect_right(ends, len(before)) - 1 - dropped)
    places.append(len(conversation.ids) - 1)
    if min(places) < conversation.response_start or any(a >= b for a, b in pairwise(places)):
        raise BadInputError("two turns end in the same token, or one was cut off")
    if conversation.ids[places[0] :] != tuple(encoding["input_ids"][places[0] + dropped :]):
        raise BadInputError("cutting the conversation changed its tokens")
    return StepPlaces(conversation.ids, tuple(places), conversation.truncated)


def require_steps(steps: Sequence[str]) -> None:
    """Raises BadInputError where none of them has text."""
    if not any(step.strip() for step in steps):
        raise BadInputError("a process reward model needs at least one step", field="steps")
