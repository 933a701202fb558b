"""The tools of a conversation: their definitions for the model, and calls run within the tools' limits.

Covers: arguments checked by name, limits on time, size and number, every mistake
as a result that the model reads. Leaves out: reading calls (`calls`), what becomes of results (the caller).

A call runs in a thread of its own. One that does not end in time is given up, not killed: its thread goes on, and until
it ends the tool answers every later call of this toolbox with an error, so that at most one turn's calls are left over.
Programs run in processes that are killed (`program`).
"""

import hashlib
import inspect
import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from assay.conversation.parts import ToolDefinitionPart
from assay.errors import BackendError, BadInputError
from assay.registry import made_by
from assay_serving.tools.kind import FILE, tools_of
from assay_serving.tools.tool import Tool, ToolCall, ToolError, ToolLimits, ToolResult, ToolTurn


class Toolbox:
    """Tools by the names that models call them by. Safe to call from several threads."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        """Raises BadInputError for two tools of one name."""
        self.tools = {tool.name: tool for tool in tools}
        if len(self.tools) < len(tools):
            raise BadInputError("two tools have one name", field="tools")
        self._given_up: list[tuple[str, threading.Thread]] = []

    @property
    def functions(self) -> list[dict[str, Any]]:
        """The definitions in OpenAI's form."""
        described = [(tool.name, tool.description, tool.parameters) for tool in self.tools.values()]
        names = ("name", "description", "parameters")
        return [{"type": "function", "function": dict(zip(names, one, strict=True))} for one in described]

    @property
    def definitions(self) -> tuple[ToolDefinitionPart, ...]:
        return tuple(
            ToolDefinitionPart(tool.name, tool.description, json.dumps(tool.parameters, separators=(",", ":")))
            for tool in self.tools.values()
        )

    @property
    def identity(self) -> str:
        """Of what the tools are and answer, wherever their files lie."""
        parts: list[Any] = [self.functions]
        for tool in self.tools.values():
            origin = made_by(tool)
            settings = {name: value for name, value in origin.settings.items() if name != FILE} if origin else {}
            is_plugin = not type(tool).__module__.startswith("assay_serving.")
            code = hashlib.sha256(Path(inspect.getfile(type(tool))).read_bytes()).hexdigest() if is_plugin else ""
            parts.append([settings, getattr(tool, "identity", ""), code])
        return json.dumps(parts, default=str)

    @property
    def repeatable(self) -> bool:
        """Whether every tool answers equal calls equally."""
        return all(getattr(tool, "repeatable", False) for tool in self.tools.values())

    def run(self, calls: Sequence[ToolCall], before: Sequence[ToolTurn] = ()) -> list[ToolResult]:
        """The results of one turn's calls in their order; they run at the same time. `before`: the conversation's
        earlier turns, which count in the limit on calls. Raises BackendError where what answers a call is gone."""
        used = [result.call.name for turn in before for result in turn.results]
        running = []
        for call in calls:
            running.append(self._start(call, used.count(call.name)))
            used.append(call.name)
        return [each if isinstance(each, ToolResult) else self._result(each) for each in running]

    def _start(self, call: ToolCall, used: int) -> "ToolResult | _Running":
        if (fault := call_fault(call, {name: tool.parameters for name, tool in self.tools.items()})) is not None:
            return refused(call, fault)
        tool = self.tools[call.name]
        limits: ToolLimits = getattr(tool, "limits", ToolLimits())
        if used >= limits.calls:
            return refused(call, f"{tool.name} may be called {limits.calls} times")
        if any(name == tool.name and running.is_alive() for name, running in self._given_up):
            return refused(call, f"{tool.name} is still at an earlier call")
        outcome: list[Any] = []

        def work() -> None:
            try:
                outcome.append(tool.run(call.arguments))
            except BaseException as error:
                outcome.append(error)

        thread = threading.Thread(target=work, name=f"tool {tool.name}", daemon=True)
        thread.start()
        return _Running(call, tool, limits, thread, time.monotonic() + limits.seconds, outcome)

    def _result(self, running: "_Running") -> ToolResult:
        call, tool, limits, thread = running.call, running.tool, running.limits, running.thread
        thread.join(max(0.0, running.deadline - time.monotonic()))
        match running.outcome:
            case [str(content)]:
                encoded = content.encode("utf-8", "replace")  # lone surrogates cannot be stored
                if len(encoded) > limits.size:
                    return refused(call, f"the result has {len(encoded)} bytes, more than {limits.size}")
                return ToolResult(call, encoded.decode())
            case [BackendError() as error]:
                raise error
            case [BaseException() as error]:
                why = str(error) if isinstance(error, ToolError) else f"{type(error).__name__}: {error}"
                return refused(call, why.encode("utf-8", "replace")[: limits.size].decode("utf-8", "ignore"))
            case [other]:
                return refused(call, f"{tool.name} answered {type(other).__name__}, not text")
        self._given_up.append((tool.name, thread))
        return refused(call, f"{tool.name} did not answer within {limits.seconds:g} s")


@dataclass(frozen=True)
class _Running:
    """A call under way. `outcome`: what the tool answered or raised, once it has."""

    call: ToolCall
    tool: Tool
    limits: ToolLimits
    thread: threading.Thread
    deadline: float
    outcome: list[Any]


def call_fault(call: ToolCall, parameters: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Why the call cannot be run with tools of these parameters (JSON schemas by name); None = it can."""
    if call.fault is not None:
        return call.fault
    if call.name not in parameters:
        return f"there is no tool {call.name!r}; there is {', '.join(parameters)}"
    properties, required = (parameters[call.name].get(key, ()) for key in ("properties", "required"))
    if call.arguments.keys() - set(properties) or set(required) - call.arguments.keys():
        return f"the arguments are {', '.join(properties)}; not {', '.join(call.arguments) or 'none'}"
    return None


def refused(call: ToolCall, why: str) -> ToolResult:
    """The result that tells the model why its call was not answered."""
    return ToolResult(call, f"error: {why}", True)


def toolbox(references: tuple[str, ...]) -> Toolbox:
    """The tools of these references (`kind.tools_of`), made once a process. Raises as `tools_of`."""
    with _opening:  # episodes that begin together would each read the documents of `search`
        return _opened(references)


_opening = threading.Lock()


@cache
def _opened(references: tuple[str, ...]) -> Toolbox:
    return Toolbox([tool for reference in references for tool in tools_of(reference)])
