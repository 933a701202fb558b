"""Sessions: a random token in a cookie, its digest in the access file, an end after idling and in any case."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay_web.accounts.access_file import AccessFile, digest
from assay_web.accounts.roles import Role

if TYPE_CHECKING:
    from assay_web.settings import WebSettings

TOUCH_S = 60.0  #: a session's last use is noted at most so often


@dataclass(frozen=True)
class Person:
    """Who sends a request. `name` is also the annotator's name of their votes. `csrf`: what changes must carry."""

    name: str
    role: Role
    csrf: str


def begin_session(access: AccessFile, name: str, role: Role | None, settings: WebSettings) -> str:
    """A new session's token. `role`: of a person without an account. Sessions that have ended are forgotten."""
    token, now = secrets.token_urlsafe(32), time.time()
    with access.writing() as db:
        db.execute(
            "DELETE FROM sessions WHERE seen_at < ? OR created_at < ?",
            (now - settings.session_idle_s, now - settings.session_s),
        )
        db.execute(
            "INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?)",
            (digest(token), name, role, secrets.token_urlsafe(24), now, now),
        )
    return token


def person_of(access: AccessFile, token: str, settings: WebSettings) -> Person | None:
    """Whose session the token is; None for one that has ended, and for an account that is gone or disabled.

    A session that was begun without a password is nobody's where there are accounts.
    """
    now = time.time()
    with access.reading() as db:
        row = db.execute(
            """SELECT s.*, a.role AS account_role FROM sessions s
               LEFT JOIN accounts a ON a.name = s.name AND NOT a.disabled WHERE digest = ?""",
            (digest(token),),
        ).fetchone()
    if row is None or (row["role"] is not None and not settings.open_access):
        return None
    role: Role | None = row["role"] or row["account_role"]
    if role is None or now - row["seen_at"] > settings.session_idle_s or now - row["created_at"] > settings.session_s:
        return None
    if now - row["seen_at"] > TOUCH_S:
        with access.writing(durable=False) as db:
            db.execute("UPDATE sessions SET seen_at = ? WHERE digest = ?", (now, digest(token)))
    return Person(row["name"], role, row["csrf"])


def end_session(access: AccessFile, token: str) -> None:
    with access.writing() as db:
        db.execute("DELETE FROM sessions WHERE digest = ?", (digest(token),))
