"""Files of Arrow batches, read as records in slices whose size in memory is bounded.

Arrow IPC files and streams (Feather, and what `datasets` saves) are mapped into memory, not loaded. A batch that is
compressed is unpacked as one piece, as Arrow demands: that much memory is the file's own choice.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from assay.data.compression import require_expansion
from assay.data.json_lines import ROW_BYTES, RowError, damaged
from assay.errors import BadInputError
from assay_pipelines.importers.containers.container import Record, of_bounded_size

BATCH_ROWS = 1000
BATCH_BYTES = 8 * 2**20


class TableFile:
    """Base class of files of Arrow's tables as containers. `schema`: set where the file is opened."""

    unit = "rows"
    schema: pa.Schema

    def __init__(self, path: Path, description: str) -> None:
        self.path, self.name, self.description = path, path.name, description
        self._at = 0

    def position(self) -> int:
        return self._at

    def columns(self) -> list[str] | None:
        """Raises BadInputError for a name that occurs twice."""
        names = list(self.schema.names)
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise BadInputError("the column occurs twice", file=self.path, field=twice)
        return names

    def records(self) -> Iterator[Record]:
        self._at = 0
        try:
            for batch in self.batches():
                for record in records_of(batch):
                    self._at += 1
                    yield self._at, record, None
        except (OSError, pa.ArrowException) as error:
            raise damaged(self.path, self._at, error) from error

    def batches(self) -> Iterator[pa.RecordBatch]:
        raise NotImplementedError

    def not_one(self, error: Exception) -> BadInputError:
        """Why the file cannot be opened."""
        if isinstance(error, FileNotFoundError):
            return BadInputError("no such file", file=self.path)
        article = "an" if self.description == "Arrow" else "a"
        return BadInputError(f"not {article} {self.description} file ({str(error).splitlines()[0]})", file=self.path)


def records_of(batch: pa.RecordBatch) -> Iterator[dict[str, Any] | RowError]:
    """The rows of a batch, each as its record or its error."""
    mean = batch.nbytes / max(batch.num_rows, 1)
    size = int(min(BATCH_ROWS, max(BATCH_BYTES / max(mean, 1), 1)))
    for start in range(0, batch.num_rows, size):
        yield from _rows(batch.slice(start, size))


def _rows(batch: pa.RecordBatch) -> Iterator[dict[str, Any] | RowError]:
    try:
        rows: list[dict[str, Any] | RowError] = batch.to_pylist()
    except UnicodeDecodeError:
        rows = [_row(batch, index) for index in range(batch.num_rows)]
    may_be_large = batch.nbytes > ROW_BYTES
    for record in rows:
        yield of_bounded_size(record) if may_be_large and not isinstance(record, RowError) else record


def _row(batch: pa.RecordBatch, index: int) -> dict[str, Any] | RowError:
    try:
        record: dict[str, Any] = batch.slice(index, 1).to_pylist()[0]
    except UnicodeDecodeError:
        return RowError("invalid UTF-8")
    return record


class ArrowFile(TableFile):
    def __init__(self, path: Path) -> None:
        super().__init__(path, "Arrow")
        reader = self._open()
        self._bytes = path.stat().st_size
        self.schema = reader.schema
        is_file = isinstance(reader, pa.RecordBatchFileReader)
        self.size: int | None = reader.count_rows() if is_file and hasattr(reader, "count_rows") else None

    def batches(self) -> Iterator[pa.RecordBatch]:
        reader, content = self._open(), 0
        is_file = isinstance(reader, pa.RecordBatchFileReader)
        for batch in map(reader.get_batch, range(reader.num_record_batches)) if is_file else reader:
            content += batch.nbytes
            require_expansion(content, self._bytes)
            yield batch

    def _open(self) -> Any:
        try:
            source = pa.memory_map(str(self.path))
            try:
                return pa.ipc.open_file(source)
            except pa.ArrowInvalid:
                source.seek(0)
                return pa.ipc.open_stream(source)
        except (OSError, pa.ArrowException) as error:
            raise self.not_one(error) from error
