"""Server-sent events of a page that follows something: https://html.spec.whatwg.org/multipage/server-sent-events.html

A stream ends by itself after a while, and at the end of the server; a browser's EventSource then asks again, with the
id of the last event, and is checked anew. Leaves out: what is sent.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from fastapi.responses import StreamingResponse

LONGEST_S = 600.0  #: of one stream: the person's session is looked at again after that
SILENCE_S = 15.0  #: after which a comment is sent, which keeps proxies from closing the connection


@dataclass(frozen=True)
class Event:
    """`data`: what JSON can say. `id`: where to go on, None to keep the last one."""

    name: str
    data: Any
    id: str | None = None

    def encode(self) -> bytes:
        head = f"event: {self.name}\n" + (f"id: {self.id}\n" if self.id is not None else "")
        return f"{head}data: {json.dumps(self.data, separators=(',', ':'))}\n\n".encode()


def event_stream(
    look: Callable[[], Awaitable[tuple[list[Event], bool]]], *, every_s: float, is_ending: Callable[[], bool]
) -> StreamingResponse:
    """`look` returns what is new, and whether more will come; it is called again after `every_s`."""

    async def events() -> AsyncIterator[bytes]:
        began = silent = time.monotonic()
        yield b"retry: 1000\n\n"
        more = True
        while more and not is_ending() and time.monotonic() - began < LONGEST_S:
            events_now, more = await look()
            for event in events_now:
                yield event.encode()
            if events_now:
                silent = time.monotonic()
            elif time.monotonic() - silent > SILENCE_S:
                yield b": still here\n\n"
                silent = time.monotonic()
            if more:
                await asyncio.sleep(every_s)
        if not more:
            yield Event("end", None).encode()  # or else a browser would ask again

    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return StreamingResponse(events(), media_type="text/event-stream", headers=headers)
