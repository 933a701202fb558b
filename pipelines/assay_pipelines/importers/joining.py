"""Pairs of rows, anywhere in a file, that rate completions of one prompt oppositely.

The texts wait in a temporary file; a scratch DuckDB joins their hashes. Memory is bounded by the largest rows.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any

import msgspec
import pyarrow as pa

from assay.data.conversation import Turns
from assay.data.json_lines import RowError
from assay.store.database import Connection, registered
from assay_pipelines.importers.containers.container import Container, Record
from assay_pipelines.importers.layout import JoinedLayout
from assay_pipelines.importers.rows import PairRow, RatedCompletion

_CHUNK = 10_000
_HASH_BYTES = 16
_COLUMNS = ("id", "row", "context", "completion", "preferred", "place", "bytes")


def joined(
    records: Iterator[Record], layout: JoinedLayout, container: Container, spill: Path
) -> Iterator[tuple[int, PairRow | RowError]]:
    """Pairs with the row of the preferred completion, then the rejects. `spill`: folder for what memory cannot hold;
    the texts are in a file beside it.

    A completion that one row prefers and another rejects makes a pair of identical sides, which is rejected.
    """
    import duckdb

    config: dict[str, Any] = {"memory_limit": "512MB", "temp_directory": str(spill)}
    with duckdb.connect(config=config) as db, tempfile.TemporaryFile(dir=spill.parent) as stream:
        texts = _Texts(stream)
        db.execute(
            """CREATE TABLE rated (id BIGINT, row BIGINT, context BLOB, completion BLOB, preferred BOOL, place BIGINT,
                                   bytes BIGINT)"""
        )
        chunk: list[tuple[Any, ...]] = []
        count = 0
        for row, record, _ in records:
            try:
                if isinstance(record, RowError):
                    raise record
                for rated in layout.completions(record):
                    text = _Text(rated.turns, rated.stem, rated.completion)
                    chunk.append((count, row, *_hashes(rated), rated.preferred, *texts.add(text)))
                    count += 1
            except RowError as error:
                yield row, error
            if len(chunk) >= _CHUNK:
                _put(db, chunk)
        _put(db, chunk)
        yield from _pairs(db, texts, layout, container.name)
        unmatched = db.execute(
            """SELECT row FROM (
                   SELECT row, EXISTS (SELECT 1 FROM rated o WHERE o.context = s.context
                                       AND o.preferred <> s.preferred) AS matched FROM rated s)
               GROUP BY row HAVING NOT bool_or(matched) ORDER BY row"""
        )
        while rows := unmatched.fetchmany(_CHUNK):
            for (row,) in rows:
                yield row, RowError(layout.unmatched, field=layout.label_field)


def _pairs(db: Connection, texts: _Texts, layout: JoinedLayout, name: str) -> Iterator[tuple[int, PairRow | RowError]]:
    cursor = db.execute(
        """WITH once AS (SELECT min(id) AS id FROM rated GROUP BY context, completion, preferred),
                distinct_rated AS (SELECT * FROM rated SEMI JOIN once USING (id))
           SELECT t.row, t.place, t.bytes, f.row, f.place, f.bytes
           FROM distinct_rated t JOIN distinct_rated f ON t.context = f.context AND t.preferred AND NOT f.preferred
           ORDER BY t.row, f.row, t.id"""
    )
    while rows := cursor.fetchmany(_CHUNK):
        for row, place, size, other, other_place, other_size in rows:
            preferred, rejected = texts.at(place, size), texts.at(other_place, other_size)
            pair = PairRow(
                preferred.turns,
                preferred.stem + preferred.completion,
                rejected.stem + rejected.completion,
                "first",
                record_id=f"{name}#{row}+{other}",
                meta={"shared_characters": len(preferred.stem)} if preferred.stem else {},
            )
            try:
                yield row, pair.check((layout.completion_field,) * 2)
            except RowError as error:
                yield row, error


class _Text(msgspec.Struct, array_like=True):
    turns: Turns
    stem: str
    completion: str


@dataclass(frozen=True)
class _Texts:
    """Texts in a file, by their place and size."""

    stream: IO[bytes]

    def add(self, text: _Text) -> tuple[int, int]:
        content = msgspec.msgpack.encode(text)
        place = self.stream.tell()
        self.stream.write(content)
        return place, len(content)

    def at(self, place: int, size: int) -> _Text:
        self.stream.seek(place)
        return msgspec.msgpack.decode(self.stream.read(size), type=_Text)


def _hashes(rated: RatedCompletion) -> tuple[bytes, bytes]:
    """Of what two completions must share, and of the completion."""
    context = msgspec.msgpack.encode((rated.turns, rated.stem))
    completion = rated.completion.encode()
    return blake2b(context, digest_size=_HASH_BYTES).digest(), blake2b(completion, digest_size=_HASH_BYTES).digest()


def _put(db: Connection, chunk: list[tuple[Any, ...]]) -> None:
    if not chunk:
        return
    with registered(db, "chunk", pa.table(list(zip(*chunk, strict=True)), names=list(_COLUMNS))):
        db.execute("INSERT INTO rated SELECT * FROM chunk")
    chunk.clear()
