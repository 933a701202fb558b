"""Limits on concurrent requests by kind, so that threads are left for votes.

Routes run in a pool of 40 threads. A page that reads the store may hold one for seconds; hundreds of such requests, or
of sign-ins, would block votes. Requests over a limit wait here without a thread. Leaves out: waiting for the store
(`WebService.store`).
"""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from assay_web.server.gate import SAFE_METHODS

PAGES = 20  #: requests that may read the store, or query a reward server
SIGN_INS = 6  #: requests with a password or a link
_SIGNING_IN = ("/api/session", "/api/invitation")


class ThreadLimits:
    """ASGI middleware. Annotation requests and `GET /api/session` do not read the store and are not limited."""

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
            if held:  # the reply is sent without a thread, however slowly it is read
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
