"""Frames over a Unix socket, by asyncio's streams.

Covers: the length before each frame and its limit, frames of one event loop iteration sent together, backpressure.
Leaves out: the content of frames (`wire`).
"""

import asyncio
from contextlib import suppress

from assay.errors import BadInputError

_LENGTH = 4  # bytes, big endian
HELLO_BYTES = 1024  #: limit of a frame before the other side is authenticated
BUFFER_BYTES = 1 << 20  #: of received frames, before the other side has to wait


class FrameConnection:
    """One end of a connection. All methods are called on its event loop."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._out: list[bytes] = []

    @property
    def open(self) -> bool:
        return not self._writer.is_closing()

    async def receive(self, limit: int) -> bytes | None:
        """The next frame; None at the end of the connection. Raises BadInputError for a frame beyond the limit."""
        try:
            size = int.from_bytes(await self._reader.readexactly(_LENGTH), "big")
            if size > limit:
                raise BadInputError(f"a frame of {size} bytes; {limit} at most")
            return await self._reader.readexactly(size)
        except (asyncio.IncompleteReadError, OSError):
            return None

    def send(self, frame: bytes, *, limit: int) -> None:
        """Send in this iteration of the loop, without waiting. Raises BadInputError for a frame that the other side
        would refuse. Frames for a closed connection are dropped."""
        if len(frame) > limit:
            raise BadInputError(f"{len(frame)} bytes; HTTP worker and engine exchange {limit} at most")
        if not self._out:
            asyncio.get_running_loop().call_soon(self._flush)
        self._out += (len(frame).to_bytes(_LENGTH, "big"), frame)

    async def writable(self) -> None:
        """Returns when the other side reads again, or is gone."""
        with suppress(OSError):
            await self._writer.drain()

    def close(self) -> None:
        """Send pending frames, then close."""
        self._flush()
        self._writer.close()

    def abort(self) -> None:
        self._writer.transport.abort()

    def _flush(self) -> None:
        if self._out and self.open:
            self._writer.write(b"".join(self._out))
        self._out.clear()
