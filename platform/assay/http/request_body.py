"""The body of a request, read whole and bounded before anything makes sense of it: bytes, time and shape.

Covers: one body's bytes whatever Content-Length says, all bodies' bytes at once, the time within which one is there,
JSON that exhausts a reader or that two readers would understand differently. Leaves out: who may send one (the gates of
this server and of the web's).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from starlette.types import Message, Receive

from assay.http.problems import CLIENT_GONE, ProblemError
from assay.http.strict_json import JsonError, NotJsonError, TooManyValuesError, parse

_CLOSE = {"Connection": "close"}
_BUSY_S = 1  #: after which a server with too much in progress should be asked again


@dataclass(frozen=True)
class BodyLimits:
    """Of what requests carry: bytes of one, of all that are in progress, and the seconds within which one is there."""

    most_bytes: int = 8 << 20
    most_bytes_at_once: int = 128 << 20
    seconds: float = 60.0


class BodyReader:
    """Reads the bodies of one application, which share a bound on what is held at once."""

    def __init__(self, limits: BodyLimits) -> None:
        self.limits = limits
        self._held = 0  #: bytes of bodies that are being read or answered

    @asynccontextmanager
    async def read(self, headers: Mapping[bytes, bytes], receive: Receive) -> AsyncIterator[bytes]:
        """The body; it counts as held until the end of the block. `headers`: by lower-case name.

        Raises ProblemError: 413 too large, 408 too slow, 415 compressed, 503 where too much is on its way at once.
        """
        body = await self._received(headers, receive)
        self._held += len(body)
        try:
            yield body
        finally:
            self._held -= len(body)

    async def _received(self, headers: Mapping[bytes, bytes], receive: Receive) -> bytes:
        most = self.limits.most_bytes
        if headers.get(b"content-encoding", b"identity").lower() not in (b"identity", b""):
            raise ProblemError(415, "compressed bodies are not read", headers={"Accept-Encoding": "identity", **_CLOSE})
        too_large = ProblemError(413, f"the body is larger than {most} bytes", headers=_CLOSE)
        declared = headers.get(b"content-length", b"")
        if declared.isdigit() and int(declared[:20]) > most:
            raise too_large
        chunks: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self.limits.seconds):
                more = True
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ProblemError(CLIENT_GONE, "the client is gone")
                    chunk = message.get("body", b"")
                    size += len(chunk)
                    self._held += len(chunk)
                    if size > most:
                        raise too_large
                    if self._held > self.limits.most_bytes_at_once:
                        raise too_busy("bytes of bodies", headers=_CLOSE)
                    chunks.append(chunk)
                    more = message.get("more_body", False)
        except TimeoutError:
            raise ProblemError(408, "the body did not arrive in time", headers=_CLOSE) from None
        finally:
            self._held -= size
        return b"".join(chunks)


def checked_json(body: bytes) -> Any:
    """The value; None for what is no JSON, which is left to the route. Raises ProblemError 413 and 422 for what is made
    to exhaust a reader, and for what two readers would understand differently."""
    try:
        return parse(body)
    except NotJsonError:
        return None
    except TooManyValuesError as error:
        raise ProblemError(413, str(error), code="too_many_values") from None
    except JsonError as error:
        raise ProblemError(422, str(error)) from None


def replayed(body: bytes, receive: Receive) -> Receive:
    """The body in one piece, then whatever the connection says (that the client hangs up)."""
    sent = False

    async def again() -> Message:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def too_busy(what: str, headers: Mapping[str, str] | None = None) -> ProblemError:
    return ProblemError(503, f"too many {what} in progress", headers={"Retry-After": str(_BUSY_S), **(headers or {})})
