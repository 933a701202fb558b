"""API tokens of people: for programs that use the page's API in somebody's name, with that person's role or less.

A token is `assay_pat_ID_SECRET`. The id is public and names it in lists and in the audit log; the secret is 256 random
bits, so that a fast hash is enough (as for serving keys, `assay_serving.server.auth.key_store`). It is good while its
account may sign in, at most until it expires, and can be revoked at once. Leaves out: which role suffices for which
scope, and which routes take none (`assay_web.access`).
"""

import secrets
import sqlite3
import time
from dataclasses import dataclass

from assay.errors import BadInputError, NotFoundError
from assay_web.accounts.access_file import AccessFile, digest
from assay_web.accounts.accounts import Role, account_row, check_role

PREFIX = "assay_pat_"
LONGEST_DAYS, LONGEST_LABEL, MOST = 366.0, 100, 50
TOUCH_S = 60.0  #: minimum time between updates of a token's last use


@dataclass(frozen=True)
class ApiToken:
    """Without its secret. `name`: of its account. `label`: what it is for. `role`: that it was made for. Times are
    seconds since the epoch; `used_at`: within a minute, None before the first use."""

    id: str
    name: str
    label: str
    role: Role
    created_at: float
    expires_at: float
    used_at: float | None


@dataclass(frozen=True)
class TokenHolder:
    """Whose token it is, their role now, and the role that the token was made for."""

    id: str
    name: str
    role: Role
    token_role: Role


def make_token(access: AccessFile, name: str, label: str, role: Role, *, days: float) -> tuple[str, ApiToken]:
    """The token and its entry; only the hash stays here. Raises BadInputError, NotFoundError."""
    label = label.strip()
    if not label or len(label) > LONGEST_LABEL or not label.isprintable():
        raise BadInputError(f"say what it is for in 1 to {LONGEST_LABEL} printable characters", field="label")
    if not 0 < days <= LONGEST_DAYS:
        raise BadInputError(f"it is good for at most {LONGEST_DAYS:.0f} days", field="days")
    check_role(role)
    now, token_id = time.time(), secrets.token_hex(4)
    token = f"{PREFIX}{token_id}_{secrets.token_urlsafe(32)}"
    with access.writing() as db:
        account_row(db, name)
        db.execute("DELETE FROM tokens WHERE expires_at < ?", (now - LONGEST_DAYS * 86_400,))
        if db.execute("SELECT count(*) FROM tokens WHERE name = ?", (name,)).fetchone()[0] >= MOST:
            raise BadInputError(f"{name} has {MOST} tokens: revoke some first")
        db.execute(
            "INSERT INTO tokens VALUES (?, ?, ?, ?, ?, ?, ?, NULL)",
            (digest(token), token_id, name, label, role, now, now + 86_400 * days),
        )
    return token, ApiToken(token_id, name, label, role, now, now + 86_400 * days, None)


def holder_of(access: AccessFile, token: str) -> TokenHolder | None:
    """None for a token that is unknown, revoked, expired, or of an account that is gone or disabled."""
    if not token.startswith(PREFIX):
        return None
    now = time.time()
    with access.reading() as db:
        row = db.execute(
            """SELECT t.id, t.name, t.role AS token_role, t.expires_at, t.used_at, a.role FROM tokens t
               JOIN accounts a ON a.name = t.name AND NOT a.disabled WHERE t.digest = ?""",
            (digest(token),),
        ).fetchone()
    if row is None or row["expires_at"] <= now:
        return None
    if row["used_at"] is None or now - row["used_at"] > TOUCH_S:
        with access.writing(durable=False) as db:
            db.execute("UPDATE tokens SET used_at = ? WHERE digest = ?", (now, digest(token)))
    return TokenHolder(row["id"], row["name"], row["role"], row["token_role"])


def list_tokens(access: AccessFile, name: str | None = None) -> list[ApiToken]:
    """Newest first, expired ones too: of one account, or of all."""
    with access.reading() as db:
        rows = db.execute(
            """SELECT id, name, label, role, created_at, expires_at, used_at FROM tokens
               WHERE ? IS NULL OR name = ? ORDER BY created_at DESC""",
            (name, name),
        ).fetchall()
    return [ApiToken(**dict(row)) for row in rows]


def revoke_token(access: AccessFile, token_id: str, *, of: str | None = None) -> ApiToken:
    """Takes effect with the next request. `of`: the account that it must be of. Raises NotFoundError."""
    with access.writing() as db:
        row: sqlite3.Row | None = db.execute(
            """DELETE FROM tokens WHERE id = ? AND (? IS NULL OR name = ?)
               RETURNING id, name, label, role, created_at, expires_at, used_at""",
            (token_id, of, of),
        ).fetchone()
    if row is None:
        raise NotFoundError("there is no such token")
    return ApiToken(**dict(row))
