"""Webhook events on their way into the store: one durable file each before acknowledgement, removed once folded."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.errors import BackendError
from assay.system.atomic_files import replacing
from assay.workspace import Workspace

DAMAGED = "damaged"


def spool_folder(workspace: Workspace) -> Path:
    return workspace.journal / "label-studio"


def append_event(folder: Path, server: str, event: Mapping[str, Any]) -> None:
    """Returns once the event is on the disk: only then may it be acknowledged. Raises BackendError."""
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise BackendError(f"cannot make {folder}: {error.strerror or error}") from error
    name = f"event-{time.time_ns():020d}-{secrets.token_hex(4)}.json"
    with replacing(folder / name) as path:
        path.write_text(json.dumps({"server": server, "event": dict(event)}), encoding="ascii")


def read_events(folder: Path) -> Iterator[tuple[Path, dict[str, Any] | None]]:
    """The events that wait, oldest first; None for a file that cannot be read any more."""
    for path in sorted(folder.glob("event-*.json")):
        try:
            event = json.loads(path.read_text(encoding="ascii"))
        except FileNotFoundError:
            continue  # another process has just folded it
        except ValueError:
            event = None
        sound = isinstance(event, dict) and isinstance(event.get("event"), dict) and "server" in event
        yield path, event if sound else None


def retire(folder: Path, folded: Sequence[Path], damaged: Sequence[Path]) -> None:
    """After the commit: what is in the store goes, what cannot be read is set aside."""
    for path in folded:
        path.unlink(missing_ok=True)
    for path in damaged:
        (folder / DAMAGED).mkdir(exist_ok=True)
        path.rename(folder / DAMAGED / path.name)
