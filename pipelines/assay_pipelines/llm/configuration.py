"""The configuration of a chat endpoint. Secrets stay in the environment.

Leaves out: calling it (`endpoint`), how often and in which order (`assay_pipelines.judging.openai_compatible`).
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias
from urllib.parse import urlsplit

from annotated_types import Ge, Gt

from assay.errors import BadInputError
from assay.settings import Help, check_settings

if TYPE_CHECKING:
    from assay_serving.chat.client import ChatEndpoint

Structured: TypeAlias = Literal["auto", "json_schema", "json_object", "none"]


@dataclass(frozen=True)
class EndpointConfig:
    """Address and sampling settings. Only `identity()` is part of the annotator's identity: an endpoint may move.

    Without `api_key_env` no key is sent. `structured`: how a JSON answer is requested; auto falls back where the
    endpoint refuses a schema.
    """

    base_url: Annotated[str, Help("Of an OpenAI-compatible endpoint, e.g. https://host/v1.")]
    model: Annotated[str, Help("Its name there, or what to load.")]
    api_key_env: Annotated[str | None, Help("Name of the environment variable with the key.")] = None
    temperature: Annotated[float, Ge(0), Help("Default: 0; 0.7 for several samples.")] = 0.0
    top_p: float = 1.0
    max_tokens: Annotated[int, Gt(0), Help("Of one answer.")] = 1024
    token_field: str = "max_tokens"  #: or max_completion_tokens
    extra: Mapping[str, Any] = field(default_factory=dict)  #: further fields of the request, e.g. reasoning_effort
    images: bool = False  #: whether the model reads images: a judge sends those of a comparison
    send_seed: bool = False  #: send the sample's number as `seed`, for endpoints that take it
    structured: Structured = "auto"
    repairs: Annotated[int, Ge(0)] = 1  #: re-asks after a reply that cannot be read
    concurrency: Annotated[int, Gt(0), Help("Calls at once.")] = 8
    timeout: Annotated[float, Gt(0), Help("Seconds of one try.")] = 120.0
    retries: Annotated[int, Ge(0)] = 5
    longest_wait: Annotated[float, Gt(0)] = (
        60.0  #: seconds before a retry; a longer request of the server ends the call
    )
    price_in: Annotated[float | None, Ge(0), Help("Per million tokens read.")] = None
    price_out: Annotated[float | None, Ge(0), Help("Per million tokens written.")] = None

    def __post_init__(self) -> None:
        parts = urlsplit(self.base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadInputError(f"not an http(s) address: {self.base_url!r}", field="base_url")
        if parts.username or parts.password or parts.query:
            raise BadInputError("must not hold a key or password; name a variable with api_key_env", field="base_url")
        if not self.model:
            raise BadInputError("is missing", field="model")
        check_settings(self)
        if (self.price_in is None) != (self.price_out is None):
            raise BadInputError("give both price_in and price_out, or neither", field="price_in")

    @property
    def address(self) -> str:
        return self.base_url.rstrip("/")

    @property
    def model_name(self) -> str:
        """The model's name as part of an annotator's: without its path, and without the @ that begins a version."""
        return self.model.rstrip("/").rsplit("/", 1)[-1].replace("@", "-")

    def identity(self) -> dict[str, Any]:
        """What shapes the answers."""
        return {
            "model": self.model,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "max_tokens": self.max_tokens,
            **({"images": True} if self.images else {}),
            **({"extra": dict(self.extra)} if self.extra else {}),
        }

    def cost(self, tokens_in: int, tokens_out: int) -> float | None:
        if self.price_in is None or self.price_out is None:
            return None
        return (tokens_in * self.price_in + tokens_out * self.price_out) / 1e6

    def chat_endpoint(self, key: str | None) -> "ChatEndpoint":
        """As the chat client takes it."""
        from assay_serving.chat.client import ChatEndpoint

        return ChatEndpoint(
            self.address,
            self.model,
            key,
            concurrency=self.concurrency,
            timeout=self.timeout,
            retries=self.retries,
            longest_wait=self.longest_wait,
            retry_timeouts=True,
            schema_may_be_refused=self.structured == "auto",
            user_agent="assay-judge",
        )

    def key(self) -> str | None:
        """The key. Raises BadInputError where the variable is not set."""
        if self.api_key_env is None:
            return None
        if not (key := os.environ.get(self.api_key_env, "").strip()):
            raise BadInputError(f"the environment variable {self.api_key_env} is not set", field="api_key_env")
        if not (key.isascii() and key.isprintable()):
            raise BadInputError(f"{self.api_key_env} holds characters that no header can carry", field="api_key_env")
        return key
