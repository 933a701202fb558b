"""Bulk reading: a file of preference pairs through SQL, a chunk of rows at a time, with the row parser's own result.

Covers: JSON Lines (.gz and .zst too) and Parquet in TRL's forms. SQL takes the rows that it is certain to read as the
row parser does (`bulk_sql`); every other row of the chunk goes to the row parser, which takes it or says why not. So
ids, rejects and row numbers do not depend on the way a row went. Leaves out: other layouts and containers, `--limit`,
the store.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.data.json_lines import BOM, RowError, decompressed, parse_object
from assay.errors import AssayError
from assay_pipelines.importers import rows
from assay_pipelines.importers.bulk_shapes import shapes_of
from assay_pipelines.importers.bulk_sql import literal, statements
from assay_pipelines.importers.containers import JsonLines, Parquet, Record
from assay_pipelines.importers.formats import Source
from assay_pipelines.importers.layouts import BY_NAME
from assay_pipelines.importers.rows import BatchBuilder, ReadBatch
from assay_pipelines.importers.trl import parse_trl

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

BLOCK_BYTES = 1 << 24
LINE_BREAK = 10
SAMPLE = 200  #: rows of a chunk whose shape is looked at
MEMORY = "1GB"  #: of the reader's own DuckDB, beside the store's


@dataclass(frozen=True)
class Chunk:
    """Rows of a file as JSON: `lines` as binary, the first of them being row `first` (1-based).

    `position`: how far into the file they reach, in the container's unit. `batch`: the rows themselves, where the file
    is not text.
    """

    first: int
    lines: pa.LargeBinaryArray
    position: int
    batch: pa.RecordBatch | None = None


def can_read(source: Source) -> bool:
    """Whether the source has a layout and a container that SQL knows."""
    supported = BY_NAME[source.layout].meaning is parse_trl and source.config.limit is None
    container = source.container
    if isinstance(container, Parquet):
        return supported and container.every_column(_same_in_json)
    return supported and isinstance(container, JsonLines)


def batches(source: Source) -> Iterator[tuple[ReadBatch, int]]:
    """The source's batches, in the order of the file, and how far into it they reach (in the container's unit).

    Raises BadInputError where the file is damaged, after the rows before the damage.
    """
    import pyarrow as pa

    container, done = source.container, 0
    assert isinstance(container, JsonLines | Parquet)
    with _scratch(source.spill) as db:
        try:
            chunks = _chunks(container.path) if isinstance(container, JsonLines) else _parquet_chunks(db, container)
            for chunk in chunks:
                yield _read(db, source, chunk), chunk.position
                done = chunk.first - 1 + len(chunk.lines)
            return
        except (EOFError, OSError, zlib.error, pa.ArrowException):
            pass  # damaged: the row parser reads up to the very row, and says so
    yield from _rest(source, done)


def _rest(source: Source, done: int) -> Iterator[tuple[ReadBatch, int]]:
    """Everything after row `done`, row by row."""
    builder = BatchBuilder(source.name, Path(source.container.name).name)
    records = (record for record in source.container.records() if record[0] > done)
    try:
        for _ in source.parsed(builder, records):
            if builder.full:
                yield builder.take(), source.container.position()
    except AssayError:
        if not builder.empty:
            yield builder.take(), source.container.position()
        raise
    if not builder.empty:
        yield builder.take(), source.container.position()


def _chunks(path: Path) -> Iterator[Chunk]:
    """Whole lines in chunks of `rows.BATCH_PAIRS` or `rows.BATCH_CHARACTERS` bytes, whichever comes first."""
    import numpy as np
    import pyarrow as pa

    first, size = 1, 0
    blocks: list[bytes] = []
    ends: list[Any] = []  # one past each line break, from the beginning of what is held
    with path.open("rb") as raw, decompressed(raw) as stream:
        while True:
            block = stream.read(BLOCK_BYTES)
            if block:
                ends.append(np.flatnonzero(np.frombuffer(block, dtype=np.uint8) == LINE_BREAK) + (size + 1))
            elif size and not (len(ends) and len(ends[-1]) and ends[-1][-1] == size):
                ends.append(np.array([size]))  # the last line has no line break
            blocks.append(block)
            size += len(block)
            lines = sum(map(len, ends))
            while lines >= rows.BATCH_PAIRS or (lines and (size >= rows.BATCH_CHARACTERS or not block)):
                content, line_ends = b"".join(blocks), np.concatenate(ends)
                row_ends = line_ends[: rows.BATCH_PAIRS]
                offsets = pa.py_buffer(np.concatenate([np.zeros(1, dtype=np.int64), row_ends]))
                buffers = [None, offsets, pa.py_buffer(content)]
                yield Chunk(first, pa.Array.from_buffers(pa.large_binary(), len(row_ends), buffers), raw.tell() // 1024)
                first += len(row_ends)
                blocks, ends = [content[row_ends[-1] :]], [line_ends[len(row_ends) :] - row_ends[-1]]
                size, lines = len(blocks[0]), len(ends[0])
            if not block:
                return


def _parquet_chunks(db: duckdb.DuckDBPyConnection, container: Parquet) -> Iterator[Chunk]:
    """Each row as the JSON text of its columns: then the same SQL reads it, and the same shapes are found."""
    import pyarrow as pa

    first = 1
    for batch in container.record_batches(rows.BATCH_PAIRS):
        try:
            batch.validate(full=True)
            db.register("rows", pa.table({**{f"c{n}": column for n, column in enumerate(batch.columns)}}))
            fields = ", ".join(f"{literal(name)}: c{n}" for n, name in enumerate(batch.schema.names))
            db.execute("SET preserve_insertion_order = true")
            lines = db.sql(f"SELECT to_json({{{fields}}})::VARCHAR AS line FROM rows").to_arrow_table().column(0)
            db.execute("SET preserve_insertion_order = false")
            db.unregister("rows")
            texts = pa.concat_arrays(lines.cast(pa.large_binary()).chunks)
        except pa.ArrowInvalid:  # a text that is none: row by row
            texts = pa.nulls(batch.num_rows, pa.large_binary())
        yield Chunk(first, texts, first - 1 + batch.num_rows, batch)
        first += batch.num_rows


def _same_in_json(kind: pa.DataType) -> bool:
    """Whether DuckDB's JSON of a value of this type is what Python's reader makes the same value of."""
    import pyarrow as pa

    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _same_in_json(kind.value_type)
    if pa.types.is_struct(kind):
        return all(_same_in_json(field.type) for field in kind)
    plain = (pa.types.is_string, pa.types.is_large_string, pa.types.is_boolean, pa.types.is_integer)
    return any(test(kind) for test in plain) or kind in (pa.float64(), pa.null())


@contextmanager
def _scratch(spill: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """A DuckDB in memory for parsing, so that the store is held for writing only."""
    import duckdb

    config: dict[str, Any] = {
        "memory_limit": MEMORY,
        "temp_directory": str(spill),
        "autoinstall_known_extensions": "false",
        "preserve_insertion_order": "false",
    }
    with duckdb.connect(config=config) as db:
        yield db


def _read(db: duckdb.DuckDBPyConnection, source: Source, chunk: Chunk) -> ReadBatch:
    """The chunk's pairs and rejects: by SQL what SQL can take, the rest row by row."""
    import numpy as np
    import pyarrow as pa

    texts = _valid_text(chunk.lines)
    numbers = np.arange(chunk.first, chunk.first + len(texts), dtype=np.int64)
    waiting = np.ones(len(texts), dtype=bool)
    tables = []
    name = Path(source.container.name).name
    for shape in shapes_of(_sample(chunk), source.config.mapping):
        some = texts if waiting.all() else texts.filter(pa.array(waiting.tolist()))
        row = pa.Array.from_buffers(pa.int64(), len(some), [None, pa.py_buffer(numbers[waiting])])
        remaining = pa.table({"row": row, "line": some})
        parse, pairs = statements(shape, source=source.config.source, default_source=source.name, name=name)
        db.register("lines", remaining)
        db.execute(parse)
        db.unregister("lines")
        pairs_read = db.sql(pairs).to_arrow_table()
        db.execute("DROP TABLE parsed")
        if pairs_read.num_rows:
            tables.append(pairs_read)
            for part in pairs_read.column("row").chunks:
                waiting[_integers(part) - chunk.first] = False
        if not waiting.any():
            break
    builder = BatchBuilder(source.name, name)
    for _ in source.parsed(builder, _records(chunk, np.flatnonzero(waiting))):
        pass
    slow = builder.take()
    fast_rows = sum(table.num_rows for table in tables)
    if not fast_rows:
        return slow
    pairs_table = pa.concat_tables([*tables, pa.Table.from_batches([slow.pairs])], promote_options="permissive")
    return ReadBatch(pairs_table, slow.rejects, slow.rows + fast_rows)


def _integers(array: Any) -> Any:
    """An Arrow array of 64-bit integers without nulls as numpy's. (Arrow's own way, and the one back, load pandas.)"""
    import numpy as np

    return np.frombuffer(array.buffers()[1], dtype=np.int64, count=len(array), offset=8 * array.offset)


def _sample(chunk: Chunk) -> Iterator[dict[str, Any]]:
    """Objects from all over the chunk."""
    step = max(1, len(chunk.lines) // SAMPLE)
    for line in chunk.lines[::step].to_pylist():
        if line is None:
            continue
        try:
            yield parse_object(line)
        except RowError:
            continue


def _records(chunk: Chunk, indices: Any) -> Iterator[Record]:
    """The records at `places` (an array of positions in the chunk), as the container would yield them."""
    import pyarrow as pa

    if chunk.batch is not None:
        for index in indices.tolist():
            yield Parquet.record(chunk.first + index, chunk.batch, index)
        return
    for start in range(0, len(indices), 1000):
        some = indices[start : start + 1000].tolist()
        for index, line in zip(some, chunk.lines.take(pa.array(some)).to_pylist(), strict=True):
            row = chunk.first + index
            line = (line.removeprefix(BOM) if row == 1 else line).strip()
            if not line:
                continue
            try:
                yield row, parse_object(line), line
            except RowError as error:
                yield row, error, line


def _valid_text(lines: Any) -> Any:
    """The lines as text; null where they are no UTF-8. Bisects, so that one bad line costs little."""
    import pyarrow as pa

    try:
        return lines.cast(pa.large_string())
    except pa.ArrowInvalid:
        if len(lines) == 1:
            return pa.nulls(1, pa.large_string())
        middle = len(lines) // 2
        halves = [_valid_text(lines[:middle]), _valid_text(lines[middle:])]
        return pa.concat_arrays(halves)
