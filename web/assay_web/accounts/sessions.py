"""Sessions: a random token in a cookie, its digest in the access file, an idle timeout and a maximum age."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay_web.accounts.access_file import AccessFile, digest
from assay_web.accounts.accounts import Role

if TYPE_CHECKING:
    from assay_web.settings import WebSettings

TOUCH_S = 60.0  #: minimum time between updates of a session's last use


@dataclass(frozen=True)
class Person:
    """The person of a request. `name` is also the annotator name of their votes. `csrf`: token required for changes.
    `token`: id of the API token by which a program is here in their name."""

    name: str
    role: Role
    csrf: str
    token: str | None = None


def begin_session(access: AccessFile, name: str, role: Role | None, settings: WebSettings) -> str:
    """A new session's token. `role`: of a person without an account. Expired sessions are deleted."""
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
    """The person of a session; None if it has expired, or the account is missing or disabled.

    Sessions begun without a password are valid on an open server only.
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
