"""The messages between an HTTP worker and the engine process, and their bytes.

Covers: calls of the backend's methods and their results, shared text of a scoring request written once, errors of the
hierarchy, MessagePack (by msgspec: typed on arrival, floats exact, no code). Leaves out: framing and sockets
(`connection`).
"""

from typing import Any, TypeAlias, TypeVar

import msgspec

import assay.errors
from assay.domain import Prompt, Response
from assay.errors import AssayError, BackendError, BadInputError, BusyError
from assay.score import Score, ScoreFailure
from assay_serving.scorer import Rendered, ScoreItem
from assay_serving.server.core.scoring_backend import Client, Priority, ScoreRequest, ScoreResponse


class WireMessage(msgspec.Struct, frozen=True, array_like=True):
    """Base of all messages: an array whose first member is the tag."""


class Hello(WireMessage, frozen=True, array_like=True, tag=0):
    """A worker's first message: the token that the supervisor gives only to its children."""

    token: str


class Cancel(WireMessage, frozen=True, array_like=True, tag=1):
    """The client of call `id` is gone. The call gets no result."""

    id: int


class MethodCall(WireMessage, frozen=True, array_like=True, tag=2):
    """A call of a `ScoringBackend` method. `argument`: encoded; empty for a method without one. `traceparent`: see
    `assay.system.tracing`."""

    id: int
    method: str
    argument: bytes
    traceparent: str = ""


class EngineState(WireMessage, frozen=True, array_like=True, tag=3):
    """The engine's first message, repeated when it changes. `loading_s`: seconds that its models took to load."""

    ready: bool
    loading_s: float


class MethodResult(WireMessage, frozen=True, array_like=True, tag=4):
    """The encoded result of call `id`."""

    id: int
    result: bytes


class MethodError(WireMessage, frozen=True, array_like=True, tag=5):
    """The `AssayError` of call `id`. `kind`: its class in `assay.errors`; "" for an unexpected exception."""

    id: int
    kind: str
    message: str
    retry_after: float | None = None
    field: str | None = None


class SharedItem(msgspec.Struct, frozen=True, array_like=True):
    """A `ScoreItem` whose prompt and texts are indexes into the request's tables."""

    prompt: int
    response: int
    principle: int | None
    label: int | None
    references: tuple[int, ...]
    rendered: Rendered | None
    steps: tuple[int, ...] | None


class SharedRequest(msgspec.Struct, frozen=True, array_like=True):
    """A `ScoreRequest`. `prompts`, `texts`: each once, however many items share it; a response may be turns."""

    prompts: list[Prompt]
    texts: list[Response]
    items: list[SharedItem]
    model: str | None
    priority: int
    timeout_s: float
    client: Client
    request_id: str | None
    any_name: bool


class TypedResponse(msgspec.Struct, frozen=True, array_like=True):
    """A `ScoreResponse`. `results`: of each item the score or the failure."""

    model: str
    version: str
    results: list[tuple[Score | None, ScoreFailure | None]]
    cached: int
    generation: int


ToEngine: TypeAlias = Hello | Cancel | MethodCall
ToWorker: TypeAlias = EngineState | MethodResult | MethodError

T = TypeVar("T")

_encoder = msgspec.msgpack.Encoder()
_decoders: dict[Any, msgspec.msgpack.Decoder[Any]] = {}


def encode(value: Any) -> bytes:
    """Raises BadInputError for text that is no Unicode and integers beyond 64 bits, which only client JSON contains."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        raise BadInputError("the text holds half of a surrogate pair: it is no Unicode") from None
    except OverflowError:
        raise BadInputError("a whole number is too large") from None


def decode(data: bytes, kind: Any) -> Any:
    """Inverse of `encode`. Raises BackendError for bytes that are not of this type."""
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.msgpack.Decoder(kind)
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, AssayError, ValueError) as error:
        raise _invalid(error) from None


def shared_request(request: ScoreRequest) -> SharedRequest:
    """The request with each prompt and each text once."""
    prompts: dict[Prompt, int] = {}
    texts: dict[Response, int] = {}

    def text(value: Response) -> int:
        return texts.setdefault(value, len(texts))

    items = [
        SharedItem(
            prompts.setdefault(item.prompt, len(prompts)),
            text(item.response),
            None if item.principle is None else text(item.principle),
            None if item.label is None else text(item.label),
            tuple(map(text, item.references)),
            item.rendered,
            None if item.steps is None else tuple(map(text, item.steps)),
        )
        for item in request.items
    ]
    return SharedRequest(
        list(prompts),
        list(texts),
        items,
        request.model,
        int(request.priority),
        request.timeout_s,
        request.client,
        request.request_id,
        request.any_name,
    )


def score_request(shared: SharedRequest) -> ScoreRequest:
    """Inverse of `shared_request`; equal texts are one object. Raises BackendError for an index out of range."""
    prompts, texts = shared.prompts, shared.texts
    try:
        items = tuple(
            ScoreItem(
                prompts[item.prompt],
                texts[item.response],
                None if item.principle is None else _text(texts[item.principle]),
                item.rendered,
                None if item.label is None else _text(texts[item.label]),
                tuple(_text(texts[index]) for index in item.references),
                None if item.steps is None else tuple(_text(texts[index]) for index in item.steps),
            )
            for item in shared.items
        )
        priority = Priority(shared.priority)
    except (IndexError, ValueError) as error:
        raise _invalid(error) from None
    return ScoreRequest(
        items, shared.model, priority, shared.timeout_s, shared.client, shared.request_id, shared.any_name
    )


def _text(entry: Response) -> str:
    if not isinstance(entry, str):
        raise ValueError("turns where a text belongs")
    return entry


def typed_response(response: ScoreResponse) -> TypedResponse:
    results: list[tuple[Score | None, ScoreFailure | None]] = [
        (result, None) if isinstance(result, Score) else (None, result) for result in response.results
    ]
    return TypedResponse(response.model, response.version, results, response.cached, response.generation)


def score_response(typed: TypedResponse) -> ScoreResponse:
    """Inverse of `typed_response`. Raises BackendError for an item without score and failure."""
    results = tuple(score or failure for score, failure in typed.results)
    if None in results:
        raise BackendError("the engine returned no result for an item")
    return ScoreResponse(typed.model, typed.version, results, typed.cached, typed.generation)  # type: ignore[arg-type]


def method_error(call_id: int, error: AssayError) -> MethodError:
    """An error as a message, by the class of the hierarchy that both sides know."""
    kind = next(cls for cls in type(error).__mro__ if cls.__module__ == assay.errors.__name__)
    return MethodError(
        call_id,
        kind.__name__,
        str(error),
        error.retry_after if isinstance(error, BusyError) else None,
        error.field if isinstance(error, BadInputError) else None,
    )


def exception_of(message: MethodError) -> Exception:
    """Inverse of `method_error`. RuntimeError for an unexpected exception, as in a server of one process."""
    kind: type[AssayError] | None = getattr(assay.errors, message.kind, None) if message.kind else None
    if kind is None:
        return RuntimeError("the engine process failed on a request; its log has the traceback")
    if issubclass(kind, BusyError):
        return kind(message.message, retry_after=message.retry_after)
    error = kind(message.message)
    if isinstance(error, BadInputError):
        error.field = message.field  # the text names it already
    return error


def _invalid(error: Exception) -> BackendError:
    return BackendError(f"no message of this version of Assay: {type(error).__name__}")
