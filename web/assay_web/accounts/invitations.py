"""Invitation links: a token that makes one account with one role, once, for a while; or sets a password anew.

The file keeps the token's digest alone: a link is shown when it is made and never again. Its token is in the address's
fragment (`/invitation#TOKEN`), which browsers do not send and no server or proxy writes down. Leaves out: who may
invite.
"""

from __future__ import annotations

import secrets
import sqlite3
import time
from dataclasses import dataclass

from assay.errors import BadInputError, NotFoundError
from assay_web.accounts.access_file import AccessFile, digest
from assay_web.accounts.accounts import (
    account_row,
    check_free,
    check_name,
    check_role,
    insert_account,
    replace_password,
)
from assay_web.accounts.passwords import Passwords, check_new_password
from assay_web.accounts.roles import Role

DAY_S = 86400.0
LONGEST_DAYS = 90.0
SETUP = "assay web / first start"  #: who makes the link for the first administrator; no account has such a name
GONE = "this link has been used, has expired, or was withdrawn: ask for a new one"
_ID = 12  #: characters of the digest that name an invitation to administrators


@dataclass(frozen=True)
class Invitation:
    """`name`: the account that gets a new password; None makes a new account. Times are seconds since the epoch."""

    id: str
    role: Role
    name: str | None
    created_by: str
    created_at: float
    expires_at: float
    used_at: float | None
    used_by: str | None


def invite(access: AccessFile, role: Role, *, by: str, days: float) -> tuple[str, Invitation]:
    """A token that makes an account with this role. Raises BadInputError."""
    check_role(role)
    return _make(access, role, None, by=by, days=days)


def invite_to_new_password(access: AccessFile, name: str, *, by: str, days: float) -> tuple[str, Invitation]:
    """A token that sets this account's password anew; earlier ones end. Raises NotFoundError, BadInputError."""
    with access.writing() as db:
        row = account_row(db, name)
        if row["disabled"]:
            raise BadInputError(f"{name} is disabled", field="name")
        db.execute("DELETE FROM invitations WHERE name = ? AND used_at IS NULL", (name,))
    return _make(access, row["role"], name, by=by, days=days)


def setup_token(access: AccessFile) -> str:
    """For the first administrator, for a day and until there is an account; the one of an earlier start ends."""
    with access.writing() as db:
        db.execute("DELETE FROM invitations WHERE created_by = ? AND used_at IS NULL", (SETUP,))
    return invite(access, "admin", by=SETUP, days=1)[0]


def list_invitations(access: AccessFile) -> list[Invitation]:
    """Newest first, used and expired ones with them."""
    with access.reading() as db:
        rows = db.execute("SELECT * FROM invitations ORDER BY created_at DESC").fetchall()
    return [_invitation(row) for row in rows]


def open_invitation(access: AccessFile, token: str) -> Invitation:
    """Raises NotFoundError for a token that cannot be used (any more)."""
    with access.reading() as db:
        return _invitation(_usable(db, token))


def accept(access: AccessFile, passwords: Passwords, token: str, name: str, password: str) -> str:
    """The name of the account made, or of the one with a new password; `name` counts for the former only.

    Raises NotFoundError for a token that cannot be used, BadInputError and ConflictError for a name or password that
    cannot be; the token is then as good as before.
    """
    invitation = open_invitation(access, token)
    plain = invitation.name if invitation.name is not None else check_name(name)
    check_new_password(plain, password)
    if invitation.name is None:
        with access.reading() as db:
            check_free(db, plain)
    hashed = passwords.hashed(password)
    with access.writing() as db:
        row = _usable(db, token)  # somebody else may have been faster
        if row["name"] is None:
            insert_account(db, plain, row["role"], hashed, by=row["created_by"])
        else:
            account_row(db, plain)
            replace_password(db, plain, hashed)
        db.execute(
            "UPDATE invitations SET used_at = ?, used_by = ? WHERE digest = ?", (time.time(), plain, row["digest"])
        )
    return plain


def withdraw(access: AccessFile, invitation_id: str) -> Invitation:
    """Raises NotFoundError for one that there is not, or that has been used."""
    with access.writing() as db:
        row = db.execute(
            "SELECT * FROM invitations WHERE substr(digest, 1, ?) = ? AND used_at IS NULL", (_ID, invitation_id)
        ).fetchone()
        if row is None:
            raise NotFoundError("there is no such open invitation")
        db.execute("DELETE FROM invitations WHERE digest = ?", (row["digest"],))
    return _invitation(row)


def link_of(base: str, token: str) -> str:
    return f"{base.rstrip('/')}/invitation#{token}"


def _make(access: AccessFile, role: Role, name: str | None, *, by: str, days: float) -> tuple[str, Invitation]:
    if not 0 < days <= LONGEST_DAYS:
        raise BadInputError(f"a link is good for up to {LONGEST_DAYS:g} days", field="days")
    token, now = secrets.token_urlsafe(32), time.time()
    with access.writing() as db:
        db.execute(
            "INSERT INTO invitations VALUES (?, ?, ?, ?, ?, ?, NULL, NULL)",
            (digest(token), role, name, by, now, now + days * DAY_S),
        )
        row = db.execute("SELECT * FROM invitations WHERE digest = ?", (digest(token),)).fetchone()
    return token, _invitation(row)


def _usable(db: sqlite3.Connection, token: str) -> sqlite3.Row:
    row: sqlite3.Row | None = db.execute(
        "SELECT * FROM invitations WHERE digest = ? AND used_at IS NULL AND expires_at > ?",
        (digest(token), time.time()),
    ).fetchone()
    if row is None or (row["created_by"] == SETUP and db.execute("SELECT 1 FROM accounts LIMIT 1").fetchone()):
        raise NotFoundError(GONE)
    return row


def _invitation(row: sqlite3.Row) -> Invitation:
    values = dict(row)
    return Invitation(id=values.pop("digest")[:_ID], **values)
