"""Threads are for votes first: how many requests of each kind may have one at a time.

Routes run in threads, of which there are 40. A page that reads the store may keep its thread for seconds, and hundreds
of such pages, or of attempts to sign in, would keep all of them from those who vote. What waits here waits without a
thread. Leaves out: how long somebody waits for the store (`WebService.store`).
"""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from assay_web.server.gate import SAFE_METHODS

PAGES = 20  #: requests that may read the store, or ask a reward server
SIGN_INS = 6  #: requests with a password or a link
_SIGNING_IN = ("/api/session", "/api/invitation")


class ThreadLimits:
    """ASGI middleware. Annotation sessions, and who is signed in, read no store and have what the others leave."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self._pages, self._signing_in = asyncio.Semaphore(PAGES), asyncio.Semaphore(SIGN_INS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        lane = self._lane(scope) if scope["type"] == "http" else None
        if lane is None:
            await self.app(scope, receive, send)
            return
        await lane.acquire()
        held = True

        async def answer(message: Message) -> None:
            nonlocal held
            if held:  # whatever comes now needs no thread, however slowly it is read
                held = False
                lane.release()
            await send(message)

        try:
            await self.app(scope, receive, answer)
        finally:
            if held:
                lane.release()

    def _lane(self, scope: Scope) -> asyncio.Semaphore | None:
        path: str = scope["path"]
        if not path.startswith("/api/") or path.startswith("/api/annotate/"):
            return None
        if path.startswith(_SIGNING_IN):
            return None if path == "/api/session" and scope["method"] in SAFE_METHODS else self._signing_in
        return self._pages
