"""The body of a chat request: the part of OpenAI's that a server of one model supports.

What a completer does not support (streaming, tools, several choices, a response format) is refused, never ignored: a
caller that requests JSON by schema must know that it does not get it. Unknown fields are ignored, as OpenAI's own
clients send many.
"""

from collections.abc import Collection
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from assay.http.body_lists import ListOf
from assay_serving.chat.message_bodies import MessageFields

MAX_TOKENS = 512  #: where the request names no limit


class ChatMessage(MessageFields):
    model_config = ConfigDict(extra="ignore")


class ChatCompletionRequest(BaseModel):
    """Limits are OpenAI's. `max_completion_tokens` is the newer name of `max_tokens`."""

    model_config = ConfigDict(
        extra="ignore",
        json_schema_extra={
            "examples": [
                {"model": "judge", "messages": [{"role": "user", "content": "Name a metal."}], "max_tokens": 8}
            ]
        },
    )

    model: str
    messages: ListOf[ChatMessage] = Field(min_length=1)
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    temperature: float = Field(default=1.0, ge=0, le=2)
    top_p: float = Field(default=1.0, gt=0, le=1)
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**63)
    stop: str | ListOf[str] | None = None
    n: int = 1
    stream: bool = False
    tools: list[Any] | None = None
    response_format: dict[str, Any] | None = None

    @property
    def limit(self) -> int:
        """Tokens of the answer at most."""
        return self.max_completion_tokens or self.max_tokens or MAX_TOKENS

    @property
    def stops(self) -> list[str]:
        words = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return [word for word in words if word]

    def unsupported(self, supported: Collection[str] = ()) -> str | None:
        """Name of the first field that is set and not supported."""
        requested = {
            "stream": self.stream,
            "n": self.n != 1,
            "tools": bool(self.tools),
            "response_format": bool(self.response_format) and (self.response_format or {}).get("type") != "text",
        }
        return next((name for name, is_set in requested.items() if is_set and name not in supported), None)
