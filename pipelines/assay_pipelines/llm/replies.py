"""Reading the reply of a chat endpoint: strict JSON inside fences or prose, after thinking; refusals; token counts."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

_THINKING = re.compile(r"^\s*<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL)
_REFUSAL = re.compile(
    r"^\W*(i'?m (really |very |so )?sorry|i am sorry|sorry,|i apologi[sz]e|i('m| am) (unable|not able)|i can('t|not)|"
    r"i won'?t|i will not|as an ai\b.{0,80}\b(can('t|not)|unable)|"
    r"(this|that) (request|content) (violates|goes against))",
    re.IGNORECASE | re.DOTALL,
)
#: Bounds that some endpoints refuse in a schema; they are checked here all the same.
_UNSENT = ("minimum", "maximum", "minLength", "maxLength", "title", "default", "description")


class StrictAnswer(BaseModel):
    """Base of every answer: no missing and no extra fields, no silent conversion. `uncut`: a reply that was cut by the
    length limit holds none."""

    uncut: ClassVar[bool] = False
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @classmethod
    def of_reply(cls, text: str) -> Self | None:
        """The answer of a reply in a form of its own; None where this kind is JSON. Raises ValueError with what is
        wrong."""
        return None

    @classmethod
    def of_prose(cls, text: str) -> Self | None:
        """The answer of a text that holds no JSON; None where it does not say, or where this kind takes none."""
        return None


A = TypeVar("A", bound=StrictAnswer)


@dataclass(frozen=True, slots=True)
class ChatReply:
    """One choice of a chat completion. `tokens_*`: None where the endpoint does not count."""

    text: str
    refusal: str | None
    finish: str | None
    tokens_in: int | None
    tokens_out: int | None


def reply_of(payload: Any) -> ChatReply:
    """Raises ValueError for anything but a chat completion."""
    try:
        choice = payload["choices"][0]
        message = choice["message"]
        content = message.get("content")
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError("the reply is not a chat completion: choices[0].message is missing") from error
    if isinstance(content, list):  # parts, as some endpoints send
        content = "".join(part.get("text", "") for part in content if isinstance(part, Mapping))
    usage = payload.get("usage") or {}
    return ChatReply(
        content if isinstance(content, str) else "",
        str(message["refusal"]) if message.get("refusal") else None,
        choice.get("finish_reason"),
        _count(usage, "prompt_tokens"),
        _count(usage, "completion_tokens"),
    )


def parse(text: str, kind: type[A]) -> A:
    """The answer in the text: the last JSON object in it that is one, else what its words say. Raises ValueError with
    what is wrong."""
    if (reply := kind.of_reply(text)) is not None:
        return reply
    text = _THINKING.sub("", text)
    wrong = "there is no JSON object in it"
    answer: A | None = None
    for candidate in _objects(text):
        try:
            answer = kind.model_validate(candidate)
        except ValidationError as error:
            wrong = _first_error(error)
    if answer is None and "{" not in text and not is_refusal(text):
        answer = kind.of_prose(text)
    if answer is None:
        raise ValueError(wrong)
    return answer


def is_refusal(text: str) -> bool:
    """Whether a text without an answer declines to give one."""
    return bool(_REFUSAL.match(_THINKING.sub("", text).lstrip()))


@lru_cache(maxsize=64)
def sent_schema(kind: type[StrictAnswer]) -> dict[str, Any]:
    """The JSON schema as endpoints in strict mode take it. Shared: not to be changed."""
    return _without(kind.model_json_schema(), _UNSENT)  # type: ignore[no-any-return]


def _objects(text: str) -> Iterator[dict[str, Any]]:
    decoder = json.JSONDecoder()
    position = text.find("{")
    while position >= 0:
        try:
            value, end = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            end = position + 1
        else:
            if isinstance(value, dict):
                yield value
        position = text.find("{", end)


def _count(usage: Any, name: str) -> int | None:
    value = usage.get(name) if isinstance(usage, Mapping) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _first_error(error: ValidationError) -> str:
    first = error.errors()[0]
    location = ".".join(str(part) for part in first["loc"])
    return f"{location}: {first['msg']}" if location else str(first["msg"])


def _without(schema: Any, names: tuple[str, ...]) -> Any:
    if isinstance(schema, dict):
        inside = {k: _without(v, names) for k, v in schema.items() if k != "properties" and k not in names}
        if "properties" in schema:
            inside["properties"] = {k: _without(v, names) for k, v in schema["properties"].items()}
        return inside
    return [_without(v, names) for v in schema] if isinstance(schema, list) else schema
