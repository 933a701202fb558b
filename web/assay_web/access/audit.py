"""The audit log: who changed what, when, from where. Every route that changes something writes one line by itself.

A router with `route_class=AuditedRoute` writes the line before the reply leaves; the route may add to it with
`note_change`. A line holds no text that people wrote and no secret.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool

from assay_web.access.access_file import AccessFile

SAFE = frozenset(("GET", "HEAD", "OPTIONS"))


@dataclass(frozen=True)
class AuditLine:
    """`at`: seconds since the epoch. `detail`: JSON. `person`: "" for somebody who was not signed in."""

    id: int
    at: float
    person: str
    action: str
    subject: str
    detail: str
    address: str


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


def read_audit(
    access: AccessFile,
    *,
    person: str | None = None,
    action: str | None = None,
    subject: str | None = None,
    before: int | None = None,
    most: int = 100,
) -> list[AuditLine]:
    """Newest first. `before`: lines older than the one with this id. `subject`: a part of it."""
    asked = [
        ("person = ?", person),
        ("action = ?", action),
        ("instr(lower(subject), lower(?)) > 0", subject or None),
        ("id < ?", before),
    ]
    given = [(condition, value) for condition, value in asked if value is not None]
    where = f"WHERE {' AND '.join(condition for condition, _ in given)}" if given else ""
    with access.reading() as db:
        rows = db.execute(
            f"SELECT * FROM audit {where} ORDER BY id DESC LIMIT ?", (*(value for _, value in given), most)
        ).fetchall()
    return [AuditLine(**dict(row)) for row in rows]


def audit_names(access: AccessFile) -> tuple[list[str], list[str]]:
    """The persons and the actions that the log knows."""
    with access.reading() as db:
        persons = [row[0] for row in db.execute("SELECT DISTINCT person FROM audit ORDER BY person")]
        actions = [row[0] for row in db.execute("SELECT DISTINCT action FROM audit ORDER BY action")]
    return persons, actions


def note_change(request: Request, subject: str | None = None, **detail: Any) -> None:
    """Say more of the change that this request makes: its line of the log then has it."""
    request.state.audit = (subject, detail)


def address_of(request: Request) -> str:
    return request.client.host if request.client else ""


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
                    address=address_of(request),
                )
            return response

        return handled
