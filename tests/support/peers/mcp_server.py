"""A server of the package mcp with a few tools: over its input and output, or on the port that is given."""

import asyncio
import os
import sys
from typing import Any

from mcp.server.mcpserver import MCPServer

server = MCPServer("cities", log_level="ERROR")
answers: list[int] = []


@server.tool()
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@server.tool()
async def wait(seconds: float) -> str:
    """Waits."""
    await asyncio.sleep(seconds)
    return f"waited {seconds:g} s"


@server.tool()
def count() -> str:
    """How often it was called."""
    answers.append(1)
    return f"call {len(answers)}, {os.environ.get('CITY')}"


@server.tool()
def die() -> str:
    """Ends the server."""
    print("the disk is full", file=sys.stderr, flush=True)
    os._exit(3)


@server.tool()
def lie() -> int:
    """Promises a number."""
    return 1


async def answered(name: str, arguments: Any, *context: Any, _own: Any = server.call_tool) -> Any:
    """A text instead of the number."""
    result = await _own(name, arguments, *context)
    if name == "lie":
        return result.model_copy(update={"structured_content": {"result": "a text"}})
    return result


server.call_tool = answered  # type: ignore[method-assign]
if sys.argv[1:]:
    server.run("streamable-http", port=int(sys.argv[1]))
else:
    server.run()
