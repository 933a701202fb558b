"""Parquet, read in batches whose size in memory is bounded whatever the rows are.

A page is decompressed as one piece, as Parquet demands: that much memory is the file's own choice.
"""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from assay.data.compression import require_expansion
from assay_pipelines.importers.containers.arrow_batches import BATCH_BYTES, BATCH_ROWS, TableFile


class Parquet(TableFile):
    def __init__(self, path: Path) -> None:
        super().__init__(path, "Parquet")
        try:
            self._file = pq.ParquetFile(path, pre_buffer=False)
        except (OSError, pa.ArrowException) as error:
            raise self.not_one(error) from error
        self.schema = self._file.schema_arrow
        self.size: int | None = self._file.metadata.num_rows

    def batches(self) -> Iterator[pa.RecordBatch]:
        for group in range(self._file.metadata.num_row_groups):
            self._require_expansion(group)
            rows = self._batch_rows(group)
            yield from self._file.iter_batches(batch_size=rows, row_groups=[group], use_threads=False)

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
