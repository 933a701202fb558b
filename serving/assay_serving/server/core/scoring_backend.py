"""What holds the models and answers for them: the one interface that routes know.

Covers: requests and answers, who asks, the protocol. Leaves out: the models in this process (`local_host`), models in a
process of their own (`assay_serving.engine_process`), HTTP (`service`, `scoring`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Literal, Protocol

from assay.domain import Message
from assay.score import ScoreResult
from assay_serving.scorer import ModelInfo, ScoreItem


class Priority(IntEnum):
    """Lower goes first."""

    INTERACTIVE = 0  #: somebody waits for it
    BULK = 1  #: a trainer or a job that has much more to come


@dataclass(frozen=True, slots=True)
class Client:
    """Who asks: the name of its key, and what that key may use; None = without limit."""

    name: str = "anonymous"
    requests_per_minute: float | None = None
    items_per_minute: float | None = None


@dataclass(frozen=True, slots=True)
class ScoreRequest:
    """Items for one model. `model`: None where only one is served. `timeout_s`: from now to the answer."""

    items: tuple[ScoreItem, ...]
    model: str | None = None
    priority: Priority = Priority.INTERACTIVE
    timeout_s: float = 120.0
    client: Client = field(default_factory=Client)
    request_id: str | None = None


@dataclass(frozen=True, slots=True)
class ScoreAnswer:
    """One result per item, in order, all by one version of the model that is served as `model`.

    Of a canary a request of several prompts can have results of two; `version` is then both, joined by "+", and each
    score says its own.
    """

    model: str
    version: str
    results: tuple[ScoreResult, ...]
    cached: int = 0  #: results that no engine computed for this request


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """The next turn of a conversation, by a generative model."""

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


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """`finish`: stop (the model or a stop string ended it) or length."""

    model: str
    version: str
    text: str
    finish: Literal["stop", "length"]
    tokens_in: int
    tokens_out: int


class ScoringHost(Protocol):
    """Named models behind their queues. All methods are called on one event loop.

    `score` and `chat` raise NotFoundError (no such model), BadInputError, RateLimitError, BusyError (queue full, not
    ready, absent, draining), LateError (not done within the request's time); cancelling the call drops what still
    waits.
    """

    @property
    def ready(self) -> bool:
        """Whether a request would be scored now."""
        ...

    async def start(self) -> None: ...

    async def stop(self) -> None:
        """Drop what waits; nothing is answered afterwards."""
        ...

    def drain(self) -> None:
        """Accept no new work; what is queued is still answered."""
        ...

    async def models(self) -> list[ModelInfo]:
        """What is served; `name` is the name it is served under."""
        ...

    async def absent(self) -> dict[str, str]:
        """Names of models that should be served and are not, and why."""
        ...

    async def score(self, request: ScoreRequest) -> ScoreAnswer: ...

    async def chat(self, request: ChatRequest) -> ChatAnswer: ...

    async def manage(self, order: dict[str, Any]) -> dict[str, Any]:
        """An administrator's order and its outcome, as JSON objects."""
        ...

    async def metrics(self) -> bytes:
        """Prometheus text of the engine side."""
        ...
