"""Rows that need others of their file: pairs of completions that are rated differently, and records of one group.

The records' texts wait in a temporary file; a scratch DuckDB joins or sorts their hashes. Memory is bounded by the
largest rows, and by the largest group.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import IO, Any, TypeVar

import msgspec
import pyarrow as pa

from assay.data.json_lines import RowError
from assay.store.database import Connection, registered
from assay_pipelines.importers.containers.container import Container, Record
from assay_pipelines.importers.formats.columns import strength_of_margin
from assay_pipelines.importers.layout import NOTHING, GroupedLayout, JoinedLayout
from assay_pipelines.importers.rows import PairRow, RatedCompletion, Row

_CHUNK = 10_000
_HASH_BYTES = 16


def joined(
    records: Iterator[Record], layout: JoinedLayout, container: Container, spill: Path
) -> Iterator[tuple[int, Row | RowError]]:
    """What each record says for itself, then pairs with the row of the better completion, then the rejects. `spill`:
    folder for what memory cannot hold; the texts are in a file beside it.

    A completion that one row rates better than another row does makes a pair of identical sides, which is rejected.
    """
    with _scratch(spill) as (db, texts):
        db.execute(
            """CREATE TABLE rated (id BIGINT, row BIGINT, context BLOB, completion BLOB, value DOUBLE, stated BOOL,
                                   start BIGINT, bytes BIGINT)"""
        )
        chunk: list[tuple[Any, ...]] = []
        count = 0
        for row, record, _ in records:
            try:
                if isinstance(record, RowError):
                    raise record
                statements, completions = layout.read(record)
                if not statements and not completions:
                    raise RowError(NOTHING, field=layout.label_field)
                yield from ((row, statement) for statement in statements)
                for rated in completions:
                    stated = bool(statements)
                    chunk.append((count, row, *_hashes(rated), rated.value, stated, *texts.add(rated)))
                    count += 1
            except RowError as error:
                yield row, error
            if len(chunk) >= _CHUNK:
                _put(db, "rated", chunk)
        _put(db, "rated", chunk)
        yield from _pairs(db, texts, layout, container.name)
        unmatched = db.execute(
            """SELECT row FROM (
                   SELECT row, stated OR EXISTS (SELECT 1 FROM rated o WHERE o.context = s.context
                                               AND o.value <> s.value) AS matched FROM rated s)
               GROUP BY row HAVING NOT bool_or(matched) ORDER BY row"""
        )
        while rows := unmatched.fetchmany(_CHUNK):
            for (row,) in rows:
                yield row, RowError(layout.unmatched, field=layout.label_field)


def _pairs(db: Connection, texts: _Texts, layout: JoinedLayout, name: str) -> Iterator[tuple[int, PairRow | RowError]]:
    cursor = db.execute(
        """WITH once AS (SELECT min(id) AS id FROM rated GROUP BY context, completion, value),
                distinct_rated AS (SELECT * FROM rated SEMI JOIN once USING (id))
           SELECT t.row, t.start, t.bytes, f.row, f.start, f.bytes
           FROM distinct_rated t JOIN distinct_rated f ON t.context = f.context AND t.value > f.value
           ORDER BY t.row, f.row, t.id"""
    )
    while rows := cursor.fetchmany(_CHUNK):
        for row, start, size, other, other_start, other_size in rows:
            better, worse = (
                texts.at(at, length, RatedCompletion) for at, length in ((start, size), (other_start, other_size))
            )
            meta: dict[str, Any] = {"shared_characters": len(better.stem)} if better.stem else {}
            strength = None
            if better.span is not None:
                meta["scores"] = [better.value, worse.value]
                strength = strength_of_margin(better.value - worse.value, better.span)
            pair = PairRow(
                better.turns,
                better.response,
                worse.response,
                "first",
                strength,
                source=better.source,
                record_id=better.record_id or f"{name}#{row}+{other}",
                category=better.category,
                license=better.license,
                language=better.language,
                meta=meta,
            )
            try:
                yield row, pair.check((layout.completion_field,) * 2)
            except RowError as error:
                yield row, error


def grouped(records: Iterator[Record], layout: GroupedLayout, spill: Path) -> Iterator[tuple[int, Row | RowError]]:
    """The rows of each group of records, in the order of the groups' hashes; then the records that are in none."""
    with _scratch(spill) as (db, texts):
        db.execute("CREATE TABLE members (id BLOB, row BIGINT, start BIGINT, bytes BIGINT)")
        chunk: list[tuple[Any, ...]] = []
        for row, record, _ in records:
            try:
                if isinstance(record, RowError):
                    raise record
                chunk.append((_hash(layout.group_of(record)), row, *texts.add(record)))
            except RowError as error:
                yield row, error
            if len(chunk) >= _CHUNK:
                _put(db, "members", chunk)
        _put(db, "members", chunk)
        cursor = db.execute("SELECT * FROM members ORDER BY id, row")
        stored = (member for members in iter(lambda: cursor.fetchmany(_CHUNK), []) for member in members)
        for _, members in groupby(stored, itemgetter(0)):
            yield from layout.parse_group(
                [(row, texts.at(start, size, dict[str, Any])) for _, row, start, size in members]
            )


@contextmanager
def _scratch(spill: Path) -> Iterator[tuple[Connection, _Texts]]:
    import duckdb

    config: dict[str, Any] = {"memory_limit": "512MB", "temp_directory": str(spill)}
    with duckdb.connect(config=config) as db, tempfile.TemporaryFile(dir=spill.parent) as stream:
        yield db, _Texts(stream)


_Stored = TypeVar("_Stored")


@dataclass(frozen=True)
class _Texts:
    """Objects in a file, by their start and size."""

    stream: IO[bytes]

    def add(self, stored: object) -> tuple[int, int]:
        content = msgspec.msgpack.encode(stored)
        start = self.stream.seek(0, os.SEEK_END)
        self.stream.write(content)
        return start, len(content)

    def at(self, start: int, size: int, kind: type[_Stored]) -> _Stored:
        self.stream.seek(start)
        return msgspec.msgpack.decode(self.stream.read(size), type=kind)


def _hashes(rated: RatedCompletion) -> tuple[bytes, bytes]:
    """Of what two completions must share, and of the completion."""
    return _hash((rated.turns, rated.stem)), _hash(rated.completion)


def _hash(value: object) -> bytes:
    return blake2b(msgspec.msgpack.encode(value), digest_size=_HASH_BYTES).digest()


def _put(db: Connection, table: str, chunk: list[tuple[Any, ...]]) -> None:
    if not chunk:
        return
    rows = pa.table(list(zip(*chunk, strict=True)), names=[f"c{number}" for number in range(len(chunk[0]))])
    with registered(db, "chunk", rows):
        db.execute(f"INSERT INTO {table} SELECT * FROM chunk")
    chunk.clear()
