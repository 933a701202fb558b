"""Recorded traces of a judge that called tools, as turns to be trained on.

Covers: our own form (what `items.jsonl` of an evaluation has), messages with calls and results in any form that is
read elsewhere, and Themis's (arXiv 2310.01045, its TARA data): Thought, Action, Action Input, Observation, as an object
or as text. Leaves out: running tools again: results are as they were recorded.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from assay.conversation.parts import TextPart, ToolCallPart, ToolResultPart
from assay.data.conversation import turns_of
from assay.data.json_lines import RowError
from assay.domain import Prompt, prompt_of
from assay.errors import BadInputError
from assay_serving.tools.tool import ToolCall, ToolResult, ToolTurn

TRACE = "tool_trace"  #: field of a row; of a pair also `tool_trace_chosen` and `tool_trace_rejected`, or in its `meta`
_STEP = re.compile(
    r"(?:Thought:[ ]?(?P<thought>.*?)\n+)?Action:[ ]?(?P<action>.*?)\n+Action Input:[ ]?(?P<input>.*?)\n+"
    r"Observation:[ ]?(?P<observation>.*?)(?=\n+Thought:|\n+Action:|\Z)",
    re.DOTALL,
)


def trace_in(record: Mapping[str, Any], side: str = "") -> tuple[ToolTurn, ...]:
    """The trace of a row, or of its `side` (chosen, rejected); empty where it has none. Raises RowError."""
    name = f"{TRACE}_{side}" if side else TRACE
    meta = record.get("meta")
    trace = record.get(name, meta.get(name) if isinstance(meta, Mapping) else None)
    try:
        return trace_of(trace)
    except (RowError, BadInputError) as error:
        raise RowError(f"no trace of tools: {error}", field=name) from error


def trace_of(trace: Any) -> tuple[ToolTurn, ...]:
    """Turns with their calls and results. A text without an action has none. Raises BadInputError or RowError."""
    if trace is None or trace == "":
        return ()
    if isinstance(trace, str):
        if trace.lstrip().startswith(("{", "[")):
            try:
                return trace_of(json.loads(trace))
            except ValueError as error:
                raise BadInputError(f"not JSON: {error}") from error
        return tuple(_step(**match.groupdict("")) for match in _STEP.finditer(trace))
    if isinstance(trace, Mapping):
        fields = {"thought": "Thought", "action": "Action", "input": "Action Input", "observation": "Observation"}
        if missing := [name for name in fields.values() if not isinstance(trace.get(name), str)]:
            raise BadInputError(f"a step has no text {missing[0]!r}")
        return (_step(**{key: trace[name] for key, name in fields.items()}),)
    if not isinstance(trace, list):
        raise BadInputError("must be a list of turns or messages, a step or a text")
    if all(isinstance(turn, Mapping) and "results" in turn for turn in trace):
        return tuple(_stored(turn) for turn in trace)
    return _of_messages(prompt_of(turns_of(trace, TRACE)))


def _step(thought: str, action: str, input: str, observation: str) -> ToolTurn:
    call = ToolCall(action.strip(), {"input": input.strip()})
    text = f"{thought.strip()}\n{call.text}".lstrip("\n")
    return ToolTurn(text, (ToolResult(call, observation.strip()),))


def _stored(turn: Mapping[str, Any]) -> ToolTurn:
    results, text = turn["results"], turn.get("text")
    if not isinstance(text, str) or not isinstance(results, list) or not results:
        raise BadInputError("a turn has a text and its results")
    read = []
    for entry in results:
        if not isinstance(entry, Mapping) or not isinstance(entry.get("content"), str):
            raise BadInputError("a result has a name, arguments and its content as text")
        call = ToolCall(str(entry.get("name") or ""), dict(entry.get("arguments") or {}))
        read.append(ToolResult(call, entry["content"], bool(entry.get("error"))))
    return ToolTurn(text, tuple(read))


def _of_messages(messages: Prompt) -> tuple[ToolTurn, ...]:
    """Each assistant's message with calls, with the results that follow it."""
    turns: list[ToolTurn] = []
    calls: list[ToolCall] = []
    text = ""
    for message in messages:
        parts = message.parts
        if message.role == "assistant":
            if turns and len(turns[-1].results) < len(calls):
                raise BadInputError("a call has no result")
            calls = [_call(part) for part in parts if isinstance(part, ToolCallPart)]
            texts = [part.text for part in parts if isinstance(part, TextPart)]
            text = "\n".join([*texts, *(call.text for call in calls)])
            if calls:
                turns.append(ToolTurn(text, ()))
            continue
        for part in parts:
            content = part.content if isinstance(part, ToolResultPart) else message.text
            if message.role != "tool" or not turns or len(turns[-1].results) == len(calls):
                raise BadInputError("a result follows no call")
            answered = (*turns[-1].results, ToolResult(calls[len(turns[-1].results)], content))
            turns[-1] = ToolTurn(text, answered)
    if turns and len(turns[-1].results) < len(calls):
        raise BadInputError("a call has no result")
    return tuple(turns)


def _call(part: ToolCallPart) -> ToolCall:
    try:
        arguments = json.loads(part.arguments)
    except ValueError:
        arguments = {}
    return ToolCall(part.name, arguments if isinstance(arguments, dict) else {}, part.call_id)
