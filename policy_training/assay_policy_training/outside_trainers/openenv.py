"""An environment behind the WebSocket of OpenEnv's servers, for its clients: a connection is an episode at a time.

Covers: `reset` (with a `task`, the number of a prompt, and a `seed`), `step` with a text or a call of a tool, `state`,
`tools/list`; `/schema` and `/health`. An episode without a reward is an error reply, never a number. Leaves out: HTTP's
own `/reset` and `/step`, which keep nothing between requests. Wire format: openenv 0.10.
"""

from typing import Any

from fastapi import APIRouter, WebSocket, WebSocketDisconnect

from assay.data.json_lines import parse_object
from assay.errors import AssayError, BadInputError
from assay_policy_training.outside_trainers.led_episode import LedEpisode, observed_text
from assay_policy_training.outside_trainers.sessions import Sessions

_TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


def openenv_routes(sessions: Sessions) -> APIRouter:
    router = APIRouter()

    @router.get("/schema")
    async def schema() -> dict[str, Any]:
        return {"action": _TEXT, "observation": _TEXT, "state": {"type": "object", "properties": {}}}

    @router.websocket("/ws")
    async def connected(socket: WebSocket) -> None:
        await socket.accept()
        connection = _Connection(sessions)
        try:
            while (reply := await _replied(connection, await socket.receive_text())) is not None:
                await socket.send_json(reply)
        except WebSocketDisconnect:
            pass
        finally:
            await sessions.close(connection.name)

    return router


async def _replied(connection: "_Connection", text: str) -> dict[str, Any] | None:
    """None: the client ends the connection."""
    try:
        message = parse_object(text.encode())
        if (kind := message.get("type")) == "close":
            return None
        content = message.get("data") or {}
        if not isinstance(content, dict):
            raise BadInputError("must be an object", field="data")
        return await connection.reply(kind, content)
    except AssayError as error:
        code = "VALIDATION_ERROR" if isinstance(error, BadInputError) else "EXECUTION_ERROR"
        return {"type": "error", "data": {"message": str(error), "code": code}}


class _Connection:
    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self.name: str | None = None

    async def reply(self, kind: Any, content: dict[str, Any]) -> dict[str, Any]:
        if kind == "reset":
            task, seed = content.get("task") or 0, content.get("seed")
            if type(task) is not int or type(seed) not in (int, type(None)):
                raise BadInputError("are whole numbers", field="task, seed")
            await self._sessions.close(self.name)
            self.name, episode = await self._sessions.begin(task, seed)
            opened = "\n\n".join(str(message["content"]) for message in episode.prompt)
            return _observation({"text": opened}, None, episode)
        episode = self._sessions.find(self.name)
        match kind:
            case "step":
                return await _stepped(episode, content)
            case "state":
                return {"type": "state", "data": {"episode_id": self.name, "step_count": len(episode.episode.turns)}}
            case "mcp" if content.get("method") == "tools/list":
                tools = [{**each, "inputSchema": each["parameters"]} for each in episode.functions]
                return {"type": "mcp", "data": {"jsonrpc": "2.0", "id": content.get("id"), "result": {"tools": tools}}}
        raise BadInputError(f"a message of the type {kind!r}", field="type")


async def _stepped(episode: LedEpisode, action: dict[str, Any]) -> dict[str, Any]:
    if action.get("type") == "list_tools":
        tools = [{**each, "input_schema": each["parameters"]} for each in episode.functions]
        return _observation({"tools": tools}, None, episode)
    if action.get("type") == "call_tool":
        name = action.get("tool_name")
        turn = await episode.turn("", [(str(name), action.get("arguments") or {})])
        [answer] = turn.results or [None]
        seen: dict[str, Any] = {"tool_name": name, "result": answer and answer.content, "error": None}
        if answer is not None and answer.error:
            seen |= {"result": None, "error": {"error_type": "execution_error", "message": answer.content}}
    elif isinstance(action.get("text"), str):
        turn = await episode.turn(action["text"])
        seen = {"text": "\n\n".join([*(answer.content for answer in turn.results), observed_text(turn.messages)])}
    else:
        raise BadInputError("an action is a text, or a call of a tool", field="text")
    return _observation(seen, episode.newly_earned(), episode)


def _observation(seen: dict[str, Any], reward: float | None, episode: LedEpisode) -> dict[str, Any]:
    return {"type": "observation", "data": {"observation": seen, "reward": reward, "done": episode.over}}
