"""What the client gives back, as plain dataclasses. Fields that a newer server adds are left out."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeVar

R = TypeVar("R")


@dataclass(frozen=True)
class RecordError:
    """Why a pushed record was not taken. `index`: 0-based among those pushed."""

    index: int
    field: str | None
    reason: str


@dataclass(frozen=True)
class PushedRecords:
    """`comparison_ids`: in the order of the records, None for a rejected one. `new`: comparisons that the workspace had
    not. `queued`: items that the queue had not. `runs`: in the workspace, one for each request."""

    comparison_ids: tuple[str | None, ...]
    new: int
    rejected: tuple[RecordError, ...]
    queued: int
    runs: tuple[str, ...]


@dataclass(frozen=True)
class QueueStanding:
    """How far a queue is. `share`: of its items that are done. `counts`: items, done, votes, conflicts, ...; None
    without a curator's token."""

    name: str
    project: str
    question: str
    closed: bool
    share: float
    people: int
    counts: dict[str, Any] | None


@dataclass(frozen=True)
class PulledVote:
    """`vote`: its id. `answer`: A, B, tie, skip, ... in the comparison's own order (A has the lower response id), or
    "answered" with `labels` for what is no pair. `role`: vote, or blind or open for an adjudication. `withdrawn`: it
    was taken back, perhaps after it had been pulled. `check`: it is on a gold check. `at`: seconds since the epoch.
    `cursor`: pull on from here another time."""

    vote: str
    comparison_id: str
    annotator: str
    role: Literal["vote", "blind", "open"]
    answer: str
    strength: int | None
    rationale: str | None
    labels: Any
    principles: list[dict[str, Any]]
    seconds: float | None
    at: float
    withdrawn: bool
    check: bool
    cursor: str


@dataclass(frozen=True)
class PulledDecision:
    """What was concluded of a comparison; a later one replaces an earlier one. `pool`: gold, silver, discarded,
    recycled or pending. `cursor`: pull on from here another time."""

    comparison_id: str
    pool: str
    label: Literal["A", "B", "tie"] | None
    margin: float | None
    rule: str
    reason: str
    run: str | None
    at: float
    cursor: str


def of(kind: type[R], payload: Mapping[str, Any], **more: Any) -> R:
    """The dataclass from a reply's object."""
    names = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in payload.items() if name in names}, **more)
