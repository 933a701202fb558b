"""Frames over a Unix socket, as an asyncio protocol: no task wakes up for what a callback can do.

Covers: the length before each frame and its limit, backpressure. Leaves out: the content of frames (`wire`).
"""

import asyncio
from collections.abc import Callable
from typing import cast

from assay.errors import AssayError, BadInputError

_LENGTH = 4  # bytes, big endian
HELLO_BYTES = 1024  #: limit of a frame before the other side is authenticated
BUFFER_BYTES = 1 << 20  #: of frames to be sent, before `full`


class FrameConnection(asyncio.Protocol):
    """One end of a connection. `received` gets each frame of at most `limit` bytes; where it raises an AssayError, or a
    frame is beyond the limit, the connection is aborted. All methods are called on its event loop."""

    def __init__(self, received: Callable[[bytes], None], *, limit: int) -> None:
        self.limit = limit
        self.closed: asyncio.Future[AssayError | None] = asyncio.get_running_loop().create_future()  #: why, or None
        self._received = received
        self._buffer = bytearray()
        self._error: AssayError | None = None
        self._transport: asyncio.Transport
        self._resumed = asyncio.Event()
        self._resumed.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        self._transport.set_write_buffer_limits(high=BUFFER_BYTES)

    def data_received(self, data: bytes) -> None:
        partial = self._buffer
        partial += data if partial else b""
        arrived = partial or data  # nearly always the latter: a few complete frames
        try:
            start = 0
            while len(arrived) - start >= _LENGTH and self.open:
                size = int.from_bytes(arrived[start : start + _LENGTH], "big")
                if size > self.limit:
                    raise BadInputError(f"a frame of {size} bytes; {self.limit} at most")
                end = start + _LENGTH + size
                if len(arrived) < end:
                    break
                self._received(bytes(arrived[start + _LENGTH : end]))
                start = end
            if partial:
                del partial[:start]
            else:
                partial += data[start:]
        except AssayError as error:
            self._error = error
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._resumed.set()
        if not self.closed.done():
            self.closed.set_result(self._error)

    def pause_writing(self) -> None:
        self._resumed.clear()

    def resume_writing(self) -> None:
        self._resumed.set()

    @property
    def open(self) -> bool:
        return not self._transport.is_closing()

    @property
    def full(self) -> bool:
        """The other side does not read fast enough: `writable` waits."""
        return not self._resumed.is_set()

    async def writable(self) -> None:
        """Returns when the other side reads again, or is gone."""
        await self._resumed.wait()

    def send(self, frame: bytes, *, limit: int) -> None:
        """Send without waiting. Raises BadInputError for a frame that the other side would refuse. Frames for a closed
        connection are dropped."""
        if len(frame) > limit:
            raise BadInputError(f"{len(frame)} bytes; HTTP worker and engine exchange {limit} at most")
        if self.open:
            self._transport.write(len(frame).to_bytes(_LENGTH, "big") + frame)

    def close(self) -> None:
        """Send pending frames, then close."""
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()
