"""Tools of an MCP server (package mcp 2.x): `mcp?command=uvx mcp-server-time` (stdio), `mcp?url=http://host/mcp`.

Covers: the server's tools with their names, descriptions and schemas; calls at the same time over one connection, which
is opened with the tools and again after the server has died. A call that it dies under raises BackendError: unlike a
tool's own error it is nothing that the model did. Leaves out: resources, prompts, what a server asks of its client.
"""

import asyncio
import os
import shlex
import tempfile
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import IO, Annotated, Any

from annotated_types import Gt

from assay.errors import BackendError, BadInputError
from assay.registry import unknown
from assay.settings import check_settings
from assay_serving.tools.tool import ToolError, ToolLimits

EXTRA_S = 5.0  #: beyond a call's own seconds, until its thread is given up
LAST_BYTES = 4096  #: of a server's error output that are read


@dataclass
class McpServer:
    """`command` starts a server that speaks over its input and output, `url` names one that listens (streamable HTTP).
    `seconds`: of a call, and of connecting. `only`: the tools that are offered, joined by commas; default: all.
    `prefix`: before their names. `variables`: those of this process's environment, by name and joined by commas, that
    the command is given beside PATH and the like. `token`: the variable with the bearer token for the url."""

    command: str = ""
    url: str = ""
    seconds: Annotated[float, Gt(0)] = 30.0
    only: str = ""
    prefix: str = ""
    variables: str = ""
    token: str = ""
    tools: Sequence["McpTool"] = field(init=False)

    def __post_init__(self) -> None:
        """Raises BadInputError unless there is one server, and BackendError without the package or where the server
        does not answer."""
        check_settings(self, "tools.mcp.")
        if bool(self.command) == bool(self.url):
            raise BadInputError("a server has a command or a url", field="tools.mcp")
        for name in (*filter(None, self.variables.split(",")), *filter(None, [self.token])):
            if name not in os.environ:
                raise BadInputError(f"there is no variable {name} in the environment", field="tools.mcp")
        try:
            import_module("mcp")
        except ImportError as error:
            raise BackendError(f"the tool mcp needs the package mcp: pip install mcp ({error})") from error
        self._client: Any = None
        self._log: IO[str] | None = None  #: the error output of the command
        self._lock = threading.Lock()
        offered = {one.name: one for one in self._listed()}
        for name in (names := [name for name in self.only.split(",") if name]):
            if name not in offered:
                raise unknown(f"tool of {self.title}", name, offered, field="tools.mcp.only")
        self.tools = [McpTool(self, offered[name]) for name in names or offered]

    @property
    def title(self) -> str:
        return f"the MCP server {self.command or self.url}"

    def call(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """What the tool answered. Raises ToolError where it does not in time, and BackendError where the server is
        gone, or answers against the tool's own schema."""
        from mcp import MCPError

        client = self._connected()
        pending = asyncio.run_coroutine_threadsafe(client.call_tool(name, dict(arguments)), _loop())
        try:
            return pending.result(self.seconds)
        except TimeoutError:
            pending.cancel()
            raise ToolError(f"{name} did not answer within {self.seconds:g} s") from None
        except MCPError as error:
            if not self._closed(error):
                raise ToolError(str(error)) from error
            raise self._gone(error) from error
        except Exception as error:
            if isinstance(error, RuntimeError | ValueError) and not self._ended.done():  # it lives, with others' calls
                why = " ".join(str(error).split())[:300]
                raise BackendError(f"{self.title} answers {name} with what is no result: {why}") from error
            raise self._gone(error) from error

    def close(self) -> None:
        """End the connection, and the server that was started."""
        with self._lock:
            if self._client is not None:
                _loop().call_soon_threadsafe(self._ending.set)
                with suppress(Exception):
                    self._ended.result(EXTRA_S)
            self._client = None

    def _listed(self) -> list[Any]:
        """The server's tools, of all pages."""

        async def pages() -> list[Any]:
            page = await client.list_tools()
            listed = list(page.tools)
            while page.next_cursor:
                page = await client.list_tools(cursor=page.next_cursor)
                listed += page.tools
            return listed

        client = self._connected()
        try:
            return asyncio.run_coroutine_threadsafe(pages(), _loop()).result(self.seconds)
        except Exception as error:
            raise BackendError(f"{self.title} lists no tools: {_cause(error)}") from error

    def _connected(self) -> Any:
        with self._lock:
            if self._client is None:
                opened: Future[Any] = Future()
                self._ended = asyncio.run_coroutine_threadsafe(self._hold(opened), _loop())
                try:
                    self._client = opened.result(self.seconds)
                except Exception as error:
                    self._ended.cancel()
                    raise BackendError(f"{self.title} does not answer: {_cause(error)}{self._last_words}") from error
            return self._client

    async def _hold(self, opened: "Future[Any]") -> None:
        """The connection, opened and closed by one task, as the package's scopes need it."""
        from mcp import Client

        self._ending = asyncio.Event()
        try:
            async with Client(self._server()) as client:
                opened.set_result(client)
                await self._ending.wait()
        except BaseException as error:
            if not opened.done():
                opened.set_exception(error)
            if not isinstance(error, Exception):
                raise

    def _server(self) -> Any:
        if self.command:
            from mcp.client.stdio import StdioServerParameters, stdio_client

            command, *arguments = shlex.split(self.command)
            passed = {name: os.environ[name] for name in self.variables.split(",") if name}
            self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115  read after the server's end
            return stdio_client(StdioServerParameters(command=command, args=arguments, env=passed), errlog=self._log)
        if not self.token:
            return self.url
        from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client

        headers = {"Authorization": f"Bearer {os.environ[self.token]}"}
        return streamable_http_client(self.url, http_client=create_mcp_http_client(headers=headers))

    def _closed(self, error: Any) -> bool:
        from mcp_types import CONNECTION_CLOSED

        return bool(error.error.code == CONNECTION_CLOSED)

    def _gone(self, error: BaseException) -> BackendError:
        self.close()
        return BackendError(f"{self.title} died under a call: {_cause(error)}{self._last_words}")

    @property
    def _last_words(self) -> str:
        """The last line of the server's error output."""
        if self._log is None:
            return ""
        log = self._log.fileno()  # read at a place, for the server writes where the file stands
        text = os.pread(log, LAST_BYTES, max(0, os.fstat(log).st_size - LAST_BYTES)).decode("utf-8", "replace")
        lines = text.split("\n")
        return "".join(f" ({line.strip()[:300]})" for line in [line for line in lines if line.strip()][-1:])


class McpTool:
    """One tool of a server, as a `Tool`. `definition`: the server's own."""

    def __init__(self, server: McpServer, definition: Any) -> None:
        self.server = server
        self.name, self.description = server.prefix + definition.name, definition.description or ""
        self.parameters: Mapping[str, Any] = {"properties": {}, **definition.input_schema}
        self.limits = ToolLimits(seconds=server.seconds + EXTRA_S)
        self._name = definition.name

    @property
    def identity(self) -> str:
        return self.server.title

    def close(self) -> None:
        """End the connection of all the server's tools."""
        self.server.close()

    def run(self, arguments: Mapping[str, Any]) -> str:
        """Its texts, a line each; of what is no text its kind. Raises ToolError with what the server says went wrong,
        and BackendError where the server is gone."""
        answer = self.server.call(self._name, arguments)
        text = "\n".join(getattr(block, "text", None) or f"[{block.type}]" for block in answer.content)
        if answer.is_error:
            raise ToolError(text or "the tool failed")
        return text


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """That of all connections of the process."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="mcp", daemon=True).start()
    return loop


def _cause(error: BaseException) -> str:
    """The first of the errors in a group, which says more than the group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}".rstrip(": ")
