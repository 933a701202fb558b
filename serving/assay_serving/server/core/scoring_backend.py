"""The interface between routes and the models.

Covers: requests and responses, the client, the protocol of backends. Leaves out: models in this process (`in_process`),
models in another process (`assay_serving.engine_process`), HTTP (`http.service`).
"""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Protocol

from assay.domain import Message
from assay.errors import ForbiddenError
from assay.score import ScoreResult
from assay_serving.chat.completion import Completion
from assay_serving.scorer import ModelInfo, ScoreItem

_SHOWN = 128  # characters of a model's name in an error


class Priority(IntEnum):
    """Lower goes first."""

    INTERACTIVE = 0  #: a person waits for it
    BULK = 1  #: a trainer or a job


@dataclass(frozen=True, slots=True)
class Client:
    """The sender of a request: the name of its key, and the limits of that key; None = without limit.

    `models`: the only names of served models that it may use, see or administer. `may_use` decides this for every
    route; what a composed reward calls behind its name does not count.
    """

    name: str = "anonymous"
    requests_per_minute: float | None = None
    items_per_minute: float | None = None
    models: tuple[str, ...] | None = None

    def may_use(self, model: str) -> bool:
        return self.models is None or model in self.models

    def check(self, model: str) -> None:
        """Raises ForbiddenError for a model that it may not use, whether or not it is served."""
        if not self.may_use(model):
            shown = model if len(model) <= _SHOWN else f"{model[:_SHOWN]}..."
            raise self.refusal(f"the model {shown!r}")

    def refusal(self, what: str) -> ForbiddenError:
        """The error for using `what`, which names no model but those of the key."""
        limit = ", ".join(self.models or ())
        return ForbiddenError(f"the key {self.name} may not use {what}; it is limited to {limit}")


@dataclass(frozen=True, slots=True)
class ScoreRequest:
    """Items for one model. `model`: None where only one is served. `timeout_s`: from now to the response.

    `any_name`: where one model is served, it answers to any name that is no other model's.
    """

    items: tuple[ScoreItem, ...]
    model: str | None = None
    priority: Priority = Priority.INTERACTIVE
    timeout_s: float = 120.0
    client: Client = field(default_factory=Client)
    request_id: str | None = None
    any_name: bool = False


@dataclass(frozen=True, slots=True)
class ScoreResponse:
    """One result per item, in order, all by one version of the model that is served as `model`.

    During a canary a request of several prompts can have results of two versions; `version` is then both, joined by
    "+", and each score has its own. `generation`: number of the last change of models that replicas made together.
    """

    model: str
    version: str
    results: tuple[ScoreResult, ...]
    cached: int = 0  #: results that no engine computed for this request
    generation: int = 0


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """The next turn of a conversation, by a generative model. `any_name`: see `ScoreRequest`."""

    model: str | None
    messages: tuple[Message, ...]
    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    timeout_s: float = 300.0
    client: Client = field(default_factory=Client)
    request_id: str | None = None
    any_name: bool = False


@dataclass(frozen=True, slots=True)
class ChatResponse:
    """The turn that one version of the model served as `model` wrote."""

    model: str
    version: str
    completion: Completion


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """Texts, or one conversation, to a model's token ids; or token ids to texts.

    Exactly one of `texts`, `messages` and `ids` is not None. `add_special_tokens`: of texts; the chat template has
    those of messages. `any_name`: see `ScoreRequest`.
    """

    model: str | None
    texts: tuple[str, ...] | None = None
    messages: tuple[Message, ...] | None = None
    ids: tuple[tuple[int, ...], ...] | None = None
    add_special_tokens: bool = True
    skip_special_tokens: bool = False
    add_generation_prompt: bool = True
    client: Client = field(default_factory=Client)
    any_name: bool = False


@dataclass(frozen=True, slots=True)
class TokenResponse:
    """Ids of each text, and the tokens as the vocabulary writes them; or the texts of ids.

    `max_length`: tokens of a conversation that the model reads.
    """

    model: str
    max_length: int
    ids: tuple[tuple[int, ...], ...] = ()
    pieces: tuple[tuple[str, ...], ...] = ()
    texts: tuple[str, ...] = ()


class ScoringBackend(Protocol):
    """Named models behind their queues. All methods are called on one event loop.

    `score` and `chat` raise NotFoundError (no such model), BadInputError, RateLimitError, BusyError (queue full, not
    ready, missing, draining), LateError (not done within the request's time); cancelling the call drops what is
    still queued.
    """

    @property
    def ready(self) -> bool:
        """Whether a request would be scored now."""
        ...

    async def start(self) -> None: ...

    async def stop(self) -> None:
        """Drop queued requests; nothing is answered afterwards."""
        ...

    def drain(self) -> None:
        """Accept no new work; queued requests are still answered."""
        ...

    async def models(self) -> list[ModelInfo]:
        """What is served; `name` is the name it is served under."""
        ...

    async def missing_models(self) -> dict[str, str]:
        """Names of models that should be served and could not be loaded, and why."""
        ...

    async def score(self, request: ScoreRequest) -> ScoreResponse: ...

    async def chat(self, request: ChatRequest) -> ChatResponse: ...

    async def tokenize(self, request: TokenRequest) -> TokenResponse:
        """By the model's own tokenizer and chat template. Raises as `score`, and BadInputError for a model without."""
        ...

    async def manage(self, order: dict[str, Any]) -> dict[str, Any]:
        """An administrator's order and its outcome, as JSON objects. `client` of an order: the fields of its
        `Client`; without one, a client that may use all models."""
        ...

    async def metrics(self) -> bytes:
        """Prometheus text of the engine side."""
        ...
