"""Changes of a queue and what stood beside a vote, as the journal and the store hold them.

Covers: their fields, their identity, their insertion. Leaves out: what a change means
(`assay_pipelines.annotation.queue_state`), the journal's files (`assay.annotation.vote_journal`).
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

from assay import ids
from assay.errors import BadInputError
from assay.store.database import Connection, registered

Suggestion: TypeAlias = Literal["before", "after"]


@dataclass(frozen=True, slots=True)
class QueueChange:
    """`person`: None for a rule of the queue. `at`: seconds since the epoch. `key`: chosen by who asks for the change,
    so that the same request again is the same change."""

    queue_id: str
    change: str
    detail: Mapping[str, Any]
    person: str | None
    at: float
    key: str = ""

    def __post_init__(self) -> None:
        """Raises BadInputError for what the store would refuse: one such change would keep all votes from it."""
        try:
            json.dumps(self.to_dict(), allow_nan=False, ensure_ascii=False).encode("utf-8")
        except (TypeError, ValueError) as error:
            raise BadInputError(f"a change of a queue that cannot be stored: {error}") from error

    @property
    def id(self) -> str:
        parts = [
            self.queue_id,
            self.change,
            self.person or "",
            self.key or f"{self.at}{json.dumps(dict(self.detail), sort_keys=True)}",
        ]
        return "c-" + ids.digest(ids.FIELD.join(parts))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class VoteContext:
    """What an annotator had beside the item: see the table `vote_contexts`."""

    guideline: int | None = None
    suggestion: Suggestion | None = None

    def to_dict(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}


def store_changes(db: Connection, changes: Iterable[QueueChange]) -> int:
    """Insert those that the store does not have; returns how many."""
    rows = {change.id: change for change in changes}
    columns: dict[str, list[Any]] = {
        "change_id": list(rows),
        "queue_id": [c.queue_id for c in rows.values()],
        "change": [c.change for c in rows.values()],
        "detail": [json.dumps(dict(c.detail), ensure_ascii=False) for c in rows.values()],
        "person": [c.person for c in rows.values()],
        "happened_at": [datetime.fromtimestamp(c.at, UTC) for c in rows.values()],
    }
    return _insert_new(db, "queue_changes", "change_id", columns)


def store_contexts(db: Connection, contexts: Mapping[str, tuple[VoteContext, str | None]]) -> int:
    """`contexts`: judgment id -> what stood beside its item, and the run that asked."""
    columns: dict[str, list[Any]] = {
        "judgment_id": list(contexts),
        "guideline": [context.guideline for context, _ in contexts.values()],
        "suggestion": [context.suggestion for context, _ in contexts.values()],
        "run_id": [run for _, run in contexts.values()],
    }
    return _insert_new(db, "vote_contexts", "judgment_id", columns)


def _insert_new(db: Connection, table: str, key: str, columns: Mapping[str, list[Any]]) -> int:
    import pyarrow as pa

    if not columns[key]:
        return 0
    kinds = {"guideline": pa.int32(), "happened_at": pa.timestamp("us", "UTC")}
    arrays = {name: pa.array(values, kinds.get(name, pa.string())) for name, values in columns.items()}
    with registered(db, "incoming", pa.table(arrays)):
        row = db.execute(
            f"""INSERT INTO {table} ({", ".join(columns)})
                SELECT {", ".join(columns)} FROM incoming ANTI JOIN {table} USING ({key})"""
        ).fetchone()
    return int(row[0]) if row else 0
