"""One generated turn, and the protocol of engines that generate one.

Leaves out: the models (`generation`, `assay_serving.generative.token_writer`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from assay.domain import Message
from assay.errors import BadInputError


@dataclass(frozen=True, slots=True)
class Completion:
    """`finish`: stop (the model or a stop string ended it) or length."""

    text: str
    finish: Literal["stop", "length"]
    tokens_in: int
    tokens_out: int


class TooLongError(BadInputError):
    """The conversation and the requested tokens do not fit the model's context."""


@runtime_checkable
class Completes(Protocol):
    """An engine that can also continue any conversation."""

    def complete(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int,
        temperature: float,
        top_p: float,
        seed: int,
        stop: Sequence[str] = (),
        max_seconds: float,
    ) -> Completion: ...


def cut_at(text: str, stop: Sequence[str], ended: bool) -> tuple[str, bool]:
    """The text up to the first stop string, and whether it ended there or with an end token."""
    for word in stop:
        if word in text:
            text, ended = text[: text.index(word)], True
    return text, ended
