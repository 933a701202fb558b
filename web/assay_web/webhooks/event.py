"""What webhooks tell: a small set of events, each with a typed payload.

    emit(workspace, Alert(run="run-...", rule="kl", message="KL 12.4 is above 10"))

`emit` may be called by any process. It writes the event to the workspace once for each webhook that wants it, and
returns; the web server sends it. Leaves out: noticing what no caller tells (`watcher`), sending (`sender`).
"""

import json
import logging
import secrets
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import ClassVar, Protocol

from assay.errors import AssayError
from assay.workspace import Workspace
from assay_web.webhooks.webhook_file import FILE, WebhookFile

log = logging.getLogger(__name__)


class WebhookEvent(Protocol):
    """A dataclass whose fields are the payload's `data`, and its type."""

    type: ClassVar[str]


@dataclass(frozen=True)
class QueueProgressed:
    """Another twentieth of a queue's items is done, or its votes passed another hundred. Exact counts, as curators see
    them; no vote and nobody's name."""

    type: ClassVar[str] = "queue.progress"
    queue: str
    project: str
    items: int
    done: int
    votes: int


@dataclass(frozen=True)
class QueueDone:
    """Every item of a queue has the votes that it needs. `conflicts`: without a majority or an adjudication."""

    type: ClassVar[str] = "queue.done"
    queue: str
    project: str
    items: int
    votes: int
    conflicts: int


@dataclass(frozen=True)
class DecisionsMade:
    """A run has written decisions: pool -> number of comparisons."""

    type: ClassVar[str] = "decisions.made"
    run: str
    kind: str
    pools: dict[str, int]


@dataclass(frozen=True)
class RunEnded:
    """`status`: done, failed or interrupted; `error`: its one line."""

    type: ClassVar[str] = "run.ended"
    run: str
    kind: str
    status: str
    error: str | None


@dataclass(frozen=True)
class Alert:
    """A rule that somebody set on a run's figures holds. `rule`: its name or its text."""

    type: ClassVar[str] = "alert"
    run: str
    rule: str
    message: str


@dataclass(frozen=True)
class Ping:
    """Sent by the button "Send a test"."""

    type: ClassVar[str] = "ping"
    by: str


EVENT_TYPES: tuple[type[WebhookEvent], ...] = (QueueProgressed, QueueDone, DecisionsMade, RunEnded, Alert)
TYPES = tuple(event.type for event in EVENT_TYPES)  #: that a webhook can ask for


def emit(workspace: Workspace, event: WebhookEvent, *, webhook: str | None = None) -> int:
    """How many webhooks will be told. `webhook`: the only one, whatever it asks for. Never raises for a file that
    cannot be written: what happened must not fail because nobody could be told of it."""
    path = workspace.root / FILE
    if not path.is_file():
        return 0
    payload = {
        "type": event.type,
        "timestamp": datetime.now(UTC).isoformat(timespec="seconds"),
        "data": asdict(event),  # type: ignore[call-overload]  # every event is a dataclass
    }
    body = json.dumps(payload, ensure_ascii=False, separators=(",", ":"))
    try:
        with WebhookFile(path) as file:
            return file.queue(f"msg_{secrets.token_hex(12)}", event.type, body, now=time.time(), webhook=webhook)
    except AssayError as error:
        log.error("webhooks were not told of %s: %s", event.type, error)
        return 0
