"""The package mcp: its server (`mcp_server`), whose tools we call and its own client does; a policy's episodes."""

import asyncio
import atexit
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

from mcp import Client
from scripted_play import LETTERS, played, trained

from assay.domain import Message
from assay.errors import AssayError
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.plugins.environments.tool_use import Tools
from assay_policy_training.plugins.prompts.source import load_prompts
from assay_serving.tools.kind import tools_of
from assay_serving.tools.mcp import McpServer
from assay_serving.tools.tool import ToolCall
from assay_serving.tools.toolbox import Toolbox

COMMAND = f"{sys.executable} {Path(__file__).with_name('mcp_server.py')}"
ITEM = PromptItem((Message("user", "What is 2 + 40?"),))
os.environ["CITY"] = "Bonn"


def answers(server: McpServer) -> dict[str, Any]:
    """What the tools give, and how long calls of one turn take together."""
    box = Toolbox(server.tools)
    begun = time.monotonic()
    waits = box.run([ToolCall("wait", {"seconds": 1}) for _ in range(3)])
    took = time.monotonic() - begun
    calls = [("add", {"a": 2, "b": 40}), ("add", {"a": "x", "b": 1}), ("wait", {"seconds": 30}), ("count", {})]
    results = box.run([ToolCall(*call) for call in calls])
    return {
        "tools": {tool.name: tool.parameters["properties"] for tool in server.tools},
        "waits": [result.content for result in waits],
        "took": took,
        "results": [[result.content, result.error] for result in results],
    }


async def its_own(place: str) -> list[str]:
    """The same by the package's client."""
    async with Client(place) as client:
        listed = await client.list_tools()
        answer = await client.call_tool("add", {"a": 2, "b": 40})
        return [*sorted(tool.name for tool in listed.tools), answer.content[0].text]


def refusal(**settings: Any) -> str:
    try:
        McpServer(seconds=10, **settings)
    except AssayError as error:
        return f"{type(error).__name__}: {error}"
    return "none"


def turn(*calls: tuple[str, dict[str, Any]]) -> str:
    return "\n".join(ToolCall(*call).text for call in calls)


with socket.socket() as held:
    held.bind(("127.0.0.1", 0))
    port = held.getsockname()[1]
url = f"http://127.0.0.1:{port}/mcp"
process = subprocess.Popen([*COMMAND.split(), str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
atexit.register(process.kill)
for _ in range(100):
    try:
        own = asyncio.run(its_own(url))
        break
    except Exception:
        time.sleep(0.2)

reference = f"mcp?command={quote(COMMAND)}&seconds=10&variables=CITY"
listening = f"mcp?url={url}&seconds=10&prefix=city_"
stdio, http = McpServer(COMMAND, seconds=3, variables="CITY"), McpServer(url=url, seconds=3)
told = {"its own": own, "stdio": answers(stdio), "http": answers(http)}
stdio.close()
shared, fresh = Tools(tools=(reference, listening)), Tools(tools=(reference,), fresh=True)
told["episode"] = played(
    shared, ITEM, [turn(("add", {"a": 2, "b": 40}), ("city_add", {"a": 1, "b": 1})), turn(("add", {"a": 2})), "42"]
)
told["shared"] = [played(shared, ITEM, [turn(("count", {}))])["observed"] for _ in range(2)]
told["fresh"] = [played(fresh, ITEM, [turn(("count", {}))])["observed"] for _ in range(2)]
told["lied"] = [played(shared, ITEM, [turn((name, {})), "42"]) for name in ("lie", "count")]
told["died"] = played(shared, ITEM, [turn(("die", {})), "unread"])
told["after"] = played(shared, ITEM, [turn(("count", {}))])
told["no command"] = refusal(command="no-such-program")
told["ends at once"] = refusal(command=f"{sys.executable} -c 'raise SystemExit(\"no licence\")'")
told["both"] = refusal(command="x", url="y")
told["no tool"] = refusal(command=COMMAND, only="cuont")
told["no variable"] = refusal(command="x", variables="NO_SUCH_VARIABLE")
if sys.argv[1:]:
    own_settings = [
        "environment.kind=tools",
        f"environment.tools=['{listening}&only=count']",
        "sampling.max_new_tokens=320",
        "sampling.max_prompt_tokens=2000",
        "episodes.turn_tokens=100",
    ]
    told["trained"] = trained(
        "--prompts",
        "arithmetic:4",
        *(word for one in own_settings for word in ("--set", one)),
        *sys.argv[1:],
        reward=LETTERS,
        says=turn(("city_count", {})),
        opened=(Tools(tools=(f"{listening}&only=count",)), load_prompts("arithmetic:16", seed=0)),
    )
process.kill()
process.wait()
told["gone"] = played(Tools(tools=(f"mcp?url={url}&seconds=5",)), ITEM, ["42"])["failure"]
[one, *_] = tools_of(reference)
told["identity"] = one.identity
print(json.dumps(told))
