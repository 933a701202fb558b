"""The intermediate forms, one row at a time: what a layout makes of a record, gathered into bounded Arrow batches.

Covers: `PairRow`, `FeedbackRow`, `PrincipleRow`, `BatchBuilder`, the metadata column. Leaves out: reading files
(`containers`), what a record means (the layouts), writing to the store (`assay.store.intake`, `feedback_intake`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from assay.data.conversation import Turns
from assay.data.json_lines import RowError
from assay.store.feedback_intake import feedback_schema, principle_schema
from assay.store.intake import pair_schema, reject_schema

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_PAIRS = 122_880  #: one of DuckDB's row groups: a unit of work of some seconds; smaller ones pay for checkpoints
BATCH_CHARACTERS = 128_000_000
RAW_CHARACTERS = 500  #: how much of a rejected row is kept


@dataclass(slots=True)
class PairRow:
    """One pair in the order of the source. `source` and `record_id` None: the file's own."""

    turns: Turns
    first: str
    second: str
    label: str | None  #: one of `assay.store.intake.LABELS`, or None: not judged by the source
    strength: int | None = None
    rationale: str | None = None
    votes: list[dict[str, Any]] | None = None
    source: str | None = None
    record_id: str | None = None
    category: str | None = None
    license: str | None = None
    language: str | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)
    annotator: str | None = None

    def check(self, names: tuple[str, str] = ("chosen", "rejected")) -> PairRow:
        """Itself, if the two sides can be a comparison. Raises RowError."""
        for text, name in zip((self.first, self.second), names, strict=True):
            if not text:
                raise RowError("empty", field=name)
        if self.first == self.second:
            raise RowError("the two sides are identical")
        return self


@dataclass(slots=True)
class FeedbackRow:
    """What one annotator wrote about one response. `voter` None: the source itself; the rest as in `PairRow`."""

    turns: Turns
    response: str
    content: str
    kind: str = "human"
    voter: str | None = None
    source: str | None = None
    record_id: str | None = None
    category: str | None = None
    license: str | None = None
    language: str | None = None


@dataclass(slots=True)
class PrincipleRow:
    """Whether one response fulfils one principle: `answer` is yes, no or partially."""

    turns: Turns
    response: str
    principle: str
    answer: str
    evidence: str | None = None
    kind: str = "human"
    voter: str | None = None
    source: str | None = None
    record_id: str | None = None
    category: str | None = None
    license: str | None = None
    language: str | None = None


Row: TypeAlias = PairRow | FeedbackRow | PrincipleRow


@dataclass(frozen=True, slots=True)
class ReadBatch:
    """What a reader yields as Arrow, and how many rows of the file it came from. None: no such rows."""

    pairs: pa.RecordBatch
    rejects: pa.RecordBatch
    rows: int
    feedback: pa.RecordBatch | None = None
    principles: pa.RecordBatch | None = None


class BatchBuilder:
    """Gathers rows and rejects; `full` tells when to `take` a batch, so that memory stays bounded."""

    def __init__(self, source: str, name: str) -> None:
        """`source`: of rows that name none. `name`: the file's, for record ids of rows that have none."""
        self.source, self.name = source, name
        self._clear()

    def _clear(self) -> None:
        self._pairs: list[tuple[Any, ...]] = []
        self._feedback: list[tuple[Any, ...]] = []
        self._principles: list[tuple[Any, ...]] = []
        self._rejects: list[tuple[int, str | None, str, str | None]] = []
        self._rows = self._characters = 0

    def row_done(self) -> None:
        self._rows += 1

    def add(self, row: int, item: Row) -> None:
        if isinstance(item, PairRow):
            self._add_pair(row, item)
            return
        common = (
            row,
            item.turns,
            item.response,
            item.kind,
            item.voter,
            item.source or self.source,
            item.record_id or f"{self.name}#{row}",
            item.category,
            item.license,
            item.language,
        )
        self._characters += len(item.response) + sum(len(turn["content"]) for turn in item.turns)
        if isinstance(item, FeedbackRow):
            self._characters += len(item.content)
            self._feedback.append((*common, item.content))
        else:
            self._principles.append((*common, item.principle, item.answer, item.evidence))

    def _add_pair(self, row: int, pair: PairRow) -> None:
        meta = meta_json(pair.meta)
        self._characters += len(pair.first) + len(pair.second) + len(meta or "") + len(pair.rationale or "")
        self._characters += sum(len(turn["content"]) for turn in pair.turns)
        self._pairs.append(
            (
                row,
                pair.turns,
                pair.first,
                pair.second,
                pair.label,
                pair.strength,
                pair.rationale,
                pair.votes,
                pair.source or self.source,
                pair.record_id or f"{self.name}#{row}",
                pair.category,
                pair.license,
                pair.language,
                meta,
                pair.annotator,
            )
        )

    def reject(self, row: int, error: RowError, raw: str | None) -> None:
        """`raw` is cut to RAW_CHARACTERS; what UTF-8 cannot hold is escaped."""
        if raw is not None:
            raw = raw[:RAW_CHARACTERS].encode("utf-8", "backslashreplace").decode("utf-8").replace("\x00", "\\x00")
            self._characters += len(raw)
        self._rejects.append((row, error.field, error.reason, raw))

    @property
    def full(self) -> bool:
        longest = max(map(len, (self._pairs, self._rejects, self._feedback, self._principles)))
        return longest >= BATCH_PAIRS or self._characters >= BATCH_CHARACTERS

    @property
    def empty(self) -> bool:
        return not (self._rows or self._pairs or self._rejects or self._feedback or self._principles)

    def take(self) -> ReadBatch:
        """The batch gathered so far; the builder starts anew."""
        batch = ReadBatch(
            _arrow(self._pairs, pair_schema()),
            _arrow(self._rejects, reject_schema()),
            self._rows,
            _arrow(self._feedback, feedback_schema()) if self._feedback else None,
            _arrow(self._principles, principle_schema()) if self._principles else None,
        )
        self._clear()
        return batch


def meta_json(meta: Mapping[str, Any]) -> str | None:
    """Metadata as JSON text that any reader takes: NaN and infinities become null. Raises RowError for bad Unicode."""
    if not meta:
        return None
    try:
        text = json.dumps(meta, ensure_ascii=False, allow_nan=False, default=str)
    except ValueError:
        text = json.dumps(_finite(meta), ensure_ascii=False, default=str)
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise RowError("a lone surrogate: not valid Unicode", field="meta") from error
    return text


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def _arrow(rows: list[tuple[Any, ...]] | list[tuple[int, str | None, str, str | None]], schema: pa.Schema) -> Any:
    import pyarrow as pa

    columns: list[Any] = list(zip(*rows, strict=True)) if rows else [[] for _ in schema]
    arrays = [pa.array(column, type=field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
