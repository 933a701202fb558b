"""Our fake of an OpenAI-compatible endpoint: a real HTTP server that answers by a stated rule and fails by a script.

Covers: judging, attribute and correctness calls made with our prompts; faults injected by request; a count of
everything that was asked, so that a test can prove that nothing was asked twice. Leaves out: any language.

    with fake_endpoint(longer_wins(), faults=once("429")) as fake:
        judge = LlmJudge(LlmJudgeConfig(EndpointConfig(fake.base_url, "fake")), workspace)
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from assay.http.running import running_app
from assay.ids import digest
from assay_pipelines.llm.questions import fraction

Fault: TypeAlias = Literal[
    "429",  # with Retry-After
    "quota",  # 429, but for good
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
    "truncated",  # the same, and it says so
    "wrong_schema",
    "refusal",  # in the field for it
    "refusal_text",  # in prose
    "content_filter",
]
_SECTION = re.compile(r"^=== (?P<title>.+?) \[(?P<mark>[0-9a-f]{8})\]\n", re.MULTILINE)


@dataclass(frozen=True)
class Asked:
    """One request as the rule and the script see it. `number`: from 0, of all; `repeat`: how many equal ones came
    before. `sections`: the last text under each title, by its mark."""

    number: int
    repeat: int
    key: str
    task: str
    body: Mapping[str, Any]
    sections: Mapping[str, str]

    @property
    def candidates(self) -> tuple[str, str]:
        return self.sections["Candidate 1"], self.sections["Candidate 2"]


Rule: TypeAlias = Callable[[Asked], Mapping[str, Any]]
Script: TypeAlias = Callable[[Asked], Fault | None]


def longer_wins(*, position_bias: float = 0.0, seed: int = 0) -> Rule:
    """Judges by length; with chance `position_bias` takes Candidate 1 whatever it is. Attributes and checks are
    constant."""
    return prefers(lambda text: len(text), position_bias=position_bias, seed=seed)


def prefers(worth: Callable[[str], float], *, accuracy: float = 1.0, position_bias: float = 0.0, seed: int = 0) -> Rule:
    """Judges by `worth`; the better one wins with chance `accuracy`, drawn from the pair and not from its order."""

    def rule(request: Asked) -> Mapping[str, Any]:
        if request.task == "attributes":
            return {
                "task_category": "chat",
                "objectivity": "objective",
                "controversiality": "low",
                "desired": "A helpful answer.",
                "guideline": "Prefer the longer one.",
            }
        if request.task == "correctness":
            text = request.sections["Response to check"]
            return {"reasoning": "By its worth.", "verdict": "correct" if worth(text) > 0 else "incorrect"}
        first, second = request.candidates
        pair = digest("\x1f".join(sorted((first, second))))
        if fraction(seed, "position", pair, request.key) < position_bias:
            return {"reasoning": "It came first.", "verdict": "1", "strength": 1, "confidence": 0.6}
        one, other = worth(first), worth(second)
        if one == other:
            return {"reasoning": "They are equal.", "verdict": "tie", "strength": 0, "confidence": 0.5}
        right = fraction(seed, "accuracy", pair) < accuracy
        verdict = "1" if (one > other) == right else "2"
        return {"reasoning": "By its worth.", "verdict": verdict, "strength": 2, "confidence": 0.9}

    return rule


def never(_: Asked) -> Fault | None:
    """No fault."""
    return None


def once(fault: Fault) -> Script:
    """Every request fails the first time it comes and is answered from then on."""
    return lambda asked: fault if asked.repeat == 0 else None


def always(fault: Fault) -> Script:
    return lambda _: fault


def share(chance: float, *faults: Fault, seed: int = 0) -> Script:
    """Any request fails with this chance, drawn by a hash of request and repeat, with one of the faults."""

    def script(request: Asked) -> Fault | None:
        if fraction(seed, "fault", request.key, request.repeat) >= chance:
            return None
        return faults[int(fraction(seed, "which", request.key, request.repeat) * len(faults))]

    return script


@dataclass
class FakeEndpoint:
    """The running fake. Threads of the test may read it at any time."""

    rule: Rule
    faults: Script = never
    retry_after: str = "0"
    slow_s: float = 5.0
    delay_s: float = 0.0  #: before every answer, as a model takes time
    model: str = "fake"
    key: str | None = None  #: the API key it wants
    counts: bool = True  #: whether replies say how many tokens they took
    base_url: str = ""
    asked: list[Asked] = field(default_factory=list)
    injected: Counter[str] = field(default_factory=Counter)
    answered: Counter[str] = field(default_factory=Counter)  #: good answers sent, by request key
    most_at_once: int = 0
    _now: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def repeats(self) -> dict[str, int]:
        """Requests that were answered well more than once: paid for twice."""
        return {key: number for key, number in self.answered.items() if number > 1}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            while (await receive())["type"] != "lifespan.shutdown":
                await send({"type": "lifespan.startup.complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        request = Request(scope, receive)
        if scope["path"] != "/v1/chat/completions" or scope["method"] != "POST":
            await _reply(send, 404, _error("no such path", "not_found"))
            return
        if self.key is not None and request.headers.get("authorization") != f"Bearer {self.key}":
            authorization = request.headers.get("authorization", "nothing")
            await _reply(send, 401, _error(f"Incorrect API key provided: {authorization}", "invalid_api_key"))
            return
        asked = self._note(json.loads(await request.body()))
        fault = self.faults(asked)
        with self._lock:
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
            if fault is not None:
                self.injected[fault] += 1
        try:
            if self.delay_s:
                await asyncio.sleep(self.delay_s)
            await self._answer(asked, fault, send)
        finally:
            with self._lock:
                self._now -= 1

    def _note(self, body: Mapping[str, Any]) -> Asked:
        text = body["messages"][1]["content"]
        marks = list(_SECTION.finditer(text))
        sections = {
            match["title"]: text[match.end() : following.start()].rstrip("\n")
            for match, following in zip(marks, [*marks[1:], None], strict=True)
            if following is not None
        }
        task = "correctness" if "Response to check" in sections else "judge"
        if "You describe a pair" in body["messages"][0]["content"]:
            task = "attributes"
        with self._lock:
            shape = {name: body.get(name) for name in ("model", "messages", "temperature", "seed")}
            key = digest(json.dumps(shape, sort_keys=True))
            repeat = sum(1 for earlier in self.asked if earlier.key == key)
            asked = Asked(len(self.asked), repeat, key, task, body, sections)
            self.asked.append(asked)
        return asked

    async def _answer(self, asked: Asked, fault: Fault | None, send: Send) -> None:
        match fault:
            case "429":
                headers = {"Retry-After": self.retry_after}
                await _reply(send, 429, _error("Rate limit reached", "rate_limit_exceeded"), headers)
            case "quota":
                await _reply(send, 429, _error("You exceeded your current quota", "insufficient_quota"))
            case "500" | "503":
                await _reply(send, int(fault), _error("The server had an error", "server_error"))
            case "401" | "404":
                await _reply(send, int(fault), _error("no access", "no_access"))
            case "400":
                await _reply(send, 400, _error("Invalid value for temperature", "invalid_value"))
            case "too_long":
                told = "This model's maximum context length is 4096 tokens"
                await _reply(send, 400, _error(told, "context_length_exceeded"))
            case "no_schema":
                if "response_format" in asked.body:
                    await _reply(send, 400, _error("response_format is not supported", "unsupported_parameter"))
                else:
                    await self._say(send, asked)
            case "reset":
                await _break(send)
            case "broken_body":
                await _reply(send, 200, b"<html>Bad gateway</html>")
            case "no_choices":
                await _reply(send, 200, b'{"object": "list", "data": []}')
            case "bad_json":
                await self._say(send, asked, text='{"reasoning": "It is bet')
            case "truncated":
                await self._say(send, asked, text='{"reasoning": "It is bet', finish="length")
            case "wrong_schema":
                await self._say(send, asked, text='{"reasoning": "x", "verdict": "the first", "strength": 9}')
            case "refusal":
                await self._say(send, asked, text=None, refusal="I'm sorry, I can't help with that.")
            case "refusal_text":
                await self._say(send, asked, text="I'm sorry, but I can't compare these responses.")
            case "content_filter":
                await self._say(send, asked, text="", finish="content_filter")
            case "slow":
                await asyncio.sleep(self.slow_s)
                await self._say(send, asked)
            case _:
                with self._lock:
                    self.answered[asked.key] += 1
                await self._say(send, asked)

    async def _say(
        self,
        send: Send,
        asked: Asked,
        *,
        text: str | None = "",
        finish: str = "stop",
        refusal: str | None = None,
    ) -> None:
        if text == "" and finish == "stop":
            text = json.dumps(self.rule(asked))
        counted = sum(len(m["content"]) for m in asked.body["messages"])
        usage = {"prompt_tokens": max(1, counted // 4), "completion_tokens": max(1, len(text or refusal or "") // 4)}
        message = {"role": "assistant", "content": text, "refusal": refusal}
        payload: dict[str, Any] = {
            "id": f"chatcmpl-{asked.number}",
            "object": "chat.completion",
            "model": self.model,
            "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        }
        if self.counts:
            payload["usage"] = usage | {"total_tokens": sum(usage.values())}
        await _reply(send, 200, json.dumps(payload).encode())


@contextmanager
def fake_endpoint(rule: Rule, *, port: int = 0, **settings: Any) -> Iterator[FakeEndpoint]:
    """Run a fake; `settings` are the other fields of `FakeEndpoint`."""
    fake = FakeEndpoint(rule, **settings)
    with running_app(fake, port=port) as url:
        fake.base_url = f"{url}/v1"
        yield fake


def _error(message: str, code: str) -> bytes:
    return json.dumps({"error": {"message": message, "type": "error", "code": code}}).encode()


async def _reply(send: Send, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
    raw = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    raw += [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body})


async def _break(send: Send) -> None:
    """Promise more than is sent: the server can only close the connection."""
    headers = [(b"content-type", b"application/json"), (b"content-length", b"1000")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b'{"choices": ['})
