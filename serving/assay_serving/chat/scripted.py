"""A chat endpoint for tests: it answers by a stated rule, fails by a script and counts its requests.

Covers: every failure that a real endpoint has shown, injected per request; proof that nothing was requested twice.
Leaves out: generating text; the content of requests (the rule's business).

    with running_app(create_chat_app(ScriptedChat(lambda request: "Gold.", faults=once("429")))) as url: ...
"""

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from fastapi import Request, Response
from starlette.types import Receive, Scope, Send

from assay.http.problems import ProblemError
from assay.ids import digest, fraction
from assay_serving.chat.bodies import ChatCompletionRequest

Fault: TypeAlias = Literal[
    "429",  # with Retry-After
    "quota",  # 429 that does not pass
    "500",
    "503",
    "401",
    "404",
    "400",
    "too_long",
    "no_schema",  # 400: it does not take a response format
    "slow",  # answers after `slow_s`
    "reset",  # the connection breaks in the middle of the body
    "broken_body",  # status 200, not JSON
    "no_choices",  # status 200, JSON of another kind
    "bad_json",  # the model's text is cut JSON
    "truncated",  # the same, and the reply says so
    "wrong_schema",
    "refusal",  # in its own field
    "refusal_text",  # in prose
    "content_filter",
]
_ERRORS: dict[str, tuple[int, str, str]] = {
    "429": (429, "Rate limit reached", "rate_limit_exceeded"),
    "quota": (429, "You exceeded your current quota", "insufficient_quota"),
    "500": (500, "The server had an error", "server_error"),
    "503": (503, "The server had an error", "server_error"),
    "401": (401, "no access", "no_access"),
    "404": (404, "no access", "no_access"),
    "400": (400, "Invalid value for temperature", "invalid_value"),
    "too_long": (400, "This model's maximum context length is 4096 tokens", "context_length_exceeded"),
}
_REPLIES: dict[str, dict[str, Any]] = {
    "bad_json": {"text": '{"reasoning": "It is bet'},
    "truncated": {"text": '{"reasoning": "It is bet', "finish": "length"},
    "wrong_schema": {"text": '{"reasoning": "x", "verdict": "the first", "strength": 9}'},
    "refusal": {"text": None, "refusal": "I'm sorry, I can't help with that."},
    "refusal_text": {"text": "I'm sorry, but I can't compare these responses."},
    "content_filter": {"text": "", "finish": "content_filter"},
}
_BODIES = {"broken_body": b"<html>Bad gateway</html>", "no_choices": b'{"object": "list", "data": []}'}


@dataclass(frozen=True)
class ReceivedRequest:
    """One request as the rule and the script see it. `number`: from 0, of all; `repeat`: how many equal ones came
    before."""

    number: int
    repeat: int
    key: str
    body: Mapping[str, Any]


R = TypeVar("R", bound=ReceivedRequest)


def never(_: ReceivedRequest) -> Fault | None:
    return None


def once(fault: Fault) -> Callable[[ReceivedRequest], Fault | None]:
    """Every request fails the first time it comes and is answered from then on."""
    return lambda request: fault if request.repeat == 0 else None


def always(fault: Fault) -> Callable[[ReceivedRequest], Fault | None]:
    return lambda _: fault


def share(chance: float, *faults: Fault, seed: int = 0) -> Callable[[ReceivedRequest], Fault | None]:
    """Any request fails with this chance, drawn by a hash of request and repeat, with one of the faults."""

    def script(request: ReceivedRequest) -> Fault | None:
        if fraction(seed, "fault", request.key, request.repeat) >= chance:
            return None
        return faults[int(fraction(seed, "which", request.key, request.repeat) * len(faults))]

    return script


@dataclass
class ScriptedChat(Generic[R]):
    """A `ModelCompleter`. `rule`: the answer's text, or what its JSON holds. Other threads may read the counts at any
    time."""

    rule: Callable[[R], Mapping[str, Any] | str]
    faults: Callable[[R], Fault | None] = never
    retry_after: str = "0"
    slow_s: float = 5.0
    delay_s: float = 0.0  #: before every answer, as a model takes time
    model: str = "fake"
    key: str | None = None  #: the API key that requests must carry
    counts: bool = True  #: whether replies say how many tokens they took
    count_tokens: Callable[[str], int] = lambda text: len(text) // 4  #: of a text, e.g. by a real tokenizer
    request_type: Callable[[int, int, str, Mapping[str, Any]], R] = ReceivedRequest  # type: ignore[assignment]
    requests: list[R] = field(default_factory=list)
    injected: Counter[str] = field(default_factory=Counter)
    answered: Counter[str] = field(default_factory=Counter)  #: good answers sent, by request key
    most_at_once: int = 0
    supports: frozenset[str] = frozenset({"response_format"})
    _now: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def repeats(self) -> dict[str, int]:
        """Requests that were answered well more than once: paid for twice."""
        return {key: number for key, number in self.answered.items() if number > 1}

    def cards(self) -> list[dict[str, Any]]:
        return [{"id": self.model, "object": "model", "owned_by": "assay"}]

    async def complete(self, body: ChatCompletionRequest, request: Request) -> dict[str, Any] | Response:
        authorization = request.headers.get("authorization", "nothing")
        if self.key is not None and authorization != f"Bearer {self.key}":
            raise ProblemError(401, f"Incorrect API key provided: {authorization}", code="invalid_api_key")
        received = self._received(await request.json())
        fault = self.faults(received)
        with self._lock:
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
            if fault is not None:
                self.injected[fault] += 1
        try:
            if self.delay_s:
                await asyncio.sleep(self.delay_s)
            return await self._answer(received, fault)
        finally:
            with self._lock:
                self._now -= 1

    def _received(self, body: Mapping[str, Any]) -> R:
        with self._lock:
            shape = {name: body.get(name) for name in ("model", "messages", "temperature", "seed")}
            key = digest(json.dumps(shape, sort_keys=True))
            repeat = sum(1 for earlier in self.requests if earlier.key == key)
            request = self.request_type(len(self.requests), repeat, key, body)
            self.requests.append(request)
        return request

    async def _answer(self, request: R, fault: Fault | None) -> dict[str, Any] | Response:
        if fault == "no_schema" and "response_format" in request.body:
            raise ProblemError(400, "response_format is not supported", code="unsupported_parameter")
        if fault in _ERRORS:
            status, message, code = _ERRORS[fault]
            raise ProblemError(
                status, message, code=code, headers={"Retry-After": self.retry_after} if fault == "429" else None
            )
        if fault in _REPLIES:
            return self._reply(request, **_REPLIES[fault])
        if fault in _BODIES:
            return Response(_BODIES[fault], media_type="application/json")
        if fault == "reset":
            return _BrokenResponse()
        if fault == "slow":
            await asyncio.sleep(self.slow_s)
        elif fault is None:
            with self._lock:
                self.answered[request.key] += 1
        answer = self.rule(request)
        return self._reply(request, answer if isinstance(answer, str) else json.dumps(answer))

    def _reply(
        self, request: R, text: str | None, *, finish: str = "stop", refusal: str | None = None
    ) -> dict[str, Any]:
        usage = {
            "prompt_tokens": max(1, sum(self.count_tokens(str(m["content"])) for m in request.body["messages"])),
            "completion_tokens": max(1, self.count_tokens(text or refusal or "")),
        }
        reply: dict[str, Any] = {
            "id": f"chatcmpl-{request.number}",
            "object": "chat.completion",
            "model": self.model,
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": text, "refusal": refusal},
                    "finish_reason": finish,
                }
            ],
        }
        return reply | ({"usage": usage | {"total_tokens": sum(usage.values())}} if self.counts else {})


class _BrokenResponse(Response):
    """Promises more than it sends: the server can only close the connection."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"application/json"), (b"content-length", b"1000")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b'{"choices": ['})
