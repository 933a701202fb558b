"""Request bodies: read whole, within limits, and parsed strictly.

Covers: the size of one body and of all bodies in progress, the time to receive one, JSON that exhausts a parser (depth,
number of values) or that two parsers would read differently (NaN and Infinity, numbers past 64 bits, duplicate names,
half of a surrogate pair, anything but UTF-8). Leaves out: who may send one (each application's middleware).
"""

import asyncio
import json
import math
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

from starlette.types import Message, Receive

from assay.http.problems import CLIENT_GONE, ProblemError

MAX_DEPTH = 64
#: A wrong value costs a validator some 1 to 2 kB and 8 microseconds to report: a quarter of a million, two seconds.
MAX_VALUES = 1 << 18
MAX_HOLDERS = 1 << 16  #: objects and lists at one depth; a wrong object costs the most to report
_INTEGER_DIGITS = 20  #: with a sign; 64 bits have at most 19
_LARGEST = (1 << 63) - 1
_HOLDERS = frozenset((dict, list))
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
        declared = headers.get(b"content-length", b"")
        if declared.isdigit() and int(declared[:20]) > most:
            raise _too_large(most)
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
                        raise _too_large(most)
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
    """The value; None for invalid JSON, which is left to the route. Raises ProblemError 413 for what exhausts a parser
    and 422 for what two parsers would read differently; its text quotes nothing of the body.

    A second parser (pydantic, of a route) reads the same bytes after this one, at a cost of microseconds; without this
    check, every route would need its own.
    """
    if len(body) > 2 * MAX_VALUES:  # a value takes two bytes at least
        _check_count(body)
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        raise ProblemError(422, "the body is not UTF-8") from None
    try:
        value = _DECODER.decode(text)
    except RecursionError:
        raise ProblemError(422, f"the body is nested deeper than {MAX_DEPTH}") from None
    except ValueError:
        if b"\0" in body:  # UTF-16, which some readers guess
            raise ProblemError(422, "the body is not UTF-8") from None
        return None
    # Each test on the bytes is a scan at memory speed that spares most bodies the slow one.
    if body.count(b"[") + body.count(b"{") > MAX_DEPTH:
        _check_depth(value)
    if b"\\u" in body and (b"\\ud" in body or b"\\uD" in body):
        _check_text(value)
    return value


def _check_count(body: bytes) -> None:
    """Before anything is made of it: five million empty lists are 16 MB as text and 350 MB as lists."""
    texts = body.replace(b"\\\\", b"").replace(b'\\"', b"")  # now each quote begins or ends a text
    if texts.count(b'"') <= 4 * MAX_VALUES:  # of a name and a value each
        bare = b"".join(texts.split(b'"')[::2])
        if bare.count(b",") + bare.count(b"[") + bare.count(b"{") <= MAX_VALUES:
            return
    raise ProblemError(413, f"the body holds more than {MAX_VALUES} values", code="too_many_values")


def _check_depth(value: Any) -> None:
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise ProblemError(422, f"the body is nested deeper than {MAX_DEPTH}")
        inner: list[Any] = []
        for holder in level:
            members = holder.values() if type(holder) is dict else holder
            inner += [member for member in members if type(member) in _HOLDERS]
        if len(inner) > MAX_HOLDERS:
            raise ProblemError(413, f"the body holds more than {MAX_HOLDERS} objects and lists", code="too_many_values")
        level = inner


def _check_text(value: Any) -> None:
    """Half a pair is no text: a tokenizer refuses it, a hash of it fails."""
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise ProblemError(422, "the body holds half a surrogate pair, which is no text") from None
    except RecursionError:
        raise ProblemError(422, f"the body is nested deeper than {MAX_DEPTH}") from None


def _object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(members)
    if len(mapping) != len(members):
        raise ProblemError(422, "an object of the body has the same name twice")
    return mapping


def _constant(_: str) -> NoReturn:
    raise ProblemError(422, "NaN and Infinity are no JSON numbers")


def _float(text: str) -> float:
    if math.isinf(value := float(text)):
        raise ProblemError(422, "a number of the body is too large")
    return value


def _integer(text: str) -> int:
    # By its length first: the time to read a number grows with the square of its digits.
    if len(text) > _INTEGER_DIGITS or not -_LARGEST - 1 <= (value := int(text)) <= _LARGEST:
        raise ProblemError(422, "an integer of the body is too large")
    return value


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant, parse_float=_float, parse_int=_integer)


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


def _too_large(most: int) -> ProblemError:
    return ProblemError(413, f"the body is larger than {most} bytes", headers=_CLOSE)
