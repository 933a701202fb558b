"""A running server of OpenEnv, over its WebSocket: `reset`, `step`, and the tools of environments that have some (MCP).

Covers: actions that are a text, or a JSON object that the policy writes; tools by their schemas; rewards of steps. An
episode is a session of the server, closed when it ends. Leaves out: starting servers (containers, Spaces), rollouts
that a harness of its own drives. Wire format: openenv 0.10, `core/env_server/http_server.py`, `/ws`. OpenEnv's package
is not needed.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, ClassVar

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from assay.conversation.parts import ToolDefinitionPart
from assay.errors import BackendError, BadInputError
from assay.score import ScoreFailure
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.plugins.environments.environment import Action, Done, Environment, Observation, Parts
from assay_serving.tools.tool import ToolCall, ToolResult

REWARD = "reward"
#: Of a row: what `reset` is given beside the seed, e.g. a task's `split` and `index`.
RESET = "reset"
_LARGEST = 64 * 2**20  # bytes of a message
_SHOWN_NEVER = ("metadata", "done", "reward")


class OpenEnv(Environment):
    """`url`: of the server. `field`: of its action, which takes a turn's text. Default: the one text that an action
    must have; where actions have others the turn is a JSON object. A server with tools needs neither: a turn without
    calls ends the episode there. `no_step`: the reward of an episode that ends before any step; none, unless set."""

    url: str
    field: str = ""
    no_step: float | None = None
    parts: ClassVar[tuple[str, ...]] = (REWARD,)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.url.startswith(("http://", "https://")):
            raise BadInputError("the address of an OpenEnv server, http://HOST:PORT", field="environment.url")

    async def reset(self, prompt: PromptItem, seed: int) -> Observation:
        """Raises BackendError for a server that does not answer, or has no session left."""
        self._rewarded = self._stepped = False
        base = self.url.rstrip("/")
        try:
            self._socket: ClientConnection = await connect(f"ws{base.removeprefix('http')}/ws", max_size=_LARGEST)
        except (OSError, WebSocketException) as error:
            raise BackendError(f"the OpenEnv server {self.url} does not answer: {error}") from error
        opened = await self._reply_to("reset", {"seed": seed % 2**31, **(prompt.meta.get(RESET) or {})})
        listed = await self._reply_to("mcp", {"jsonrpc": "2.0", "method": "tools/list", "params": {}, "id": 1})
        tools = tuple(map(_definition, (listed.get("result") or {}).get("tools") or ()))
        self._field = self.field or (None if tools else await self._text_field(base))
        return Observation(_observed_text(opened.get("observation")), tools=tools)

    async def step(self, action: Action) -> Observation | Done:
        if not action.calls:
            return await self._acted(action.text)
        results, earned = [], []
        for call in action.calls:
            answer = await self._reply_to(
                "step", {"type": "call_tool", "tool_name": call.name, "arguments": call.arguments}
            )
            results.append(_result(call, answer.get("observation")))
            earned.append(answer.get(REWARD))
            if answer.get("done"):
                break
        results += [ToolResult(call, "error: the episode is over", True) for call in action.calls[len(results) :]]
        rewards = self._sum(earned)
        return self._done(rewards) if answer.get("done") else Observation(results=results, rewards=rewards)

    async def cut(self) -> Done:
        """What its turns earned."""
        return self._done({})

    async def close(self) -> None:
        if not hasattr(self, "_socket"):
            return
        with suppress(OSError, WebSocketException):  # the server may be gone
            await self._socket.send(json.dumps({"type": "close"}))
            await self._socket.close()

    async def _acted(self, text: str) -> Observation | Done:
        if self._field is None:
            return self._done({})
        try:
            fields = {self._field: text} if self._field else json.loads(text)
        except ValueError:
            fields = None
        if not isinstance(fields, dict):
            return Observation("error: the action is no JSON object")
        answer = await self._reply_to("step", fields, wrong_is_told=True)
        if (wrong := answer.get("wrong")) is not None:
            return Observation(f"error: {wrong}")
        rewards = self._sum([answer.get(REWARD)])
        return (
            self._done(rewards)
            if answer.get("done")
            else Observation(_observed_text(answer["observation"]), (), rewards)
        )

    def _sum(self, earned: list[Any]) -> Parts:
        """The reward of a turn; nothing where no step of it has one."""
        self._stepped = True
        rewards = [reward for reward in earned if reward is not None]
        self._rewarded = self._rewarded or bool(rewards)
        return {REWARD: sum(rewards)} if rewards else {}

    def _done(self, turn_rewards: Parts) -> Done:
        if not self._stepped and self.no_step is not None:
            return Done({REWARD: self.no_step})
        missing = ScoreFailure("no_reward", "no step of the episode has a reward", self.url)
        return Done({} if self._rewarded else {REWARD: missing}, turn_rewards)

    async def _text_field(self, base: str) -> str:
        """The one text that an action must have; "" where it has others. Raises BackendError."""
        try:
            async with httpx.AsyncClient(timeout=None) as client:
                schema = (await client.get(f"{base}/schema")).raise_for_status().json()["action"]
        except (httpx.HTTPError, ValueError, LookupError) as error:
            raise BackendError(f"the OpenEnv server {self.url} does not describe its actions: {error}") from error
        required = schema.get("required") or ()
        texts = [name for name in required if schema["properties"][name].get("type") == "string"]
        return str(texts[0]) if len(texts) == len(required) == 1 else ""

    async def _reply_to(self, kind: str, message: Mapping[str, Any], *, wrong_is_told: bool = False) -> dict[str, Any]:
        """The data of the reply. Raises BackendError for an error; of an action that the server does not take,
        `wrong` says why where that `is_told`."""
        try:
            await self._socket.send(json.dumps({"type": kind, "data": message}))
            reply = json.loads(await self._socket.recv())
            answer = reply["data"]
            failed = reply["type"] == "error"
        except (OSError, WebSocketException, ValueError, LookupError, TypeError) as error:
            why = str(error) or type(error).__name__
            raise BackendError(f"the OpenEnv server {self.url} does not answer {kind}: {why}") from error
        if failed and wrong_is_told and answer.get("code") == "VALIDATION_ERROR":
            return {"wrong": f"{answer.get('message')}: {json.dumps(answer.get('errors'), default=str)}"}
        if failed:
            raise BackendError(f"the OpenEnv server {self.url} answers {kind} with {answer.get('message')}")
        return dict(answer)


def _definition(tool: Mapping[str, Any]) -> ToolDefinitionPart:
    schema = tool.get("inputSchema") or tool.get("input_schema")
    return ToolDefinitionPart(tool["name"], tool.get("description"), json.dumps(schema) if schema else None)


def _observed_text(observation: Any) -> str:
    """The one text that it has, else all of it as JSON."""
    if not isinstance(observation, Mapping):
        return str(observation or "")
    fields = {name: field for name, field in observation.items() if name not in _SHOWN_NEVER and field is not None}
    [only] = fields.values() if len(fields) == 1 else [None]
    return only if isinstance(only, str) else json.dumps(fields, ensure_ascii=False) if fields else ""


def _result(call: ToolCall, observation: Any) -> ToolResult:
    """What a tool gave: the texts of MCP's content, or the value as it is."""
    error = observation.get("error")
    if error is not None:
        return ToolResult(call, f"error: {error.get('message') or error}", True)
    gave = observation.get("result")
    if isinstance(gave, Mapping) and isinstance(content := gave.get("content"), list):
        texts = [str(part["text"]) for part in content if part.get("type") == "text"]
        return ToolResult(call, "\n".join(texts), bool(gave.get("is_error") or gave.get("isError")))
    return ToolResult(call, gave if isinstance(gave, str) else json.dumps(gave, ensure_ascii=False))
