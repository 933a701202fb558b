"""Connections that do not get stuck before a request is there: uvicorn's own protocol with limits of the headers.

Covers: headers that come too slowly or never (slowloris), too many of them, too large. uvicorn has a limit for none of
these. Leaves out: the body (`gate`), pauses between requests (uvicorn's keep-alive time).
"""

import asyncio
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEADER_BYTES = 64 << 10  #: with the request line
MAX_HEADERS = 100


class BoundedProtocol(HttpToolsProtocol):
    """For uvicorn's `http=`; `bounded(seconds)` gives one with a limit of its own."""

    header_timeout_s: ClassVar[float] = 15.0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._in_headers = False
        self._unread = 0  #: bytes since a message began or a piece of its body came: headers, trailers, empty lines
        self._late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_headers()  # one that never says a word is late as well

    def connection_lost(self, exc: Exception | None) -> None:
        self._have_headers()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        # The latest piece does not count before the parser has seen it: it may be body for the most part.
        if self._unread > MAX_HEADER_BYTES:
            self._refuse()
            return
        self._unread += len(data)
        super().data_received(data)
        answered = self.cycle is None or self.cycle.response_complete
        if answered and not self._in_headers and self.timeout_keep_alive_task is None:
            self._expect_headers()  # empty lines, or a body that nobody reads: neither keeps the connection open

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._unread = 0
        self._expect_headers()

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        if len(self.headers) > MAX_HEADERS:
            self._refuse()

    def on_headers_complete(self) -> None:
        self._have_headers()
        if not self.transport.is_closing():
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unread = 0
        if self.cycle is not None:  # there is none after headers that were refused
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._unread = 0
        if self.cycle is not None:
            super().on_message_complete()

    def _expect_headers(self) -> None:
        self._in_headers = True
        if self._late is None:
            self._late = self.loop.call_later(self.header_timeout_s, self._give_up)

    def _have_headers(self) -> None:
        self._in_headers = False
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _give_up(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()

    def _refuse(self) -> None:
        if self.transport.is_closing():
            return
        message = b"the request's headers are too large\n"
        self.transport.write(
            b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: text/plain\r\nconnection: close\r\n"
            b"content-length: " + str(len(message)).encode() + b"\r\n\r\n" + message
        )
        self.transport.close()


def bounded(header_timeout_s: float) -> type[BoundedProtocol]:
    """The protocol with this limit."""
    return type("BoundedProtocol", (BoundedProtocol,), {"header_timeout_s": header_timeout_s})
