"""The model that verifiers' agents ask: a chat-completions endpoint whose replies are the turns of a policy.

Covers: one conversation an episode, told by the request's model name; which messages of a request are new; replies
with tool calls, whole or as events. Leaves out: running episodes (`verifiers`), other wire formats than OpenAI's chat.
"""

import asyncio
import json
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, TypeAlias

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from assay.domain import Role
from assay.errors import BackendError
from assay.http.running import running_app
from assay_serving.tools.tool import ToolCall

#: Role, text, and of a tool's message the call that it answers.
Turn: TypeAlias = tuple[Role, str, str]
CALL = "<tool_call>"
#: The status, type and code by which clients know that a conversation does not fit the model.
_FULL = {
    "message": "the maximum context length is reached",
    "code": "context_length_exceeded",
    "type": "invalid_request",
}


@dataclass(frozen=True)
class TurnRequest:
    """A request for the policy's next turn. `messages`: those that it has not read."""

    messages: Sequence[Turn]
    tools: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class RunEnd:
    """The episode of verifiers, or what it raised."""

    episode: Any
    error: BaseException | None = None


class AgentConversation:
    """One episode's requests and replies, each awaited by the other side's thread."""

    def __init__(self, close: Any) -> None:
        self.history: list[Turn] = []  #: what the policy has read and said
        self._close = close
        self._lock = threading.Lock()
        self._next: Future[TurnRequest | RunEnd | BackendError] = Future()
        self._reply: Future[dict[str, Any]] | None = None
        self._ended: RunEnd | None = None
        self._episode: Future[Any] | None = None

    def of(self, episode: "Future[Any]") -> None:
        """The run of verifiers that asks."""
        self._episode = episode
        episode.add_done_callback(self._end)

    async def next(self) -> TurnRequest | RunEnd:
        """The next request, or the end. Raises BackendError for a request that does not go on from the last one."""
        event = await asyncio.wrap_future(self._next)
        if isinstance(event, BackendError):
            raise event
        return event

    def reply(self, text: str, calls: Mapping[str, ToolCall]) -> None:
        """The policy's turn."""
        listed = [
            {"id": one, "type": "function", "function": {"name": call.name, "arguments": json.dumps(call.arguments)}}
            for one, call in calls.items()
        ]
        self.history.append(("assistant", text.strip(), ""))
        self._answer({"role": "assistant", "content": text or None, **({"tool_calls": listed} if listed else {})})

    def refuse(self) -> None:
        """There is no next turn."""
        self._answer({})

    def ask(self, body: Mapping[str, Any]) -> "Future[dict[str, Any]]":
        """A request of the agent's program; its reply."""
        with self._lock:
            reply: Future[dict[str, Any]] = Future()
            if self._next.done():
                reply.set_exception(BackendError("two requests at one time: the policy plays one agent"))
                return reply
            self._reply = reply
            try:
                self._next.set_result(self._new(body))
            except BackendError as error:
                self._next.set_result(error)
            return reply

    def close(self) -> None:
        """Give up what is still under way."""
        if self._episode is not None:
            self._episode.cancel()
        if self._reply is not None:
            self._reply.cancel()
        self._close()

    def _new(self, body: Mapping[str, Any]) -> TurnRequest:
        turns = [_turn(message) for message in body["messages"]]
        before = [(role, text.strip()) for role, text, _ in turns[: len(self.history)]]
        if before != [(role, text.strip()) for role, text, _ in self.history]:
            raise BackendError(
                "the agent's program rewrote the conversation, or a second agent asks: the policy has read another one"
            )
        new = turns[len(self.history) :]
        if not self.history and any(message.get("tool_calls") for message in body["messages"]):
            raise BackendError("the task's prompt has calls of tools, which are the policy's alone")
        if self.history and any(role == "assistant" for role, _, _ in new):
            raise BackendError("the agent's program says in the policy's name what it did not say")
        self.history = turns
        return TurnRequest(new, [tool["function"] for tool in body.get("tools") or ()])

    def _answer(self, message: dict[str, Any]) -> None:
        with self._lock:
            reply, self._reply, self._next = self._reply, None, Future()
            if self._ended is not None:
                self._next.set_result(self._ended)
        if reply is not None and not reply.done():
            reply.set_result(message)

    def _end(self, episode: "Future[Any]") -> None:
        if episode.cancelled():
            ended = RunEnd(None, CancelledError("the episode was given up"))
        else:
            error = episode.exception()
            ended = RunEnd(None if error else episode.result(), error)
        with self._lock:
            self._ended = ended
            if not self._next.done():
                self._next.set_result(ended)


class PolicyEndpoint:
    """Those under way, by the name that their requests ask for as a model, and the server."""

    def __init__(self) -> None:
        self._open: dict[str, AgentConversation] = {}
        self._stack = ExitStack()
        app = FastAPI()
        app.post("/v1/chat/completions")(self._complete)
        self.url = self._stack.enter_context(running_app(app)) + "/v1"

    def open(self) -> tuple[str, AgentConversation]:
        name = f"policy-{uuid.uuid4().hex}"
        conversation = self._open[name] = AgentConversation(lambda: self._open.pop(name, None))
        return name, conversation

    def close(self) -> None:
        self._stack.close()

    async def _complete(self, request: Request) -> Response:
        body = await request.json()
        conversation = self._open.get(body["model"])
        try:
            if conversation is None:
                raise BackendError("there is no such conversation: it has ended")
            message = await asyncio.wrap_future(conversation.ask(body))
        except (BackendError, asyncio.CancelledError) as error:
            return JSONResponse({"error": {"message": str(error) or "the episode has ended"}}, 409)
        if not message:
            return JSONResponse({"error": _FULL}, 400)
        if body.get("stream"):
            return StreamingResponse(_events(body["model"], message), media_type="text/event-stream")
        return JSONResponse({**_head(body["model"], ""), "choices": [_choice(message, "message")], "usage": _USAGE})


_USAGE = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}  # the run's own record counts them


def _head(model: str, kind: str) -> dict[str, Any]:
    return {"id": "turn", "object": f"chat.completion{kind}", "created": 0, "model": model}


def _choice(message: Mapping[str, Any], key: str) -> dict[str, Any]:
    reason = "tool_calls" if message.get("tool_calls") else "stop"
    return {"index": 0, key: message, "finish_reason": reason}


def _events(model: str, message: Mapping[str, Any]) -> Iterator[str]:
    """The reply as one event, then the usage."""
    delta = dict(message)
    if calls := delta.get("tool_calls"):
        delta["tool_calls"] = [{"index": number, **call} for number, call in enumerate(calls)]
    head = _head(model, ".chunk")
    for event in ({**head, "choices": [_choice(delta, "delta")]}, {**head, "choices": [], "usage": _USAGE}):
        yield f"data: {json.dumps(event)}\n\n"
    yield "data: [DONE]\n\n"


def _turn(message: Mapping[str, Any]) -> Turn:
    """Raises BackendError for what is no text."""
    content = message.get("content") or ""
    if not isinstance(content, str):
        if odd := [part.get("type") for part in content if part.get("type") != "text"]:
            raise BackendError(f"the agent's program shows the policy {odd[0]}, which is no text")
        content = "\n".join(part["text"] for part in content)
    return message["role"], content, str(message.get("tool_call_id") or "")


def without_calls(text: str) -> str:
    """What a turn says beside its calls, as servers that read calls reply it."""
    return text.partition(CALL)[0].strip() if CALL in text else ""
