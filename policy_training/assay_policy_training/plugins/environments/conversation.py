"""An episode as the conversation that it is: typed messages, for people, comparisons and reward models.

Covers: the policy's turns with their calls as parts, results and other observations between them. A call that cannot be
read stays the text that the policy wrote. Leaves out: the tokens that were sampled (`samplers.episodes`); what was
observed after the last turn, which is no part of a response.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from assay.conversation.message import response_of_turns
from assay.conversation.parts import Part, TextPart, ToolCallPart, ToolResultPart, part_of
from assay.domain import Message, Prompt, Response, prompt_of
from assay_policy_training.core.prompt import EPISODE
from assay_serving.tools.turns import joined

_CALL = re.compile(r"<tool_call>.*?(?:</tool_call>|\Z)", re.DOTALL)


class EpisodeConversation(NamedTuple):
    """`prompt`: what the policy read before its first turn, with the tools. `response`: its turns and what it observed
    between them."""

    prompt: Prompt
    response: Response


def conversation_of(prompt: Prompt, record: Mapping[str, Any]) -> EpisodeConversation | None:
    """`record`: of an episode of the prompt. None of one that ended before the policy's first turn."""
    if not record["turns"]:
        return None
    before = joined((*prompt, *prompt_of(record["opening"])))
    if record["tools"]:
        tools = tuple(part_of(tool) for tool in record["tools"])
        if before[0].role == "system":
            before[0] = Message("system", (*tools, *before[0].parts))
        else:
            before.insert(0, Message("system", tools))
    *earlier, last = record["turns"]
    turns = [message for turn in earlier for message in turn_messages(turn)]
    return EpisodeConversation(tuple(before), response_of_turns((*turns, next(turn_messages(last)))))


def recorded_conversation(row: Mapping[str, Any]) -> EpisodeConversation | None:
    """Of a row of `rollouts.jsonl`; None where it is no episode, or as `conversation_of`."""
    return conversation_of(prompt_of(row["prompt"]), row[EPISODE]) if EPISODE in row else None


def turn_messages(turn: Mapping[str, Any]) -> Iterator[Message]:
    """A turn's own message, then what came of it: a message for each result, and the others."""
    yield Message("assistant", tuple(_spoken(turn["text"], turn["calls"])))
    for number, answer in enumerate(turn["results"]):
        call_id = turn["calls"][number]["call_id"] if len(turn["results"]) == len(turn["calls"]) else None
        yield Message("tool", (ToolResultPart(answer["content"], call_id, answer["name"] or None),))
    yield from prompt_of(turn["messages"])


def _spoken(text: str, calls: list[Mapping[str, Any]]) -> Iterator[Part]:
    places = [match.span() for match in _CALL.finditer(text)] if calls else []
    if calls and not places:  # a turn that is one call without tags
        places = [(0, len(text))]
    begin = 0
    for (start, end), call in zip(places, calls, strict=False):
        if call["fault"] is None:
            if before := text[begin:start].strip("\n"):
                yield TextPart(before)
            arguments = json.dumps(call["arguments"], ensure_ascii=False, separators=(",", ":"))
            yield ToolCallPart(call["name"], arguments, call["call_id"])
            begin = end
    if rest := text[begin:].strip("\n") if begin else text:
        yield TextPart(rest)
