"""Recorded traces of a judge that called tools, as turns to be trained on.

Covers: our own form (what `items.jsonl` of an evaluation has), and Themis's (arXiv 2310.01045, its TARA data): Thought,
Action, Action Input, Observation, as an object or as text. Leaves out: running tools again: results are as they were
recorded.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from assay.data.json_lines import RowError
from assay.errors import BadInputError
from assay_serving.tools.tool import ToolCall, ToolResult, ToolTurn

TRACE = "tool_trace"  #: field of a row; of a pair also `tool_trace_chosen` and `tool_trace_rejected`, or in its `meta`
_FIELDS = ("Thought", "Action", "Action Input", "Observation")
_LABEL = re.compile(r"^(Thought|Action|Action Input|Observation):[ ]?", re.MULTILINE)


def trace_in(record: Mapping[str, Any], side: str = "") -> tuple[ToolTurn, ...]:
    """The trace of a row, or of its `side` (chosen, rejected); empty where it has none. Raises RowError."""
    name = f"{TRACE}_{side}" if side else TRACE
    meta = record.get("meta")
    trace = record.get(name, meta.get(name) if isinstance(meta, Mapping) else None)
    try:
        return trace_of(trace)
    except BadInputError as error:
        raise RowError(f"no trace of tools: {error}", field=name) from error


def trace_of(trace: Any) -> tuple[ToolTurn, ...]:
    """Turns with their calls and results. A text without an action has none. Raises BadInputError."""
    if trace is None or trace == "":
        return ()
    if isinstance(trace, str):
        if trace.lstrip().startswith(("{", "[")):
            try:
                return trace_of(json.loads(trace))
            except ValueError as error:
                raise BadInputError(f"not JSON: {error}") from error
        return _steps(trace)
    if isinstance(trace, Mapping):
        return (_step(trace),)
    if not isinstance(trace, list) or not all(isinstance(turn, Mapping) for turn in trace):
        raise BadInputError("must be a list of turns, a step or a text")
    return tuple(_stored(turn) for turn in trace)


def _steps(text: str) -> tuple[ToolTurn, ...]:
    """An observation goes on to the next thought or action, whatever its lines begin with."""
    turns: list[ToolTurn] = []
    step: dict[str, str] = {}
    pieces = _LABEL.split(text)[1:]
    for label, piece in zip(pieces[::2], pieces[1::2], strict=True):
        if "Observation" in step and label in ("Thought", "Action"):
            turns.append(_step(step))
            step = {}
        if "Observation" in step:
            step["Observation"] += f"{label}: {piece}"
        else:
            step[label] = piece
    return (*turns, _step(step)) if "Action" in step else tuple(turns)


def _step(step: Mapping[str, Any]) -> ToolTurn:
    step = {"Thought": "", **step}
    if missing := [name for name in _FIELDS if not isinstance(step.get(name), str)]:
        raise BadInputError(f"a step has no text {missing[0]!r}")
    thought, action, argument, observation = (step[name].strip() for name in _FIELDS)
    call = ToolCall(action, {"input": argument})
    return ToolTurn(f"{thought}\n{call.text}".lstrip("\n"), (ToolResult(call, observation),))


def _stored(turn: Mapping[str, Any]) -> ToolTurn:
    results, text = turn.get("results"), turn.get("text")
    if not isinstance(text, str) or not isinstance(results, list) or not results:
        raise BadInputError("a turn has a text and its results")
    read = []
    for entry in results:
        if not isinstance(entry, Mapping) or not isinstance(entry.get("content"), str):
            raise BadInputError("a result has a name, arguments and its content as text")
        call = ToolCall(str(entry.get("name") or ""), dict(entry.get("arguments") or {}))
        read.append(ToolResult(call, entry["content"], bool(entry.get("error"))))
    return ToolTurn(text, tuple(read))
