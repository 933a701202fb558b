"""Frames over a Unix socket.

Covers: the length before each frame and its limit, frames of one event loop iteration sent together, backpressure.
Leaves out: the content of frames (`wire`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol, cast

from assay.errors import AssayError, BadInputError

logger = logging.getLogger("assay.serving")

_LENGTH = 4  # bytes, big endian
HELLO_BYTES = 1024  #: limit of a frame before the other side is authenticated


class Receiver(Protocol):
    """Handles frames. An AssayError from it closes the connection."""

    def received(self, frame: bytes) -> None: ...

    def lost(self) -> None: ...


class FrameConnection(asyncio.Protocol):
    """One end of a connection. All methods are called on its event loop.

    `limit`: bytes of the largest frame accepted; `raise_limit` changes it after authentication.
    """

    def __init__(self, receiver_of: Callable[[FrameConnection], Receiver], *, limit: int) -> None:
        self._receiver = receiver_of(self)
        self._limit = limit
        self._buffer = bytearray()
        self._out: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._writable = asyncio.Event()
        self._writable.set()

    def raise_limit(self, limit: int) -> None:
        self._limit = limit

    @property
    def open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def send(self, frame: bytes, *, limit: int) -> None:
        """Send in this iteration of the loop, without waiting. Raises BadInputError for a frame that the other side
        would refuse. Frames for a closed connection are dropped."""
        if len(frame) > limit:
            raise BadInputError(f"{len(frame)} bytes; HTTP worker and engine exchange {limit} at most")
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(len(frame).to_bytes(_LENGTH, "big"))
        self._out.append(frame)

    async def writable(self) -> None:
        """Returns when the other side reads again."""
        await self._writable.wait()

    def close(self) -> None:
        """Send pending frames, then close."""
        if self._transport is not None:
            self._flush()
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _flush(self) -> None:
        if self._out and self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join(self._out))
        self._out.clear()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one, though no subclass

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        start = 0
        try:
            while len(buffer) - start >= _LENGTH and self.open:
                size = int.from_bytes(buffer[start : start + _LENGTH], "big")
                if size > self._limit:
                    raise BadInputError(f"a frame of {size} bytes; {self._limit} at most")
                stop = start + _LENGTH + size
                if len(buffer) < stop:
                    break
                frame = bytes(buffer[start + _LENGTH : stop])
                start = stop
                self._receiver.received(frame)
        except AssayError as error:
            logger.error("the connection between HTTP worker and engine is closed: %s", error)
            self.abort()
        del buffer[:start]

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._writable.set()
        self._receiver.lost()
