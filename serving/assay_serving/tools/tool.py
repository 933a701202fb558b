"""A tool that a model may call: its name, its arguments' JSON schema, what it answers, and its limits.

Covers: the protocol, calls and results as values, the transcript of turns with calls. Leaves out: reading calls from a
model's text (`calls`), running them (`toolbox`), which tools there are (`kind`).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Protocol


class ToolError(Exception):
    """What the model is told where its call cannot be answered."""


@dataclass(frozen=True, slots=True)
class ToolLimits:
    """Of one call: `seconds`, and `size` of the result in bytes of UTF-8. `calls`: of the tool in one conversation."""

    seconds: float = 10.0
    size: int = 16384
    calls: int = 16


class Tool(Protocol):
    """Optional: `limits` (a `ToolLimits`), and `repeatable = True` of a tool that answers equal calls equally, whose
    scores may be cached. `identity`: of what its answers depend on beside its settings, such as the text of a file."""

    name: ClassVar[str]
    description: ClassVar[str]
    parameters: ClassVar[Mapping[str, Any]]  #: JSON schema of an object

    def run(self, arguments: Mapping[str, Any]) -> str:
        """The result. What it raises becomes the result's text, as an error; a `ToolError` word for word. A
        BackendError, where what answers is gone, is the caller's: nothing that the model did."""
        ...


@dataclass(frozen=True, slots=True)
class ToolCall:
    """`fault`: why it cannot be run, of a call that could not be read."""

    name: str
    arguments: Mapping[str, Any]
    call_id: str | None = None
    fault: str | None = None

    @property
    def text(self) -> str:
        """In the form that models write it in text."""
        call = json.dumps({"name": self.name, "arguments": self.arguments}, ensure_ascii=False)
        return f"<tool_call>\n{call}\n</tool_call>"


@dataclass(frozen=True, slots=True)
class ToolResult:
    """`content`: what the model reads; of an error, what went wrong."""

    call: ToolCall
    content: str
    error: bool = False


@dataclass(frozen=True, slots=True)
class ToolTurn:
    """A turn of the model that calls tools, as it wrote it, and their results."""

    text: str
    results: tuple[ToolResult, ...]

    @property
    def errors(self) -> int:
        return sum(result.error for result in self.results)

    def to_dict(self) -> dict[str, Any]:
        """JSON form, in which traces are stored."""
        results = [{**asdict(result.call), "content": result.content, "error": result.error} for result in self.results]
        return {"text": self.text, "results": results}


def response_text(results: Sequence[ToolResult]) -> str:
    """Results as text between two turns of the model."""
    return "\n".join(f"<tool_response>\n{result.content}\n</tool_response>" for result in results)


def transcript(turns: Sequence[ToolTurn], last: str = "") -> str:
    """Everything that was written, for people: each turn with its results, then the last turn."""
    return "".join(f"{turn.text}\n{response_text(turn.results)}\n" for turn in turns) + last
