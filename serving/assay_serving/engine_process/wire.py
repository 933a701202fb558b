"""The messages between a front and the engine process, and their bytes.

Covers: requests with their shared text written once, answers, refusals as the errors they were, MessagePack (by
msgspec: typed on arrival, floats bit for bit, no code in it). Leaves out: framing and sockets (`connection`).
"""

from __future__ import annotations

from typing import Any, TypeAlias, TypeVar

import msgspec

import assay.errors
from assay.domain import Prompt
from assay.errors import AssayError, BackendError, BadInputError, BusyError
from assay.score import Score, ScoreFailure
from assay_serving.scorer import ModelInfo, Rendered, ScoreItem
from assay_serving.server.core.scoring_backend import (
    ChatRequest,
    ChatResponse,
    Client,
    Priority,
    ScoreRequest,
    ScoreResponse,
)


class Message(msgspec.Struct, frozen=True, array_like=True):
    """Base of all messages: an array whose first member is the tag."""


class Hello(Message, frozen=True, array_like=True, tag=0):
    """A front's first message: the token that the supervisor gave to its children only."""

    token: str


class Cancel(Message, frozen=True, array_like=True, tag=1):
    """The caller of request `id` is gone. It is not answered."""

    id: int


class SentItem(msgspec.Struct, frozen=True, array_like=True):
    """A `ScoreItem` whose prompt and texts are places in the message's tables."""

    prompt: int
    response: int
    principle: int | None
    label: int | None
    references: tuple[int, ...]
    rendered: Rendered | None


class AskScore(Message, frozen=True, array_like=True, tag=2):
    """A `ScoreRequest`. `prompts`, `texts`: each once, however many items share it."""

    id: int
    prompts: list[Prompt]
    texts: list[str]
    items: list[SentItem]
    model: str | None
    priority: int
    timeout_s: float
    client: Client
    request_id: str | None


class AskChat(Message, frozen=True, array_like=True, tag=3):
    id: int
    request: ChatRequest


class AskManage(Message, frozen=True, array_like=True, tag=4):
    id: int
    order: dict[str, Any]


class AskModels(Message, frozen=True, array_like=True, tag=5):
    id: int


class AskMetrics(Message, frozen=True, array_like=True, tag=6):
    id: int


class State(Message, frozen=True, array_like=True, tag=7):
    """The engine's first message, and sent anew when it changes. `loading_s`: seconds that its models took to load."""

    ready: bool
    loading_s: float


class Scored(Message, frozen=True, array_like=True, tag=8):
    """A `ScoreResponse`. `results`: of each item the score, or else the failure."""

    id: int
    model: str
    version: str
    results: list[tuple[Score | None, ScoreFailure | None]]
    cached: int


class Chatted(Message, frozen=True, array_like=True, tag=9):
    id: int
    answer: ChatResponse


class Managed(Message, frozen=True, array_like=True, tag=10):
    id: int
    outcome: dict[str, Any]


class Models(Message, frozen=True, array_like=True, tag=11):
    """`absent`: see `ScoringBackend.absent`."""

    id: int
    infos: list[ModelInfo]
    absent: dict[str, str]


class Metrics(Message, frozen=True, array_like=True, tag=12):
    id: int
    text: bytes


class Refused(Message, frozen=True, array_like=True, tag=13):
    """The `AssayError` that answers request `id`. `kind`: its class in `assay.errors`; "" for a fault of the server."""

    id: int
    kind: str
    message: str
    retry_after: float | None = None
    field: str | None = None


Question: TypeAlias = AskScore | AskChat | AskManage | AskModels | AskMetrics
Asked: TypeAlias = Hello | Cancel | AskScore | AskChat | AskManage | AskModels | AskMetrics
Answered: TypeAlias = State | Scored | Chatted | Managed | Models | Metrics | Refused

T = TypeVar("T")

_encoder = msgspec.msgpack.Encoder()
_asked: msgspec.msgpack.Decoder[Asked] = msgspec.msgpack.Decoder(Asked)
_answered: msgspec.msgpack.Decoder[Answered] = msgspec.msgpack.Decoder(Answered)


def encode(message: Message) -> bytes:
    """Raises BadInputError for text that is no Unicode and numbers past 64 bits, which only a caller's JSON brings."""
    try:
        return _encoder.encode(message)
    except UnicodeEncodeError:
        raise BadInputError("the text holds half of a surrogate pair: it is no Unicode") from None
    except OverflowError:
        raise BadInputError("a whole number is too large") from None


def decode_asked(data: bytes | memoryview) -> Asked:
    """Raises BackendError for bytes that are no message to the engine."""
    return _decoded(_asked, data)


def decode_answered(data: bytes | memoryview) -> Answered:
    """Raises BackendError for bytes that are no message to a front."""
    return _decoded(_answered, data)


def _decoded(decoder: msgspec.msgpack.Decoder[T], data: bytes | memoryview) -> T:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, AssayError, ValueError) as error:
        raise BackendError(f"no message of this version of Assay: {type(error).__name__}") from None


def ask_score(number: int, request: ScoreRequest) -> AskScore:
    """The message of a request. A prompt of many responses, a response to many principles travel once."""
    prompts: dict[Prompt, int] = {}
    texts: dict[str, int] = {}

    def text(value: str) -> int:
        return texts.setdefault(value, len(texts))

    items = [
        SentItem(
            prompts.setdefault(item.prompt, len(prompts)),
            text(item.response),
            None if item.principle is None else text(item.principle),
            None if item.label is None else text(item.label),
            tuple(map(text, item.references)),
            item.rendered,
        )
        for item in request.items
    ]
    return AskScore(
        number,
        list(prompts),
        list(texts),
        items,
        request.model,
        int(request.priority),
        request.timeout_s,
        request.client,
        request.request_id,
    )


def score_request(message: AskScore) -> ScoreRequest:
    """Inverse of `ask_score`; equal texts are one object. Raises BackendError for a place that no table has."""
    prompts, texts = message.prompts, message.texts
    try:
        items = tuple(
            ScoreItem(
                prompts[item.prompt],
                texts[item.response],
                None if item.principle is None else texts[item.principle],
                item.rendered,
                None if item.label is None else texts[item.label],
                tuple(texts[place] for place in item.references),
            )
            for item in message.items
        )
        priority = Priority(message.priority)
    except (IndexError, ValueError) as error:
        raise BackendError(f"no message of this version of Assay: {type(error).__name__}") from None
    return ScoreRequest(items, message.model, priority, message.timeout_s, message.client, message.request_id)


def scored(number: int, answer: ScoreResponse) -> Scored:
    results: list[tuple[Score | None, ScoreFailure | None]] = [
        (result, None) if isinstance(result, Score) else (None, result) for result in answer.results
    ]
    return Scored(number, answer.model, answer.version, results, answer.cached)


def score_answer(message: Scored) -> ScoreResponse:
    """Inverse of `scored`. Raises BackendError where a place is empty: no item goes without its score or failure."""
    results = tuple(score or failure for score, failure in message.results)
    if None in results:
        raise BackendError("the engine answered an item with nothing")
    return ScoreResponse(message.model, message.version, results, message.cached)  # type: ignore[arg-type]


def refused(number: int, error: AssayError) -> Refused:
    """An error as a message: by the class that both sides know, whatever subclass of it was raised."""
    kind = next(cls for cls in type(error).__mro__ if cls.__module__ == assay.errors.__name__)
    return Refused(
        number,
        kind.__name__,
        str(error),
        error.retry_after if isinstance(error, BusyError) else None,
        error.field if isinstance(error, BadInputError) else None,
    )


def error_of(message: Refused) -> Exception:
    """Inverse of `refused`. RuntimeError for a fault of the server, as it is where engine and front are one process."""
    kind: type[AssayError] | None = getattr(assay.errors, message.kind, None) if message.kind else None
    if kind is None:
        return RuntimeError("the engine process failed on a request; its log has the place")
    if issubclass(kind, BusyError):
        return kind(message.message, retry_after=message.retry_after)
    error = kind(message.message)
    if isinstance(error, BadInputError):
        error.field = message.field  # the text names it already
    return error
