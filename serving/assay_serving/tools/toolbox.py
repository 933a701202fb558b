"""The tools of a conversation: their definitions for the model, and calls run within the tools' limits.

Covers: arguments checked by the tool's schema (names and simple types), limits on time, size and number, every mistake
as a result that the model reads. Leaves out: reading calls (`calls`), what becomes of results (the caller).

A tool runs in a thread of its own. One that does not end in time is given up, not killed: its thread goes on, and until
it ends the tool answers every further call with an error, so that at most one of it is left over. Programs run in
processes that are killed (`program`).
"""

import json
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from assay.conversation.parts import ToolDefinitionPart
from assay.errors import BadInputError
from assay_serving.tools.kind import tool_of
from assay_serving.tools.tool import Tool, ToolCall, ToolError, ToolLimits, ToolResult, ToolTurn

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
}


class Toolbox:
    """Tools by the names that models call them by. Safe to call from several threads."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        """Raises BadInputError for two tools of one name."""
        self.tools = {tool.name: tool for tool in tools}
        if len(self.tools) < len(tools):
            raise BadInputError("two tools have one name", field="tools")
        self._given_up: dict[str, threading.Thread] = {}

    @property
    def definitions(self) -> tuple[ToolDefinitionPart, ...]:
        return tuple(
            ToolDefinitionPart(tool.name, tool.description, json.dumps(tool.parameters, separators=(",", ":")))
            for tool in self.tools.values()
        )

    @property
    def repeatable(self) -> bool:
        """Whether every tool answers equal calls equally."""
        return all(getattr(tool, "repeatable", False) for tool in self.tools.values())

    def run(self, calls: Sequence[ToolCall], before: Sequence[ToolTurn] = ()) -> list[ToolResult]:
        """The results of one turn's calls in their order. `before`: the conversation's earlier turns, which count in
        the limit on calls."""
        used = [result.call.name for turn in before for result in turn.results]
        results = []
        for call in calls:
            results.append(self._run(call, used.count(call.name)))
            used.append(call.name)
        return results

    def _run(self, call: ToolCall, used: int) -> ToolResult:
        tool = self.tools.get(call.name)
        if call.fault is not None:
            return _refused(call, call.fault)
        if tool is None:
            return _refused(call, f"there is no tool {call.name!r}; there is {', '.join(self.tools)}")
        limits: ToolLimits = getattr(tool, "limits", ToolLimits())
        if used >= limits.calls:
            return _refused(call, f"{tool.name} may be called {limits.calls} times")
        if (fault := _fault(call.arguments, tool.parameters)) is not None:
            return _refused(call, fault)
        if (running := self._given_up.get(tool.name)) is not None and running.is_alive():
            return _refused(call, f"{tool.name} is still at an earlier call")
        return self._timed(tool, call, limits)

    def _timed(self, tool: Tool, call: ToolCall, limits: ToolLimits) -> ToolResult:
        outcome: list[tuple[Any, bool]] = []

        def work() -> None:
            try:
                outcome.append((tool.run(call.arguments), False))
            except ToolError as error:
                outcome.append((str(error), True))
            except BaseException as error:
                outcome.append((f"{type(error).__name__}: {error}", True))

        thread = threading.Thread(target=work, name=f"tool {tool.name}", daemon=True)
        start = time.monotonic()
        thread.start()
        thread.join(limits.seconds)
        seconds = time.monotonic() - start
        if not outcome:
            self._given_up[tool.name] = thread
            return _refused(call, f"{tool.name} did not answer within {limits.seconds:g} s", seconds)
        content, error = outcome[0]
        if not isinstance(content, str):
            return _refused(call, f"{tool.name} answered {type(content).__name__}, not text", seconds)
        encoded = content.encode("utf-8", "replace")  # lone surrogates cannot be stored
        if len(encoded) > limits.size:
            return _refused(call, f"the result has {len(encoded)} bytes, more than {limits.size}", seconds)
        return (
            _refused(call, encoded.decode(), seconds) if error else ToolResult(call, encoded.decode(), False, seconds)
        )


def _refused(call: ToolCall, why: str, seconds: float = 0.0) -> ToolResult:
    return ToolResult(call, f"error: {why}", True, seconds)


def _fault(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> str | None:
    """What is wrong with the arguments by names and simple types, None where nothing is."""
    properties: Mapping[str, Any] = schema.get("properties") or {}
    if missing := [name for name in schema.get("required") or () if name not in arguments]:
        return f"the argument {missing[0]!r} is missing"
    for name, value in arguments.items():
        if name not in properties:
            return f"there is no argument {name!r}; there is {', '.join(properties) or 'none'}"
        type_name = properties[name].get("type")
        if not isinstance(type_name, str) or type_name not in _TYPES:
            continue
        if not isinstance(value, _TYPES[type_name]) or (isinstance(value, bool) and type_name != "boolean"):
            return f"the argument {name!r} must be of type {type_name}"
    return None


@cache
def toolbox(references: tuple[str, ...]) -> Toolbox:
    """The tools of these references (`kind.tool_of`), made once a process. Raises as `tool_of`."""
    return Toolbox([tool_of(reference) for reference in references])
