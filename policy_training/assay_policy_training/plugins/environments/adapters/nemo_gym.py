"""A running resource server of NeMo-Gym, over HTTP: its sessions, tools and rewards.

Covers: servers with tools and `/verify`, and those with `/reset` and `/step` (its Gymnasium base), as its own agents
(`simple_agent`, `gymnasium_agent`) call them. A prompt is a row of its data: the whole row is sent, the tools are those
of `responses_create_params`. What the server cannot measure (`mask_sample`) fails by name, as does a reward that is
missing or no number. Leaves out: MCP tools and sandboxes, which it grants to agents that run themselves; starting the
server. Wire format: nemo-gym 0.7, `base_resources_server.py`, `resources_servers/gymnasium/base.py`.
"""

import json
import ssl
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, Literal
from uuid import uuid4

import httpx

from assay.conversation.parts import ToolDefinitionPart
from assay.errors import BackendError, BadInputError
from assay.score import ScoreFailure
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.plugins.environments.environment import Action, Done, Environment, Observation, Parts
from assay_serving.tools.calls import beside_calls
from assay_serving.tools.tool import ToolCall, ToolResult

REWARD = "reward"
_PARAMS = "responses_create_params"


class NemoGym(Environment):
    """`url`: of the resource server. `protocol`: `verify` for tools whose rollout `/verify` rewards, `gymnasium` for
    `/reset` and `/step`, whose rewards are of turns. `components`: of servers with several rewards, their
    `reward_components` in place of the one reward."""

    parts: ClassVar[tuple[str, ...]] = (REWARD,)
    url: str
    protocol: Literal["verify", "gymnasium"] = "verify"
    components: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.url.startswith(("http://", "https://")):
            raise BadInputError("the address of a resource server, http://HOST:PORT", field="environment.url")

    async def reset(self, prompt: PromptItem, seed: int) -> Observation:
        """Raises BadInputError for a row whose tools are no functions, BackendError for a server that does not
        answer."""
        self._client = httpx.AsyncClient(base_url=self.url.rstrip("/"), timeout=None, verify=_certificates())
        params = {"input": [turn.to_dict() for turn in prompt.prompt], **(prompt.meta.get(_PARAMS) or {})}
        self._row = {**_data(prompt.meta), _PARAMS: params}
        self._output: list[dict[str, Any]] = []
        tools = tuple(map(_definition, params.get("tools") or ()))
        if self.protocol == "verify":
            await self._post("/seed_session", self._row)
            return Observation(tools=tools)
        opened = await self._post("/reset", self._row)
        self._closes = bool((opened.get("info") or {}).get("supports_explicit_close"))
        return Observation(opened.get("observation") or (), tools=tools)

    async def step(self, action: Action) -> Observation | Done:
        written = _items(action)
        if self.protocol == "gymnasium":
            return await self._stepped(action, written)
        self._output += written
        if not action.calls:
            return await self._verified()
        results = [await self._called(call) for call in action.calls]
        ids = [entry["call_id"] for entry in written if entry["type"] == "function_call"]
        self._output += [
            {"type": "function_call_output", "call_id": call_id, "output": answer.content}
            for call_id, answer in zip(ids, results, strict=True)
        ]
        return Observation(results=results)

    async def cut(self) -> Done | None:
        """The reward of a rollout that ends early, as NeMo-Gym's agent has it verified; with `/step`, of its turns."""
        return await self._verified() if self.protocol == "verify" else Done()

    async def close(self) -> None:
        if not hasattr(self, "_client"):
            return
        try:
            if getattr(self, "_closes", False):
                await self._post("/close", {})
        finally:
            await self._client.aclose()

    async def _called(self, call: ToolCall) -> ToolResult:
        """Errors of a tool are for the policy to read, as NeMo-Gym's agent shows them."""
        reply = await self._reply(f"/{call.name}", call.arguments)
        return ToolResult(call, reply.text, reply.is_error)

    async def _verified(self) -> Done:
        verdict = await self._post("/verify", {**self._row, "response": _response(self._output)})
        if verdict.get("mask_sample"):
            why = verdict.get("failure_reason") or verdict.get("failure_kind") or "the server masks this sample"
            return Done({REWARD: ScoreFailure("masked", str(why)[:2000], self.url)})
        if not self.components:
            return Done(self._reward(verdict))
        components = verdict.get("reward_components")
        if isinstance(components, Mapping) and components:
            return Done(components)
        return Done({REWARD: ScoreFailure("no_reward", "the verdict has no reward_components", self.url)})

    async def _stepped(self, action: Action, written: list[dict[str, Any]]) -> Observation | Done:
        answer = await self._post("/step", {**self._row, "response": _response(written)})
        if answer.get("terminated") or answer.get("truncated"):
            return Done(turn_rewards=self._reward(answer))
        outputs = (answer.get("info") or {}).get("tool_outputs") or []
        by_id = {output["call_id"]: str(output["output"]) for output in outputs}
        ids = [entry["call_id"] for entry in written if entry["type"] == "function_call"]
        results = [
            ToolResult(call, by_id.get(call_id, "error: no output of this call"), call_id not in by_id)
            for call, call_id in zip(action.calls, ids, strict=True)
        ]
        return Observation(answer.get("observation") or (), results if by_id else (), self._reward(answer))

    def _reward(self, answer: Mapping[str, Any]) -> Parts:
        if answer.get(REWARD) is None:
            return {REWARD: ScoreFailure("no_reward", "the server's answer has no reward", self.url)}
        return {REWARD: answer[REWARD]}

    async def _post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """The JSON object that is answered. Raises BackendError."""
        reply = await self._reply(path, body)
        try:
            answer = reply.json() if reply.is_success else None
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            why = f"{reply.status_code} {reply.text[:300]}" if reply.is_error else f"{reply.text[:300]!r}, no object"
            raise BackendError(f"the resource server {self.url} answers {path} with {why}")
        return answer

    async def _reply(self, path: str, body: Mapping[str, Any]) -> httpx.Response:
        try:
            return await self._client.post(path, json=body)
        except httpx.HTTPError as error:
            raise BackendError(
                f"the resource server {self.url} does not answer {path}: {error or type(error).__name__}"
            ) from error


@cache
def _certificates() -> ssl.SSLContext:
    return httpx.create_ssl_context()


def _data(meta: Mapping[str, Any]) -> dict[str, Any]:
    """What a row has beside the prompt."""
    return {name: meta[name] for name in meta if name != _PARAMS}


def _definition(tool: Any) -> ToolDefinitionPart:
    if not isinstance(tool, Mapping) or tool.get("type") != "function" or not tool.get("name"):
        kind = tool.get("type") if isinstance(tool, Mapping) else type(tool).__name__
        raise BadInputError(f"a tool of the type {kind!r}: only functions can be called", field=f"{_PARAMS}.tools")
    schema = tool.get("parameters")
    return ToolDefinitionPart(tool["name"], tool.get("description"), json.dumps(schema) if schema else None)


def _items(action: Action) -> list[dict[str, Any]]:
    """A turn as items of OpenAI's Responses: what it says, then its calls."""
    text = beside_calls(action.text)
    content = [{"type": "output_text", "text": text, "annotations": []}]
    message = {"id": "message", "type": "message", "role": "assistant", "status": "completed", "content": content}
    calls = [
        {
            "type": "function_call",
            "id": (call_id := uuid4().hex),
            "call_id": call_id,
            "name": call.name,
            "arguments": json.dumps(call.arguments),
            "status": "completed",
        }
        for call in action.calls
    ]
    return [*([message] if text or not calls else []), *calls]


def _response(output: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """OpenAI's Responses object of these items."""
    fixed = {"object": "response", "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    return {"id": "episode", "created_at": 0.0, "model": "policy", "output": list(output), **fixed}
