"""What an opened source would be read as, from its first rows: how many can be read, which columns are, and examples.

A column is read where a record without it gives other rows: so it is found out for every layout, also for one's own.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

from assay.data.json_lines import RowError
from assay.store.media import MediaFolder
from assay_pipelines.importers.containers.container import content_bytes
from assay_pipelines.importers.recognition import trial_parse
from assay_pipelines.importers.rows import FeedbackRow, PairRow, PrincipleJudgmentRow, RatedCompletion, RatedRow, Row
from assay_pipelines.importers.source import (
    ImportConfig,
    ImportSource,
    Sample,
    UnknownLayoutError,
    open_sample,
    with_layout,
)

EXAMPLES, REJECTS = 3, 10
TRIED_ROWS, TRIED_BYTES = 20, 2**20
Readable: TypeAlias = "Row | RatedCompletion"
KINDS: dict[type[Any], str] = {
    PairRow: "pairs",
    FeedbackRow: "texts of feedback",
    PrincipleJudgmentRow: "principle judgments",
    RatedRow: "responses with labels of their own",
    RatedCompletion: "rated responses, for pairs with others to the same prompt",
}


@dataclass(frozen=True)
class ColumnUse:
    """Columns by name, those of objects and of lists of objects as `column.name`; empty ones are not listed."""

    read: tuple[str, ...]
    metadata: tuple[str, ...]  #: only kept beside the pairs
    unused: tuple[str, ...]


@dataclass(frozen=True)
class SourcePreview:
    """`rows`, `readable`: of the first rows. `examples`: kind -> the first rows with their numbers."""

    recognised: str
    rows: int
    readable: int
    columns: ColumnUse
    counts: dict[str, int] = field(default_factory=dict)
    rejected: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[tuple[int, Readable]]] = field(default_factory=dict)
    rejects: list[tuple[int, RowError]] = field(default_factory=list)

    @property
    def mostly_unreadable(self) -> bool:
        """Whether under half of the rows can be read."""
        return 2 * self.readable < self.rows


@dataclass(frozen=True)
class SourceColumn:
    """A column, or `column.name` of an object in one. `examples`: the first values that are not empty, as texts of at
    most CELL_CHARACTERS. `codes`: all values of the sample, where they are few and short, as labels are."""

    name: str
    examples: tuple[str, ...]
    codes: tuple[str, ...]


@dataclass(frozen=True)
class SourceLook:
    """What a source holds, known or not. `summary`: None where nothing says what the columns mean."""

    container: str
    rows: int
    columns: tuple[SourceColumn, ...]
    summary: SourcePreview | None
    mappable: bool


COLUMNS, CELLS, CELL_CHARACTERS, CODES = 100, 3, 300, 8


def look(config: ImportConfig, *, spill: Path, media: MediaFolder) -> SourceLook:
    """As `preview`, of sources too whose columns nothing is known about. Raises BadInputError for what has no rows that
    can be read, or lacks a mapped column."""
    container, sample = open_sample(config)
    try:
        source = with_layout(config, container, sample, spill=spill, media=media)
    except UnknownLayoutError:
        return SourceLook(container.description, len(sample), _columns(sample), None, mappable=True)
    mappable = source.layout.mappable or not source.layout_given
    return SourceLook(container.description, len(sample), _columns(sample), preview(source), mappable)


def _columns(sample: Sample) -> tuple[SourceColumn, ...]:
    cells: dict[str, list[Any]] = {}
    for _, record in sample:
        for name, value in record.items() if isinstance(record, dict) else ():
            cells.setdefault(name, []).append(value)
            for inner, cell in value.items() if isinstance(value, dict) else ():
                cells.setdefault(f"{name}.{inner}", []).append(cell)
    return tuple(_column(name, values) for name, values in list(cells.items())[:COLUMNS])


def _column(name: str, values: list[Any]) -> SourceColumn:
    examples = [_cell(value) for value in islice((value for value in values if not _is_empty(value)), CELLS)]
    codes: dict[str, None] = {}
    for value in values:
        if isinstance(value, dict | list) or len(codes) > CODES:
            return SourceColumn(name, tuple(examples), ())
        if not _is_empty(value):
            codes[_cell(value)] = None
    few = len(codes) <= CODES and all(len(code) <= 40 for code in codes)
    return SourceColumn(name, tuple(examples), tuple(sorted(codes)) if few else ())


def _cell(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text[:CELL_CHARACTERS]


def preview(source: ImportSource) -> SourcePreview:
    """Read the source's sample as an import would."""
    counts, rejected = Counter[str](), Counter[str]()
    examples: dict[str, list[tuple[int, Readable]]] = {}
    rejects: list[tuple[int, RowError]] = []
    readable = 0
    for row, record in source.sample:
        entries = [record] if isinstance(record, RowError) else _read(source, record)
        good = [entry for entry in entries if not isinstance(entry, RowError)]
        readable += bool(good)
        for entry in good:
            kind = KINDS[type(entry)]
            counts[kind] += 1
            if len(listed := examples.setdefault(kind, [])) < EXAMPLES:
                listed.append((row, entry))
        for error in entries:
            if isinstance(error, RowError):
                rejected[f"{error.field}: {error.reason}" if error.field else error.reason] += 1
                if len(rejects) < REJECTS:
                    rejects.append((row, error))
    return SourcePreview(
        source.recognised,
        len(source.sample),
        readable,
        column_use(source),
        dict(counts),
        dict(rejected.most_common()),
        examples,
        rejects,
    )


def column_use(source: ImportSource) -> ColumnUse:
    """Which columns of the first readable rows make a difference to what is read of them."""
    uses: dict[str, set[str]] = {"read": set(), "metadata": set(), "unused": set()}
    names: dict[str, None] = {}
    for record in _readable_records(source):
        before = _read(source, record)
        for name in record:
            if _is_empty(record[name]):
                continue
            names[name] = None
            remaining = {column: cell for column, cell in record.items() if column != name}
            use = _difference(before, _read_altered(source, remaining))
            uses[use].add(name)
            if use != "read":
                continue
            for inner in _inner_names(record[name]):
                if inner == "type":  # says which part of a message it is, and holds nothing itself
                    continue
                names[f"{name}.{inner}"] = None
                changed = {**record, name: _without(record[name], inner)}
                uses[_difference(before, _read_altered(source, changed))].add(f"{name}.{inner}")
    uses["metadata"] -= uses["read"]
    uses["unused"] -= uses["read"] | uses["metadata"]
    parents = {name.partition(".")[0] for name in names if "." in name}
    read = [name for name in names if name in uses["read"] and name not in parents]
    return ColumnUse(
        tuple(read),
        tuple(name for name in names if name in uses["metadata"]),
        tuple(name for name in names if name in uses["unused"]),
    )


def _read(source: ImportSource, record: dict[str, Any]) -> list[Readable | RowError]:
    return trial_parse(source.layout, source.config.columns(record))


def _read_altered(source: ImportSource, record: dict[str, Any]) -> list[Readable | RowError]:
    """As `_read`, of a record that the file does not have: a layout may rely on the column that it lacks."""
    try:
        return _read(source, record)
    except Exception as error:  # of a layout that is not ours
        return [RowError(f"{type(error).__name__} without a column")]


def _readable_records(source: ImportSource) -> Iterator[dict[str, Any]]:
    tried = size = 0
    for _, record in source.sample:
        if isinstance(record, RowError) or all(isinstance(row, RowError) for row in _read(source, record)):
            continue
        yield record
        tried += 1
        size += content_bytes(record)
        if tried == TRIED_ROWS or size > TRIED_BYTES:
            return


def _difference(before: list[Readable | RowError], after: list[Readable | RowError]) -> str:
    if _comparable(before) == _comparable(after):
        return "unused"
    return "metadata" if _comparable(before, meta=False) == _comparable(after, meta=False) else "read"


def _comparable(rows: list[Readable | RowError], *, meta: bool = True) -> list[Any]:
    """RowErrors are compared by what they say; without `meta`, metadata does not count."""
    out: list[Any] = []
    for row in rows:
        if isinstance(row, RowError):
            out.append((row.field, row.reason, row.detail))
        elif isinstance(row, PairRow | RatedRow) and not meta:
            out.append(replace(row, meta={}))
        else:
            out.append(row)
    return out


def _inner_names(value: object) -> list[str]:
    objects = [value] if isinstance(value, dict) else value if isinstance(value, list) else []
    entries = [entry for entry in objects if isinstance(entry, dict)]
    return list(dict.fromkeys(str(name) for entry in entries for name in entry if not _is_empty(entry[name])))


def _without(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return {inner: cell for inner, cell in value.items() if inner != name}
    return [_without(entry, name) if isinstance(entry, dict) else entry for entry in value]


def _is_empty(value: object) -> bool:
    return value is None or value == "" or value == [] or value == {}
