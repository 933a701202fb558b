"""The client of OpenAI-compatible chat endpoints: `POST BASE_URL/chat/completions`.

Covers: bounded concurrency, retries of what is retryable with jitter and the server's own Retry-After, one common pause
when the endpoint asks for one, typed failures, a hook around every attempt for records and budgets. Leaves out: what is
sent and how answers are read (`assay_serving.generative.remote`, `assay_pipelines.llm.endpoint`).
"""

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Any, Self, TypeAlias, TypeVar

import httpx
from annotated_types import Ge, Gt

from assay.settings import check_settings
from assay_serving.chat.faults import fault_of
from assay_serving.client.connection import POOL_SIZE, Pools, check_address, uses_proxy
from assay_serving.client.retries import Attempts, RetryPolicy, retry_after_of

ANSWERED = "answered"
#: Outcomes that another attempt may change.
PASSING = frozenset({"rate_limited", "server_error", "timeout", "connection"})


@dataclass(frozen=True)
class ChatEndpoint:
    """`base_url` ends in /v1. `api_key`: sent as bearer token. `timeout`: seconds of one attempt. `longest_wait`:
    seconds before a retry; a server that asks for more is given up for this request. `retry_timeouts`: whether a
    request that timed out is sent again; the server may still be at work on it."""

    base_url: str
    model: str
    api_key: str | None = field(default=None, repr=False)
    concurrency: Annotated[int, Gt(0)] = 8
    timeout: Annotated[float, Gt(0)] = 300.0
    retries: Annotated[int, Ge(0)] = 4
    longest_wait: Annotated[float, Gt(0)] = 20.0
    retry_timeouts: bool = False
    schema_may_be_refused: bool = False  #: read a refusal of `response_format` as outcome no_schema
    user_agent: str = "assay-chat"

    def __post_init__(self) -> None:
        check_settings(self)
        check_address(self.base_url, "base_url")


@dataclass
class ChatResult:
    """What one attempt came to. `outcome`: answered, one of `PASSING`, or a code of `faults.fault_of`. `payload`: the
    reply's JSON."""

    outcome: str
    status: int | None = None
    payload: Any = None
    error: str | None = None
    retry_after: float | None = None


R = TypeVar("R", bound=ChatResult)
Post: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[ChatResult]]


class ChatClient:
    """Entered inside the event loop that uses it; hold `room` during a request with all its attempts."""

    def __init__(self, endpoint: ChatEndpoint, *, not_before: float = 0.0) -> None:
        """`not_before`: when the endpoint may be called again, by time.monotonic."""
        self.endpoint, self.not_before = endpoint, not_before
        self._url = f"{endpoint.base_url.rstrip('/')}/chat/completions"
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        endpoint = self.endpoint
        self.room = asyncio.Semaphore(endpoint.concurrency)
        headers = {"User-Agent": endpoint.user_agent}
        if endpoint.api_key:
            headers["Authorization"] = f"Bearer {endpoint.api_key}"
        size = min(POOL_SIZE, endpoint.concurrency)
        limits = httpx.Limits(max_connections=size, max_keepalive_connections=size)
        clients = [
            await self._stack.enter_async_context(
                httpx.AsyncClient(
                    headers=headers,
                    limits=limits,
                    timeout=None,
                    verify=_certificates(),
                    trust_env=uses_proxy(endpoint.base_url),
                )
            )
            for _ in range(-(-endpoint.concurrency // POOL_SIZE))
        ]
        self._pools = Pools(clients)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def attempts(self) -> Attempts:
        """The retries of one request."""
        return Attempts(RetryPolicy(self.endpoint.retries, 0.5, self.endpoint.longest_wait, None))

    async def send(self, attempt: Callable[[Post], Awaitable[R]], retries: Attempts | None = None) -> R:
        """The last result of `attempt`, which is called until it passes or its retries are used up. It gets the
        function that posts a body, and may refuse to post, record the result or read more out of it."""
        retries = retries or self.attempts()
        while True:
            while (pause := self.not_before - time.monotonic()) > 0:
                await asyncio.sleep(pause)
            result = await attempt(self.post)
            if result.outcome not in PASSING or (result.outcome == "timeout" and not self.endpoint.retry_timeouts):
                return result
            longest, retry_after = self.endpoint.longest_wait, result.retry_after
            if retry_after is not None:
                self.not_before = max(self.not_before, time.monotonic() + min(retry_after, longest))
                if retry_after > longest:
                    return result
            next_pause = retries.next_pause(retryable=True, retry_after=retry_after)
            if next_pause is None:
                return result
            await asyncio.sleep(next_pause)

    async def post(self, body: Mapping[str, Any]) -> ChatResult:
        timeout = self.endpoint.timeout
        try:
            async with asyncio.timeout(timeout):
                with self._pools.least_busy() as client:
                    response = await client.post(self._url, json=body)
        except (TimeoutError, httpx.TimeoutException):
            return ChatResult("timeout", error=f"no reply within {timeout:g} s")
        except httpx.TransportError as error:
            return ChatResult("connection", error=f"{type(error).__name__}: {error}".rstrip(": "))
        status = response.status_code
        if status != 200:
            code, message = fault_of(response, schema_may_be_refused=self.endpoint.schema_may_be_refused)
            return ChatResult(code, status, error=message, retry_after=retry_after_of(response))
        try:
            return ChatResult(ANSWERED, status, response.json())
        except ValueError as error:  # a proxy's page, half a body: the endpoint is at fault, not the model
            return ChatResult("server_error", status, error=f"the reply is not readable: {error}")


@lru_cache(maxsize=1)
def _certificates() -> ssl.SSLContext:
    """Read once a process: it takes some 70 ms."""
    return httpx.create_ssl_context()
