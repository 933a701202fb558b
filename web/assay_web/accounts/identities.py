"""Identities of an OpenID provider: whose account each is, and sign-ins that are on their way through the provider.

An identity is an issuer and a subject, which the provider never gives to somebody else; names and addresses it may. A
sign-in on its way is good once, for ten minutes, in the browser that began it. Leaves out: the provider (`provider`).
"""

import secrets
import sqlite3
import time
from contextlib import suppress
from dataclasses import dataclass

from assay.errors import ConflictError, ForbiddenError
from assay_web.accounts.access_file import AccessFile, digest
from assay_web.accounts.accounts import NO_PASSWORD, Role, account_row, change_account, check_name, insert_account

GOOD_S = 600.0
MOST = 1_000  #: on their way; the oldest are forgotten


@dataclass(frozen=True)
class PendingSignIn:
    """`verifier`: of PKCE. `target`: the page's address to go to afterwards. `name`: the account that is signed in and
    gets the identity; None: a sign-in."""

    nonce: str
    verifier: str
    target: str
    name: str | None


@dataclass(frozen=True)
class Identity:
    """`name`: that the provider states, for a new account. `role`: that its claims come to; None: they say nothing."""

    issuer: str
    subject: str
    name: str
    role: Role | None


def begin_sign_in(access: AccessFile, pending: PendingSignIn) -> tuple[str, str]:
    """The state for the provider, and the token for a cookie of the browser."""
    state, browser, now = secrets.token_urlsafe(32), secrets.token_urlsafe(32), time.time()
    with access.writing(durable=False) as db:
        db.execute(
            """DELETE FROM pending_sign_ins WHERE at < ? OR state IN (
                   SELECT state FROM pending_sign_ins ORDER BY at DESC LIMIT -1 OFFSET ?)""",
            (now - GOOD_S, MOST - 1),
        )
        db.execute(
            "INSERT INTO pending_sign_ins VALUES (?, ?, ?, ?, ?, ?, ?)",
            (digest(state), digest(browser), pending.nonce, pending.verifier, pending.target, pending.name, now),
        )
    return state, browser


def take_sign_in(access: AccessFile, state: str, browser: str) -> PendingSignIn | None:
    """The sign-in with this state, which is then used up. None if there is none, it is too old, or of another
    browser."""
    with access.writing() as db:
        row = db.execute("DELETE FROM pending_sign_ins WHERE state = ? RETURNING *", (digest(state),)).fetchone()
    if row is None or time.time() - row["at"] > GOOD_S:
        return None
    if not secrets.compare_digest(row["browser"], digest(browser)):
        return None
    return PendingSignIn(row["nonce"], row["verifier"], row["target"], row["name"])


def account_of(access: AccessFile, identity: Identity, *, default_role: Role | None, project: str) -> str:
    """The account's name, made at the first sign-in. Its role follows the provider's where that states one.

    Raises ForbiddenError for a disabled account and for somebody without a role here, ConflictError for a name that
    another account has: a name of the provider's is no proof of being that person.
    """
    with access.writing() as db:
        row = _row_of(db, identity)
        if row is None:
            role = identity.role or default_role
            if role is None:
                raise ForbiddenError(f"the provider gives {identity.name} no role here")
            new = check_name(identity.name)
            insert_account(db, new, role, NO_PASSWORD, by=identity.issuer, project=project)
            db.execute("INSERT INTO identities VALUES (?, ?, ?)", (identity.issuer, identity.subject, new))
            return new
    name: str = row["name"]
    if row["disabled"]:
        raise ForbiddenError(f"the account {name} is disabled")
    if identity.role is not None and identity.role != row["role"]:
        with suppress(ConflictError):  # the only administrator stays one
            change_account(access, name, role=identity.role)
    return name


def link_identity(access: AccessFile, identity: Identity, name: str) -> None:
    """Sign in to an account that there is by this identity too. Raises ConflictError if it is another account's."""
    with access.writing() as db:
        account_row(db, name)
        row = _row_of(db, identity)
        if row is not None and row["name"] != name:
            raise ConflictError("that identity signs in to another account")
        db.execute("INSERT OR IGNORE INTO identities VALUES (?, ?, ?)", (identity.issuer, identity.subject, name))


def _row_of(db: sqlite3.Connection, identity: Identity) -> sqlite3.Row | None:
    row: sqlite3.Row | None = db.execute(
        "SELECT a.* FROM identities i JOIN accounts a USING (name) WHERE issuer = ? AND subject = ?",
        (identity.issuer, identity.subject),
    ).fetchone()
    return row
