"""Calls of a language model that are recorded, budgeted and answered in strict JSON.

How a call ends: an answer; a FINAL failure (refused, bad_answer, truncated, too_long, rejected), which another attempt
would repeat; a PASSING one (rate_limited, server_error, timeout, connection), retried before it is given up; not asked
(over_budget, not_asked). Failures are never taken for answers and are asked again by a later run. A wrong key, model or
address concerns every call alike and raises BackendError. An endpoint that fails, or whose answers cannot be read, many
times in a row is given up until the next run.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from assay.errors import AssayError, BackendError, BadInputError
from assay.store.media import MediaFolder
from assay_pipelines.llm.budget import Reservation, Spending
from assay_pipelines.llm.calls import Attempt, CallLog
from assay_pipelines.llm.configuration import EndpointConfig, Structured
from assay_pipelines.llm.images import image_tokens, text_of
from assay_pipelines.llm.prompts import Prompts
from assay_pipelines.llm.replies import ChatReply, StrictAnswer, is_refusal, parse, reply_of, sent_schema
from assay_serving.chat.client import ANSWERED, PASSING, ChatClient, ChatResult, Post
from assay_serving.chat.sent_images import sent_messages

REPAIR = "repair.md"
OVER_BUDGET, NOT_ASKED = "over_budget", "not_asked"
GIVE_UP_AFTER = 10  #: calls in a row without any reply, each tried as often as configured
UNREADABLE_AFTER = 50  #: replies in a row of which none is an answer
BYTES_PER_TOKEN = 3  #: of UTF-8, for reservations only: fewer than common tokenizers', so that they err high

A = TypeVar("A", bound=StrictAnswer)


@dataclass(frozen=True)
class ModelCall(Generic[A]):
    """One question to the model; `kind`: type of the answer."""

    task: str
    ref: str
    messages: tuple[Mapping[str, Any], ...]
    kind: type[A]
    prompt_hash: str
    order: Literal["AB", "BA"] | None = None
    sample: int = 0

    def key(self, config: EndpointConfig) -> str:
        """Identity of all that shapes the answer; the same on every machine and at every address."""
        shape = [self.task, config.identity(), self.messages, sent_schema(self.kind), self.sample]
        return hashlib.sha256(json.dumps(shape, sort_keys=True, default=dict).encode()).hexdigest()[:32]


@dataclass(frozen=True)
class Answered(Generic[A]):
    """`reused`: from an earlier run, without a new call."""

    value: A
    seconds: float
    reused: bool = False


@dataclass(frozen=True, slots=True)
class CallFailure:
    """See the module for the codes."""

    code: str
    message: str

    @property
    def passing(self) -> bool:
        return self.code in PASSING

    @property
    def was_sent(self) -> bool:
        return self.code not in (OVER_BUDGET, NOT_ASKED)


Outcome: TypeAlias = Answered[A] | CallFailure
#: Called with (place of the item, the outcomes of its calls in order).
OnItem: TypeAlias = Callable[[int, Sequence[Outcome[Any]]], None]


class ModelCaller:
    """One endpoint and its known behaviour: whether it takes a schema, when it may be called again."""

    def __init__(self, config: EndpointConfig, prompts: Prompts, media: MediaFolder | None = None) -> None:
        """`media`: where the images of messages are."""
        self.config, self.prompts, self.media = config, prompts, media
        self._structured: Structured = "json_schema" if config.structured == "auto" else config.structured
        self._not_before = 0.0  # of the chat client: it outlives one pass
        self._more_tokens = 1.0  # than `most_tokens` guessed, in the worst reply so far
        self._counted = self._first_out = False  # whether a reply has told its tokens; whether the first call is out
        self._failed_in_a_row = self._unreadable_in_a_row = 0
        self.stopped: str | None = None

    def learn(self, messages: Sequence[Mapping[str, Any]], reply: ChatReply | None) -> None:
        """Update the token estimate from a reply; a call without one lets another go first."""
        if reply is None:
            self._first_out = False
            return
        self._counted = True
        if reply.tokens_in is not None:
            self._more_tokens = max(self._more_tokens, reply.tokens_in / most_tokens(messages))

    def ask_all(
        self,
        items: Sequence[Sequence[ModelCall[Any]]],
        on_item: OnItem,
        *,
        log: CallLog,
        spending: Spending,
        run_id: str | None,
    ) -> str | None:
        """Make every call of every item; returns why it stopped early, if it did. Not to be called inside an event
        loop of the same thread. Raises AssayError for what concerns every call alike."""
        if spending.budget.cost is not None and self.config.price_in is None:
            raise BadInputError("a limit on cost needs prices: give price_in and price_out", field="budget.cost")
        key = self.config.key()
        self.stopped = None
        self._failed_in_a_row = self._unreadable_in_a_row = 0
        paid = log.answers(call.key(self.config) for calls in items for call in calls)
        session = _Session(self, log, spending, run_id, key, paid)
        try:
            asyncio.run(session.run(items, on_item))
        except BaseExceptionGroup as group:
            raise _first(group) from None
        return self.stopped


@dataclass
class _Session:
    endpoint: ModelCaller
    log: CallLog
    spending: Spending
    run_id: str | None
    key: str | None
    paid: Mapping[str, str]

    async def run(self, items: Sequence[Sequence[ModelCall[Any]]], on_item: OnItem) -> None:
        config = self.endpoint.config
        self.written = self.synced = 0
        self.syncing = asyncio.Lock()
        queue = iter(enumerate(items))

        async def work() -> None:
            for index, calls in queue:
                outcomes = await asyncio.gather(*(self.call(call) for call in calls))
                on_item(index, outcomes)
                if self.log.due:
                    await asyncio.to_thread(self._fold)

        self.client = ChatClient(config.chat_endpoint(self.key), not_before=self.endpoint._not_before)
        try:
            async with self.client, asyncio.TaskGroup() as group:
                for _ in range(min(config.concurrency, len(items))):
                    group.create_task(work())
        finally:
            self.endpoint._not_before = self.client.not_before

    def _fold(self) -> None:
        try:
            self.log.fold()
        except AssayError:  # another process holds the store: the attempts are safe in the file
            return

    async def call(self, call: ModelCall[A]) -> Outcome[A]:
        key = call.key(self.endpoint.config)
        if (text := self.paid.get(key)) is not None:
            try:
                return Answered(parse(text, call.kind), 0.0, reused=True)
            except ValueError:
                pass  # stored under other rules of reading: call again
        async with self.client.room:
            return await self._ask(call, key)

    async def _ask(self, call: ModelCall[A], key: str) -> Outcome[A]:
        state = _CallState(call, key, list(call.messages))
        retries = self.client.attempts()
        repairs = 0
        while True:
            result = await self.client.send(partial(self._attempt, state), retries)
            if result.answer is not None:
                return Answered(result.answer, result.seconds)
            if result.outcome == "no_schema":
                continue
            if result.outcome in ("bad_answer", "truncated") and repairs < self.endpoint.config.repairs:
                repairs += 1
                state.messages = self._repaired(call, result)
                continue
            failure = CallFailure(result.outcome, result.error or result.outcome)
            self._count(failure)
            return failure

    async def _reserve(self, messages: Sequence[Mapping[str, Any]]) -> Reservation | CallFailure:
        config = self.endpoint.config
        limits = self.spending.budget
        limited = limits.tokens is not None or limits.cost is not None
        while True:
            if limited and self.endpoint._first_out and not self.endpoint._counted:
                await asyncio.sleep(0.02)  # the first call shows how many tokens this model counts
                continue
            tokens_in = math.ceil(most_tokens(messages) * self.endpoint._more_tokens)
            cost = config.cost(tokens_in, config.max_tokens) or 0.0
            if self.endpoint.stopped is not None:
                code = OVER_BUDGET if self.endpoint.stopped.startswith("budget") else NOT_ASKED
                return CallFailure(code, self.endpoint.stopped)
            reservation = self.spending.reserve(tokens_in + config.max_tokens, cost)
            if isinstance(reservation, Reservation):
                self.endpoint._first_out = True
                return reservation
            if reservation is not None:
                self.endpoint.stopped = reservation
            else:
                await asyncio.sleep(0.02)

    async def _attempt(self, state: _CallState[A], post: Post) -> _Attempted[A]:
        """One request, recorded before its answer is used. Raises BackendError for what concerns every call."""
        call = state.call
        reservation = await self._reserve(state.messages)
        if isinstance(reservation, CallFailure):
            return _Attempted(reservation.code, error=reservation.message)
        state.attempts += 1
        config = self.endpoint.config
        started = time.perf_counter()
        attempted: _Attempted[A] | None = None
        try:
            body = self._body(state)
            attempted = self._read(call, await post(body), with_format="response_format" in body)
        finally:  # a call that is cancelled in flight is counted and not recorded: nobody knows what became of it
            reply = attempted.reply if attempted is not None else None
            self.endpoint.learn(state.messages, reply)
            cost: float | None = None
            if reply is None:
                self.spending.settle(reservation, tokens_in=0, tokens_out=0, cost=0.0)
            elif (
                reply.tokens_in is None or reply.tokens_out is None
            ):  # it does not count: what it may have been at most
                self.spending.settle(
                    reservation,
                    tokens_in=reservation.tokens - config.max_tokens,
                    tokens_out=config.max_tokens,
                    cost=reservation.cost,
                )
            else:
                cost = config.cost(reply.tokens_in, reply.tokens_out)
                self.spending.settle(
                    reservation, tokens_in=reply.tokens_in, tokens_out=reply.tokens_out, cost=cost or 0.0
                )
        attempted.seconds = time.perf_counter() - started
        if self.key and attempted.error:
            attempted.error = attempted.error.replace(self.key, "***")
        self.log.append(
            Attempt(
                call_id=f"{state.key}-{secrets.token_hex(6)}",
                call_key=state.key,
                attempt=state.attempts,
                task=call.task,
                ref=call.ref,
                annotator_id=self.log.annotator_id,
                shown_order=call.order,
                sample=call.sample,
                model=config.model,
                endpoint=config.address,
                prompt_hash=call.prompt_hash,
                outcome=attempted.outcome,
                status=attempted.status,
                tokens_in=reply.tokens_in if reply else None,
                tokens_out=reply.tokens_out if reply else None,
                cost=cost,
                seconds=attempted.seconds,
                error=attempted.error,
                response=reply.text if reply else None,
                run_id=self.run_id,
                created_at=datetime.now(UTC).isoformat(),
            )
        )
        await self._sync()
        self._learn(attempted)
        return attempted

    async def _sync(self) -> None:
        """The attempt just recorded is on the disk; attempts that come together share one fsync."""
        self.written += 1
        mine = self.written
        async with self.syncing:
            if self.synced < mine:
                reached = self.written
                await asyncio.to_thread(self.log.sync)
                self.synced = reached

    def _body(self, state: _CallState[A]) -> dict[str, Any]:
        config, call = self.endpoint.config, state.call
        body: dict[str, Any] = {
            "model": config.model,
            "messages": sent_messages(state.messages, self.endpoint.media),
            "temperature": config.temperature,
            "top_p": config.top_p,
            config.token_field: config.max_tokens,
            **({"seed": call.sample} if config.send_seed else {}),
            **config.extra,
        }
        if self.endpoint._structured == "json_schema":
            schema = {"name": call.task, "strict": True, "schema": sent_schema(call.kind)}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        elif self.endpoint._structured == "json_object":
            body["response_format"] = {"type": "json_object"}
        return body

    def _read(self, call: ModelCall[A], result: ChatResult, *, with_format: bool) -> _Attempted[A]:
        attempted = _Attempted[A](**vars(result), with_format=with_format)
        if attempted.outcome != ANSWERED:
            return attempted
        try:
            reply = reply_of(result.payload)
        except ValueError as error:
            return replace(attempted, outcome="server_error", error=f"the reply is not readable: {error}")
        attempted.reply = reply
        if reply.refusal is not None or reply.finish == "content_filter":
            return replace(attempted, outcome="refused", error=(reply.refusal or "content filter")[:500])
        try:
            if reply.finish == "length" and call.kind.uncut:
                raise ValueError("the reply was cut")
            return replace(attempted, answer=parse(reply.text, call.kind))
        except ValueError as error:
            if reply.finish == "length":
                return replace(attempted, outcome="truncated", error=f"cut at {self.endpoint.config.max_tokens} tokens")
            if is_refusal(reply.text):
                return replace(attempted, outcome="refused", error=reply.text[:500])
            return replace(attempted, outcome="bad_answer", error=str(error)[:500])

    def _learn(self, attempted: _Attempted[A]) -> None:
        endpoint = self.endpoint
        where = endpoint.config.address
        if attempted.outcome in ("fatal", "no_quota"):
            raise BackendError(f"{where} refuses model {endpoint.config.model!r}: {attempted.error}")
        if attempted.outcome == "no_schema":
            if not attempted.with_format:
                raise BackendError(f"{where} still refuses a response format that was not requested: {attempted.error}")
            endpoint._structured = "none"
        if attempted.status == 200 and attempted.reply is not None:
            endpoint._failed_in_a_row = 0
            endpoint._unreadable_in_a_row = 0 if attempted.answer is not None else endpoint._unreadable_in_a_row + 1
            if endpoint._unreadable_in_a_row >= UNREADABLE_AFTER and endpoint.stopped is None:
                endpoint.stopped = f"{UNREADABLE_AFTER} replies in a row without an answer, the last: {attempted.error}"

    def _count(self, failure: CallFailure) -> None:
        if failure.passing or failure.code == "rejected":
            self.endpoint._failed_in_a_row += 1
            if self.endpoint._failed_in_a_row >= GIVE_UP_AFTER and self.endpoint.stopped is None:
                self.endpoint.stopped = f"{GIVE_UP_AFTER} calls in a row failed, the last: {failure.message}"

    def _repaired(self, call: ModelCall[A], attempted: _Attempted[A]) -> list[Mapping[str, Any]]:
        """The conversation with what was wrong, for one more attempt."""
        text = attempted.reply.text if attempted.reply else ""
        schema = json.dumps(sent_schema(call.kind))
        again = self.endpoint.prompts.render(REPAIR, problem=attempted.error or attempted.outcome, schema=schema)
        return [
            *call.messages,
            {"role": "assistant", "content": text[:2000] or "(nothing)"},
            {"role": "user", "content": again},
        ]


def most_tokens(messages: Sequence[Mapping[str, Any]]) -> int:
    """More tokens than the messages are likely to have, whatever the model's tokenizer and template."""
    size = sum(len(text_of(message["content"]).encode("utf-8", "replace")) for message in messages)
    images = sum(image_tokens(message["content"]) for message in messages)
    return size // BYTES_PER_TOKEN + images + 8 * len(messages)


@dataclass
class _CallState(Generic[A]):
    call: ModelCall[A]
    key: str
    messages: list[Mapping[str, Any]]
    attempts: int = 0


@dataclass
class _Attempted(ChatResult, Generic[A]):
    """One attempt with the parsed answer."""

    reply: ChatReply | None = None
    answer: A | None = None
    seconds: float = 0.0
    with_format: bool = False  #: the request asked for a response format


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The exception behind a group: ours before others, an interruption before all."""
    flat: list[BaseException] = []
    stack: list[BaseException] = [group]
    while stack:
        error = stack.pop()
        if isinstance(error, BaseExceptionGroup):
            stack.extend(error.exceptions)
        else:
            flat.append(error)
    return min(flat, key=lambda e: (isinstance(e, Exception), not isinstance(e, AssayError)))
