"""The calls in a model's turn: JSON between <tool_call> tags, a turn that is one JSON call, or OpenAI's `tool_calls`.

The tags are those of the chat templates of Qwen and Hermes; a bare object with `name` and `arguments` or `parameters`
is Llama 3.1's. Leaves out: other templates' forms (Mistral's lists, Python calls). A call that cannot be read is a
`ToolCall` with a fault: the model is told.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from assay_serving.tools.tool import ToolCall

_TAGGED = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)
_PYTHON_TAG = "<|python_tag|>"


def calls_in(text: str) -> list[ToolCall]:
    """The calls of a turn in their order; empty for a turn that calls nothing."""
    if tagged := _TAGGED.findall(text):
        return [_call_of(body) for body in tagged]
    bare = text.strip().removeprefix(_PYTHON_TAG).strip()
    if bare.startswith("{") and bare.endswith("}"):
        call = _call_of(bare)
        return [] if call.fault else [call]
    return []


def beside_calls(text: str) -> str:
    """What a turn says beside its calls."""
    return _TAGGED.sub("", text).strip() if _TAGGED.search(text) else "" if calls_in(text) else text


def calls_of(message: Mapping[str, Any]) -> list[ToolCall]:
    """The calls of a message of OpenAI's form: its `tool_calls`, else those in its text."""
    listed = message.get("tool_calls")
    if not isinstance(listed, Sequence) or not listed:
        return calls_in(str(message.get("content") or ""))
    calls = []
    for entry in listed:
        function = entry.get("function") if isinstance(entry, Mapping) else None
        if not isinstance(function, Mapping):
            calls.append(ToolCall("", {}, fault="the call has no function"))
            continue
        call_id = entry.get("id")
        calls.append(_checked(function.get("name"), function.get("arguments") or {}, call_id and str(call_id)))
    return calls


def _call_of(body: str) -> ToolCall:
    try:
        call = json.loads(body.strip())
    except (ValueError, RecursionError) as error:
        return ToolCall("", {}, fault=f"the call is no JSON: {error}")
    if not isinstance(call, dict):
        return ToolCall("", {}, fault="the call is no JSON object with name and arguments")
    return _checked(call.get("name"), call.get("arguments", call.get("parameters")), None)


def _checked(name: Any, arguments: Any, call_id: str | None) -> ToolCall:
    if not isinstance(name, str) or not name:
        return ToolCall("", {}, call_id, "the call names no tool")
    if isinstance(arguments, str):  # OpenAI's are JSON text
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError) as error:
            return ToolCall(name, {}, call_id, f"the arguments are no JSON: {error}")
    if not isinstance(arguments, dict):
        return ToolCall(name, {}, call_id, "the arguments are no JSON object")
    try:  # `json` reads NaN and halves of surrogate pairs, which can be neither stored nor tokenized
        json.dumps([name, arguments], ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError) as error:
        return ToolCall("", {}, call_id, f"the call is no JSON: {error}")
    return ToolCall(name, arguments, call_id)
