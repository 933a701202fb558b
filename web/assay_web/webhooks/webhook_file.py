"""The file `webhooks.sqlite` of a workspace: webhooks, the deliveries that wait and those that ended.

Secrets are in it as they are, for signing needs them: it is readable by its owner only (mode 0600). Leaves out: sending
(`sender`), what the events are (`event`).
"""

import base64
import json
import secrets
import sqlite3
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from assay.errors import BadInputError, NotFoundError
from assay.system.sqlite_file import SQLiteFile

FILE = "webhooks.sqlite"
SECRET = "whsec_"
MOST, LONGEST_URL = 50, 2_000
KEPT = 500  #: ended deliveries of a webhook

DeliveryState: TypeAlias = Literal["waiting", "delivered", "failed"]


@dataclass(frozen=True)
class Webhook:
    """`events`: types it asks for. `private`: whether it may be at a private address. `ended`: why nothing is sent to
    it any more; None while it is in use. Times are seconds since the epoch."""

    id: str
    url: str
    events: tuple[str, ...]
    private: bool
    created_at: float
    created_by: str
    ended: str | None


@dataclass(frozen=True)
class Delivery:
    """One event for one webhook. `attempts`: made so far; `status`: HTTP status of the last; `error`: why it was no
    success; `address`: that it went to; `next_at`: of the next attempt, while it waits."""

    id: int
    webhook: str
    message: str
    type: str
    body: str
    state: DeliveryState
    attempts: int
    created_at: float
    last_at: float | None
    next_at: float | None
    status: int | None
    error: str | None
    address: str | None


_DELIVERY = ", ".join(Delivery.__dataclass_fields__)


class WebhookFile(SQLiteFile):
    schema = """
CREATE TABLE IF NOT EXISTS webhooks (
    id TEXT PRIMARY KEY, url TEXT NOT NULL, events TEXT NOT NULL, private INTEGER NOT NULL, created_at REAL NOT NULL,
    created_by TEXT NOT NULL, ended TEXT, secret TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS deliveries (
    id INTEGER PRIMARY KEY AUTOINCREMENT, webhook TEXT NOT NULL, message TEXT NOT NULL, type TEXT NOT NULL,
    body TEXT NOT NULL, state TEXT NOT NULL, attempts INTEGER NOT NULL DEFAULT 0, created_at REAL NOT NULL,
    last_at REAL, next_at REAL, status INTEGER, error TEXT, address TEXT);
CREATE INDEX IF NOT EXISTS deliveries_due ON deliveries (next_at) WHERE state = 'waiting';
CREATE INDEX IF NOT EXISTS deliveries_of ON deliveries (webhook, id);
-- What was told already, by queue or run.
CREATE TABLE IF NOT EXISTS noted (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""
    version = 1
    private = True
    remedy = "move it away and start again: webhooks have to be made again; nothing else is in it"

    def add(self, url: str, events: Sequence[str], *, private: bool, by: str) -> tuple[str, Webhook]:
        """Its secret and the webhook. Raises BadInputError beyond MOST."""
        secret = SECRET + base64.b64encode(secrets.token_bytes(32)).decode()
        webhook = Webhook(f"hook-{secrets.token_hex(4)}", url, tuple(events), private, time.time(), by, None)
        with self.writing() as db:
            if db.execute("SELECT count(*) FROM webhooks").fetchone()[0] >= MOST:
                raise BadInputError(f"there are {MOST} webhooks: delete one first")
            db.execute(
                "INSERT INTO webhooks VALUES (?, ?, ?, ?, ?, ?, NULL, ?)",
                (webhook.id, url, json.dumps(webhook.events), private, webhook.created_at, by, secret),
            )
        return secret, webhook

    def webhooks(self) -> list[Webhook]:
        """The newest first."""
        with self.reading() as db:
            rows = db.execute("SELECT * FROM webhooks ORDER BY created_at DESC").fetchall()
        return [_webhook(row) for row in rows]

    def webhook(self, webhook_id: str) -> tuple[str, Webhook]:
        """Its secret and the webhook. Raises NotFoundError."""
        with self.reading() as db:
            row = db.execute("SELECT * FROM webhooks WHERE id = ?", (webhook_id,)).fetchone()
        if row is None:
            raise NotFoundError("there is no such webhook")
        return row["secret"], _webhook(row)

    def remove(self, webhook_id: str) -> Webhook:
        """With its deliveries. Raises NotFoundError."""
        _, webhook = self.webhook(webhook_id)
        with self.writing() as db:
            db.execute("DELETE FROM deliveries WHERE webhook = ?", (webhook_id,))
            db.execute("DELETE FROM webhooks WHERE id = ?", (webhook_id,))
        return webhook

    def end(self, webhook_id: str, why: str | None) -> None:
        """Send nothing to it any more; None: send to it again."""
        with self.writing() as db:
            db.execute("UPDATE webhooks SET ended = ? WHERE id = ?", (why, webhook_id))

    def queue(self, message: str, event_type: str, body: str, *, now: float, webhook: str | None = None) -> int:
        """A delivery for each webhook that asks for the type, or for the one named; how many."""
        with self.writing() as db:
            rows = db.execute("SELECT * FROM webhooks WHERE ended IS NULL OR id = ?", (webhook,)).fetchall()
            wanting = [row["id"] for row in rows if webhook is None and event_type in json.loads(row["events"])]
            for webhook_id in [webhook] if webhook is not None else wanting:
                db.execute(
                    """INSERT INTO deliveries (webhook, message, type, body, state, created_at, next_at)
                       VALUES (?, ?, ?, ?, 'waiting', ?, ?)""",
                    (webhook_id, message, event_type, body, now, now),
                )
        return len(wanting) if webhook is None else 1

    def claim(self, now: float, *, lease_s: float, most: int) -> list[Delivery]:
        """Deliveries that are due, the oldest first; nobody else gets them until the lease is over."""
        with self.writing() as db:
            rows = db.execute(
                f"SELECT {_DELIVERY} FROM deliveries WHERE state = 'waiting' AND next_at <= ? ORDER BY id LIMIT ?",
                (now, most),
            ).fetchall()
            db.executemany(
                "UPDATE deliveries SET next_at = ? WHERE id = ?", [(now + lease_s, row["id"]) for row in rows]
            )
        return [Delivery(**dict(row)) for row in rows]

    def settle(
        self,
        delivery: Delivery,
        state: DeliveryState,
        *,
        now: float,
        next_at: float | None,
        status: int | None,
        error: str | None,
        address: str | None,
    ) -> None:
        """Note an attempt, and forget old deliveries of the webhook beyond KEPT."""
        with self.writing() as db:
            db.execute(
                """UPDATE deliveries SET state = ?, attempts = attempts + 1, last_at = ?, next_at = ?, status = ?,
                          error = ?, address = ? WHERE id = ?""",
                (state, now, next_at, status, error, address, delivery.id),
            )
            db.execute(
                """DELETE FROM deliveries WHERE webhook = ? AND state != 'waiting' AND id <= (
                       SELECT id FROM deliveries WHERE webhook = ? AND state != 'waiting'
                       ORDER BY id DESC LIMIT 1 OFFSET ?)""",
                (delivery.webhook, delivery.webhook, KEPT),
            )

    def again(self, delivery_id: int, *, now: float) -> Delivery:
        """Send it once more now. Raises NotFoundError."""
        with self.writing() as db:
            row = db.execute(
                f"""UPDATE deliveries SET state = 'waiting', attempts = 0, next_at = ? WHERE id = ?
                    RETURNING {_DELIVERY}""",
                (now, delivery_id),
            ).fetchone()
        if row is None:
            raise NotFoundError("there is no such delivery")
        return Delivery(**dict(row))

    def deliveries(self, webhook_id: str | None = None, *, before: int | None = None, most: int) -> list[Delivery]:
        """The newest first; `before`: older than the one with this id."""
        with self.reading() as db:
            rows = db.execute(
                f"""SELECT {_DELIVERY} FROM deliveries WHERE (? IS NULL OR webhook = ?) AND (? IS NULL OR id < ?)
                    ORDER BY id DESC LIMIT ?""",
                (webhook_id, webhook_id, before, before, most),
            ).fetchall()
        return [Delivery(**dict(row)) for row in rows]

    def noted(self) -> dict[str, str]:
        with self.reading() as db:
            return {row["key"]: row["value"] for row in db.execute("SELECT key, value FROM noted")}

    def note(self, key: str, value: str) -> None:
        with self.writing() as db:
            db.execute(
                "INSERT INTO noted VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value", (key, value)
            )


def _webhook(row: sqlite3.Row) -> Webhook:
    fields = {**dict(row), "events": tuple(json.loads(row["events"])), "private": bool(row["private"])}
    del fields["secret"]
    return Webhook(**fields)
