"""Parquet, read in batches whose size in memory is bounded whatever the rows are.

A page is decompressed as one piece, as Parquet demands: that much memory is the file's own choice.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from assay.data.compression import require_expansion
from assay.data.json_lines import ROW_BYTES, RowError, damaged
from assay.errors import BadInputError
from assay_pipelines.importers.containers.container import Record, of_bounded_size

BATCH_ROWS = 1000
BATCH_BYTES = 8 * 2**20


class Parquet:
    """A Parquet file."""

    unit = "rows"

    def __init__(self, path: Path) -> None:
        self.path, self.name, self.description = path, path.name, "Parquet"
        self._at = 0
        try:
            self._file = pq.ParquetFile(path, pre_buffer=False)
        except FileNotFoundError as error:
            raise BadInputError("no such file", file=path) from error
        except (OSError, pa.ArrowException) as error:
            raise BadInputError(f"not a Parquet file ({str(error).splitlines()[0]})", file=path) from error
        self.size: int | None = self._file.metadata.num_rows

    def position(self) -> int:
        return self._at

    def columns(self) -> list[str] | None:
        names = list(self._file.schema_arrow.names)
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise BadInputError("the column occurs twice", file=self.path, field=twice)
        return names

    def records(self) -> Iterator[Record]:
        self._at = 0
        try:
            for group in range(self._file.metadata.num_row_groups):
                self._require_expansion(group)
                rows = self._batch_rows(group)
                for batch in self._file.iter_batches(batch_size=rows, row_groups=[group], use_threads=False):
                    yield from self._records(batch)
        except (OSError, pa.ArrowException) as error:
            raise damaged(self.path, self._at, error) from error

    def _require_expansion(self, group: int) -> None:
        metadata = self._file.metadata.row_group(group)
        for index in range(metadata.num_columns):
            column = metadata.column(index)
            require_expansion(column.total_uncompressed_size, column.total_compressed_size)

    def _batch_rows(self, group: int) -> int:
        """Rows of a batch of about BATCH_BYTES. A value that is stored once in the column's dictionary and occurs in
        many rows is counted as often as a batch would hold it."""
        metadata = self._file.metadata.row_group(group)
        mean = metadata.total_byte_size / max(metadata.num_rows, 1)
        rows = int(min(BATCH_ROWS, max(BATCH_BYTES / max(mean, 1), 1)))
        for index in range(metadata.num_columns):
            column = metadata.column(index)
            if column.has_dictionary_page and column.total_uncompressed_size * rows > BATCH_BYTES:
                values = max(column.num_values / max(metadata.num_rows, 1), 1)
                mean += values * self._largest_in_dictionary(group, column.path_in_schema)
        return int(min(rows, max(BATCH_BYTES / max(mean, 1), 1)))

    def _largest_in_dictionary(self, group: int, column: str) -> int:
        """Bytes of the largest value in the dictionary of a column; 0 where its values are no texts."""
        with pq.ParquetFile(self.path, read_dictionary=[column], pre_buffer=False) as file:
            first = next(file.iter_batches(batch_size=1, row_groups=[group], columns=[column], use_threads=False))
        array = first.column(0)
        while not isinstance(array, pa.DictionaryArray):
            if isinstance(array, pa.StructArray) and array.type.num_fields:
                array = array.field(0)
            elif isinstance(array, pa.ListArray | pa.LargeListArray | pa.MapArray):
                array = array.values
            else:
                return 0
        return int(pc.max(pc.binary_length(array.dictionary)).as_py() or 0)

    def _records(self, batch: pa.RecordBatch) -> Iterator[Record]:
        try:
            rows: list[dict[str, Any] | RowError] = batch.to_pylist()
        except UnicodeDecodeError:
            rows = [_row(batch, index) for index in range(batch.num_rows)]
        may_be_large = batch.nbytes > ROW_BYTES
        for record in rows:
            self._at += 1
            large = may_be_large and not isinstance(record, RowError)
            yield self._at, of_bounded_size(record) if large else record, None  # type: ignore[arg-type]


def _row(batch: pa.RecordBatch, index: int) -> dict[str, Any] | RowError:
    try:
        record: dict[str, Any] = batch.slice(index, 1).to_pylist()[0]
    except UnicodeDecodeError:
        return RowError("invalid UTF-8")
    return record
