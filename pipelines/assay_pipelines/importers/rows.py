"""The rows that layouts return, gathered into bounded Arrow batches."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from sys import getsizeof
from typing import Any, TypeAlias

import pyarrow as pa

from assay.data.conversation import Turns
from assay.data.json_lines import RowError
from assay.store.feedback_intake import feedback_schema, principle_schema
from assay.store.intake import pair_schema, reject_schema

BATCH_PAIRS = 122_880  #: one of DuckDB's row groups: a unit of work of a few seconds; smaller ones cost checkpoints
BATCH_BYTES = 96_000_000  #: of texts in memory; a batch is there about six times until it is stored
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=str).encode
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
    meta: dict[str, Any] = field(default_factory=dict)
    annotator: str | None = None

    def check(self, names: tuple[str, str] = ("chosen", "rejected")) -> PairRow:
        """Itself, if the two sides can be a comparison. Raises RowError."""
        if not (self.first and self.second):
            raise RowError("empty", field=names[bool(self.first)])
        if self.first == self.second:
            raise RowError("the two sides are identical")
        return self


@dataclass(slots=True)
class FeedbackRow:
    """Free-text feedback of one annotator on one response. `voter` None: the source itself; as `PairRow` else."""

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
class PrincipleJudgmentRow:
    """Whether a response fulfils a principle: `answer` is yes, no or partially."""

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


Row: TypeAlias = PairRow | FeedbackRow | PrincipleJudgmentRow


@dataclass(frozen=True, slots=True)
class RatedCompletion:
    """A completion that one record prefers or rejects. `stem`: the beginning of the response, before `completion`."""

    turns: Turns
    stem: str
    completion: str
    preferred: bool


@dataclass(frozen=True, slots=True)
class ReadBatch:
    """A batch as Arrow tables, and how many rows of the file it came from. None: no such rows."""

    pairs: pa.RecordBatch
    rejects: pa.RecordBatch
    rows: int
    feedback: pa.RecordBatch | None = None
    principles: pa.RecordBatch | None = None


class BatchBuilder:
    """Gathers rows and rejects; `full` tells when to `take` a batch, so that memory stays bounded."""

    def __init__(self, source: str, name: str) -> None:
        """`source`: for rows that name none. `name`: the file's, for record ids of rows without an id."""
        self.source, self.name = source, name
        self._clear()

    def _clear(self) -> None:
        self._pairs, self._feedback = _Columns(pair_schema()), _Columns(feedback_schema())
        self._principles, self._rejects = _Columns(principle_schema()), _Columns(reject_schema())
        self._rows = self._entries = self._bytes = 0

    def row_done(self) -> None:
        self._rows += 1

    def add(self, row: int, entry: Row) -> None:
        self._entries += 1
        for turn in entry.turns:
            self._bytes += getsizeof(turn["content"])
        source, record_id = entry.source or self.source, entry.record_id or f"{self.name}#{row}"
        origin = (source, record_id, entry.category, entry.license, entry.language)
        if isinstance(entry, PairRow):
            meta = meta_json(entry.meta)
            self._bytes += sum(map(getsizeof, (entry.first, entry.second, meta, entry.rationale)))
            for vote in entry.votes or ():
                self._bytes += sum(map(getsizeof, vote.values()))
            judged = (entry.first, entry.second, entry.label, entry.strength, entry.rationale, entry.votes)
            self._pairs.add((row, *judged, *origin, meta, entry.annotator), entry.turns)
            return
        self._bytes += getsizeof(entry.response)
        about = (row, entry.response, entry.kind, entry.voter)
        if isinstance(entry, FeedbackRow):
            self._bytes += getsizeof(entry.content)
            self._feedback.add((*about, *origin, entry.content), entry.turns)
        else:
            self._bytes += getsizeof(entry.principle) + getsizeof(entry.evidence)
            self._principles.add((*about, *origin, entry.principle, entry.answer, entry.evidence), entry.turns)

    def reject(self, row: int, error: RowError, raw: str | None) -> None:
        """`raw` is cut to RAW_CHARACTERS; what UTF-8 cannot encode is escaped."""
        if raw is not None:
            raw = raw[:RAW_CHARACTERS].encode("utf-8", "backslashreplace").decode("utf-8").replace("\x00", "\\x00")
            self._bytes += getsizeof(raw)
        self._entries += 1
        self._rejects.add((row, error.field, error.reason, raw))

    @property
    def full(self) -> bool:
        return self._entries >= BATCH_PAIRS or self._bytes >= BATCH_BYTES

    @property
    def empty(self) -> bool:
        return not (self._rows or self._entries)

    def take(self) -> ReadBatch:
        """The batch gathered so far; the builder is empty afterwards."""
        feedback, principles = self._feedback.to_arrow(), self._principles.to_arrow()
        batch = ReadBatch(
            self._pairs.to_arrow(),
            self._rejects.to_arrow(),
            self._rows,
            feedback if feedback.num_rows else None,
            principles if principles.num_rows else None,
        )
        self._clear()
        return batch


class _Columns:
    """Rows of one schema as flat lists, so that no object of a row stays behind for the garbage collector to visit."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._columns: dict[str, list[Any]] = {name: [] for name in schema.names if name != "messages"}
        self._offsets, self._roles, self._contents = [0], list[str](), list[str]()

    def add(self, values: tuple[Any, ...], turns: Sequence[dict[str, str]] = ()) -> None:
        """`values`: of the columns in order, without `messages`."""
        for column, cell in zip(self._columns.values(), values, strict=True):
            column.append(cell)
        for turn in turns:
            self._roles.append(turn["role"])
            self._contents.append(turn["content"])
        self._offsets.append(len(self._roles))

    def to_arrow(self) -> pa.RecordBatch:
        arrays = [
            self._messages(field.type) if field.name == "messages" else pa.array(self._columns[field.name], field.type)
            for field in self._schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _messages(self, kind: pa.ListType) -> pa.ListArray:
        texts = [pa.array(self._roles, pa.string()), pa.array(self._contents, pa.string())]
        turns = pa.StructArray.from_arrays(texts, fields=list(kind.value_type))
        return pa.ListArray.from_arrays(pa.array(self._offsets, pa.int32()), turns, type=kind)


def meta_json(meta: Mapping[str, Any]) -> str | None:
    """Metadata as standard JSON: NaN and infinities become null. Raises RowError for bad Unicode."""
    if not meta:
        return None
    try:
        text = _encode(meta)
    except ValueError:
        text = json.dumps(_finite(meta), ensure_ascii=False, default=str)
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise RowError("a lone surrogate: not valid Unicode", field="meta") from error
    return text


def _finite(node: Any) -> Any:
    if isinstance(node, float):
        return node if math.isfinite(node) else None
    if isinstance(node, dict):
        return {key: _finite(child) for key, child in node.items()}
    if isinstance(node, list | tuple):
        return [_finite(child) for child in node]
    return node
