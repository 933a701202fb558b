"""Accounts: names with a role and a password. An account is disabled, never deleted: its name stays on its votes.

Each function is one unit of work on the access file, used by the routes and the command line. Leaves out: permissions
(`assay_web.access.guard`), links that create accounts (`invitations`).
"""

import sqlite3
import time
import unicodedata
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from assay.errors import BadInputError, ConflictError, NotFoundError
from assay_pipelines.annotation.queues import check_project
from assay_pipelines.annotation.recording import DEFAULT_PROJECT
from assay_web.accounts.access_file import AccessFile
from assay_web.accounts.passwords import Passwords, check_new_password

Role: TypeAlias = Literal["viewer", "annotator", "curator", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)


LONGEST_NAME = 100
NO_PASSWORD = "!"  #: in place of a hash: nobody signs in to the account with one


@dataclass(frozen=True)
class Account:
    """`seen_at`: when one of its sessions was last used, ended ones too, within a minute; None before the first. Times
    are seconds since the epoch."""

    name: str
    role: Role
    disabled: bool
    created_at: float
    created_by: str
    seen_at: float | None


def list_accounts(access: AccessFile) -> list[Account]:
    """By name."""
    with access.reading() as db:
        rows = db.execute(
            """SELECT a.name, a.role, a.disabled, a.created_at, a.created_by, max(s.at) AS seen_at
               FROM accounts a LEFT JOIN (SELECT name, seen_at AS at FROM sessions WHERE role IS NULL
                                          UNION ALL SELECT name, at FROM last_seen) s ON s.name = a.name
               GROUP BY a.name ORDER BY a.name COLLATE NOCASE"""
        ).fetchall()
    return [Account(**{**dict(row), "disabled": bool(row["disabled"])}) for row in rows]


def has_accounts(access: AccessFile) -> bool:
    with access.reading() as db:
        return db.execute("SELECT 1 FROM accounts LIMIT 1").fetchone() is not None


def add_account(
    access: AccessFile,
    passwords: Passwords,
    name: str,
    role: Role,
    password: str,
    *,
    by: str,
    project: str = DEFAULT_PROJECT,
) -> str:
    """A member of one project. Returns its name, without spaces around it. Raises BadInputError for a name or
    password that cannot be, ConflictError for a name that is taken."""
    plain = check_name(name)
    check_role(role)
    check_project(project)
    check_new_password(plain, password)
    with access.reading() as db:
        check_free(db, plain)  # before the work of hashing, and again below
    hashed = passwords.hashed(password)
    with access.writing() as db:
        insert_account(db, plain, role, hashed, by=by, project=project)
    return plain


def change_account(access: AccessFile, name: str, *, role: Role | None = None, disabled: bool | None = None) -> None:
    """Takes effect at once, for open sessions too; disabling ends them, and the account's API tokens.
    None leaves a value unchanged.

    Raises NotFoundError; ConflictError, without a change, if no administrator would be left.
    """
    if role is not None:
        check_role(role)
    with access.writing() as db:
        before = account_row(db, name)
        db.execute(
            "UPDATE accounts SET role = coalesce(?, role), disabled = coalesce(?, disabled) WHERE name = ?",
            (role, disabled, name),
        )
        after = account_row(db, name)
        if after["disabled"]:
            db.execute("DELETE FROM sessions WHERE name = ?", (name,))
            db.execute("DELETE FROM tokens WHERE name = ?", (name,))
            db.execute("DELETE FROM invitations WHERE name = ? AND used_at IS NULL", (name,))
        if _administrates(before) and not _administrates(after):
            if db.execute("SELECT 1 FROM accounts WHERE role = 'admin' AND NOT disabled LIMIT 1").fetchone() is None:
                raise ConflictError(f"{name} is the only administrator: make somebody else one first")
            # Open invitations of a former administrator would let them back in.
            db.execute("DELETE FROM invitations WHERE created_by = ? AND used_at IS NULL", (name,))


def set_password(access: AccessFile, passwords: Passwords, name: str, password: str, *, but: str | None = None) -> None:
    """Ends the account's sessions, but the one with this digest, and links that would set another password. Raises
    NotFoundError, BadInputError."""
    check_new_password(name, password)
    hashed = passwords.hashed(password)
    with access.writing() as db:
        account_row(db, name)
        replace_password(db, name, hashed, but=but)
        db.execute("DELETE FROM invitations WHERE name = ? AND used_at IS NULL", (name,))


def authenticate(access: AccessFile, passwords: Passwords, name: str, password: str) -> str | None:
    """The account's name if it may sign in with this password, else None; an unknown name takes as long. A hash of
    another cost is recomputed."""
    with access.reading() as db:
        row = _row_of(db, name)
    usable = row is not None and not row["disabled"] and row["password"] != NO_PASSWORD
    stored_hash = row["password"] if row is not None and usable else None
    if not passwords.verify(stored_hash, password) or row is None:
        return None
    if passwords.needs_rehash(row["password"]):
        hashed = passwords.hashed(password)
        with access.writing() as db:
            db.execute(
                "UPDATE accounts SET password = ? WHERE name = ? AND password = ?", (hashed, row["name"], stored_hash)
            )
    account: str = row["name"]
    return account


def account_named(access: AccessFile, name: str) -> str | None:
    """The account's stored name for any spelling of it; None if unknown."""
    with access.reading() as db:
        row = _row_of(db, name)
    return row["name"] if row is not None else None


def plain_name(name: str) -> str:
    """One spelling for what looks the same: single spaces and none around it, letters composed with their accents."""
    return " ".join(part for part in unicodedata.normalize("NFC", name).split(" ") if part)


def check_name(name: str) -> str:
    """The normalised name. Raises BadInputError for an invalid name."""
    plain = plain_name(name)
    if not plain or len(plain) > LONGEST_NAME or not plain.isprintable() or "/" in plain:
        raise BadInputError(f"a name is 1 to {LONGEST_NAME} printable characters, without /", field="name")
    return plain


def check_role(role: str) -> None:
    if role not in ROLES:
        raise BadInputError(f"{role!r} is none of {', '.join(ROLES)}", field="role")


def check_free(db: sqlite3.Connection, name: str) -> None:
    """Raises ConflictError for a name that differs from another one by its capitals alone, or not at all."""
    if (row := _row_of(db, name)) is not None:
        raise ConflictError(f"there is an account {row['name']!r} already")


def insert_account(
    db: sqlite3.Connection, name: str, role: str, hashed: str, *, by: str, project: str = DEFAULT_PROJECT
) -> None:
    check_free(db, name)
    db.execute("INSERT INTO accounts VALUES (?, ?, ?, 0, ?, ?)", (name, role, hashed, time.time(), by))
    db.execute("INSERT OR IGNORE INTO members VALUES (?, ?)", (project, name))


def replace_password(db: sqlite3.Connection, name: str, hashed: str, *, but: str | None = None) -> None:
    db.execute("UPDATE accounts SET password = ? WHERE name = ?", (hashed, name))
    db.execute("DELETE FROM sessions WHERE name = ? AND digest IS NOT ?", (name, but))


def account_row(db: sqlite3.Connection, name: str) -> sqlite3.Row:
    row: sqlite3.Row | None = db.execute("SELECT * FROM accounts WHERE name = ?", (name,)).fetchone()
    if row is None:
        raise NotFoundError(f"there is no account {name!r}")
    return row


def _row_of(db: sqlite3.Connection, name: str) -> sqlite3.Row | None:
    """Case-insensitive beyond ASCII, which SQLite's NOCASE is not, and regardless of extra spaces."""
    folded = plain_name(name).casefold()
    for row in db.execute("SELECT * FROM accounts"):
        if plain_name(row["name"]).casefold() == folded:
            account: sqlite3.Row = row
            return account
    return None


def _administrates(row: sqlite3.Row) -> bool:
    return row["role"] == "admin" and not row["disabled"]
