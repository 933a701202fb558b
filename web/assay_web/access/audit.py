"""The audit log: who changed what, when, from where. Every route that changes something writes one line by itself.

A router with `route_class=AuditedRoute` writes the line before the reply leaves; the route may add to it with
`note_change`. A line holds no text that people wrote and no secret.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool

from assay_web.access.access_file import AccessFile

SAFE = frozenset(("GET", "HEAD", "OPTIONS"))


def record(
    access: AccessFile, person: str, action: str, subject: str = "", *, detail: Any = None, address: str = ""
) -> None:
    """`action`: e.g. "cast_vote". `subject`: what it was done to, e.g. a queue. `detail`: anything that JSON holds."""
    told = json.dumps({} if detail is None else detail, ensure_ascii=False, sort_keys=True)
    with access.writing(durable=False) as db:
        db.execute(
            "INSERT INTO audit (at, person, action, subject, detail, address) VALUES (?, ?, ?, ?, ?, ?)",
            (time.time(), person, action, subject, told, address),
        )


def note_change(request: Request, subject: str | None = None, **detail: Any) -> None:
    """Say more of the change that this request makes: its line of the log then has it."""
    request.state.audit = (subject, detail)


class AuditedRoute(APIRoute):
    """Records each change that succeeded: the route's name, and its path's parameters as the subject."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handled(request: Request) -> Response:
            response = await handle(request)
            if request.method not in SAFE and response.status_code < 400:
                subject, detail = getattr(request.state, "audit", (None, {}))
                person = getattr(request.state, "person", None)
                await run_in_threadpool(
                    record,
                    request.app.state.service.access,
                    person.name if person is not None else "",
                    self.name,
                    subject if subject is not None else "/".join(str(v) for v in request.path_params.values()),
                    detail=detail,
                    address=request.client.host if request.client else "",
                )
            return response

        return handled
