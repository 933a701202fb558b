"""Invitation links: single-use tokens with an expiry that create an account with a role, or reset a password.

Only the token's digest is stored: a link is shown once, when it is created. The token is in the URL fragment
(`/invitation#TOKEN`), which browsers do not send and servers and proxies do not log. Leaves out: who may invite.
"""

import secrets
import sqlite3
import time
from dataclasses import dataclass

from assay.errors import BadInputError, NotFoundError
from assay_pipelines.annotation.queues import check_project
from assay_pipelines.annotation.recording import DEFAULT_PROJECT
from assay_web.accounts.access_file import AccessFile, digest
from assay_web.accounts.accounts import (
    Role,
    account_row,
    check_free,
    check_name,
    check_role,
    insert_account,
    replace_password,
)
from assay_web.accounts.passwords import Passwords, check_new_password

DAY_S = 86400.0
LONGEST_DAYS = 90.0
SETUP = "assay web / first start"  #: creator of the first administrator's link; no account can have this name
GONE = "this link has been used, has expired, or was withdrawn: ask for a new one"
_ID = 12  #: characters of the digest that serve as an invitation's id


@dataclass(frozen=True)
class Invitation:
    """`project`: what a new account is a member of. `name`: the account whose password is reset; None creates a new
    account. Times are seconds since the epoch."""

    id: str
    role: Role
    name: str | None
    created_by: str
    created_at: float
    expires_at: float
    used_at: float | None
    used_by: str | None
    project: str


def invite(
    access: AccessFile, role: Role, *, by: str, days: float, project: str = DEFAULT_PROJECT
) -> tuple[str, Invitation]:
    """A token that creates an account with this role. Raises BadInputError."""
    check_role(role)
    check_project(project)
    return _make(access, role, None, by=by, days=days, project=project)


def invite_to_new_password(access: AccessFile, name: str, *, by: str, days: float) -> tuple[str, Invitation]:
    """A token that resets this account's password; earlier ones are deleted. Raises NotFoundError, BadInputError."""
    with access.writing() as db:
        row = account_row(db, name)
        if row["disabled"]:
            raise BadInputError(f"{name} is disabled", field="name")
        db.execute("DELETE FROM invitations WHERE name = ? AND used_at IS NULL", (name,))
    return _make(access, row["role"], name, by=by, days=days)


def setup_token(access: AccessFile) -> str:
    """For the first administrator, valid for a day and until an account exists; replaces that of an earlier start."""
    with access.writing() as db:
        db.execute("DELETE FROM invitations WHERE created_by = ? AND used_at IS NULL", (SETUP,))
    return invite(access, "admin", by=SETUP, days=1)[0]


def list_invitations(access: AccessFile) -> list[Invitation]:
    """Newest first, used and expired ones with them."""
    with access.reading() as db:
        rows = db.execute("SELECT * FROM invitations ORDER BY created_at DESC").fetchall()
    return [_invitation(row) for row in rows]


def open_invitation(access: AccessFile, token: str) -> Invitation:
    """Raises NotFoundError for an unknown, used or expired token."""
    with access.reading() as db:
        return _invitation(_usable(db, token))


def accept(access: AccessFile, passwords: Passwords, token: str, name: str, password: str) -> str:
    """The name of the new account, or of the one whose password was reset; `name` is used for a new account only.

    Raises NotFoundError for an unusable token, BadInputError and ConflictError for an invalid name or password; the
    token then stays valid.
    """
    invitation = open_invitation(access, token)
    plain = invitation.name if invitation.name is not None else check_name(name)
    check_new_password(plain, password)
    if invitation.name is None:
        with access.reading() as db:
            check_free(db, plain)
    hashed = passwords.hashed(password)
    with access.writing() as db:
        row = _usable(db, token)  # may have been used meanwhile
        if row["name"] is None:
            insert_account(db, plain, row["role"], hashed, by=row["created_by"], project=row["project"])
        else:
            account_row(db, plain)
            replace_password(db, plain, hashed)
        db.execute(
            "UPDATE invitations SET used_at = ?, used_by = ? WHERE digest = ?", (time.time(), plain, row["digest"])
        )
    return plain


def withdraw(access: AccessFile, invitation_id: str) -> Invitation:
    """Raises NotFoundError for an unknown or used invitation."""
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


def _make(
    access: AccessFile, role: Role, name: str | None, *, by: str, days: float, project: str = DEFAULT_PROJECT
) -> tuple[str, Invitation]:
    if not 0 < days <= LONGEST_DAYS:
        raise BadInputError(f"a link is good for up to {LONGEST_DAYS:g} days", field="days")
    token, now = secrets.token_urlsafe(32), time.time()
    with access.writing() as db:
        db.execute(
            "INSERT INTO invitations VALUES (?, ?, ?, ?, ?, ?, NULL, NULL, ?)",
            (digest(token), role, name, by, now, now + days * DAY_S, project),
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
