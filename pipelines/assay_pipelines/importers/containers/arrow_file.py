"""Arrow IPC files and streams: Feather, and what `datasets` saves. They are mapped into memory, not loaded.

A batch that is compressed is unpacked as one piece, as Arrow demands: that much memory is the file's own choice.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from assay.data.compression import require_expansion
from assay_pipelines.importers.containers.arrow_batches import TableFile


class ArrowFile(TableFile):
    """An Arrow file."""

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
