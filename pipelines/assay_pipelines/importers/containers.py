"""Files and data sets as streams of records: JSON Lines, JSON arrays, CSV, Parquet, and what `datasets` can load.

Memory is bounded; a bad row is a `RowError` with its 1-based number. `records()` starts at the beginning every time.
"""

from __future__ import annotations

import csv
import io
import json
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from assay.data.json_lines import BOM, Lines, RowError, decompressed, parse_object
from assay.errors import BackendError, BadInputError, NotFoundError

#: 1-based row, the record or the error of the row, and the raw bytes where the container has them.
Record: TypeAlias = tuple[int, "dict[str, Any] | RowError", bytes | None]
PARQUET_ROWS = 1000
SNIFF_BYTES = 4096


class Container(Protocol):
    """`size` and `position()` are in `unit`, for a progress bar; `size` None: not known."""

    description: str
    name: str
    size: int | None
    unit: str

    def position(self) -> int: ...
    def records(self) -> Iterator[Record]: ...
    def columns(self) -> list[str] | None:
        """The columns, or None where only the records show them."""


def _kilobytes_read(raw: Any, size: int | None) -> int:
    """How far into the file `raw` is; None: not opened yet. A closed file was read to its end."""
    if raw is None:
        return 0
    return (size or 0) if raw.closed else raw.tell() // 1024


class JsonLines:
    unit = "kB"

    def __init__(self, path: Path) -> None:
        self.path, self.name, self.description = path, path.name, "JSON Lines"
        self._lines = Lines(path)
        self.size: int | None = self._lines.size // 1024

    def position(self) -> int:
        return self._lines.position // 1024

    def columns(self) -> list[str] | None:
        return None

    def records(self) -> Iterator[Record]:
        self._lines = Lines(self.path)
        for row, line in self._lines:
            try:
                yield row, parse_object(line), line
            except RowError as error:
                yield row, error, line


class JsonArray:
    """One JSON array of objects, over any number of lines, read one object at a time. Rows count the elements."""

    unit = "kB"

    def __init__(self, path: Path) -> None:
        self.path, self.name, self.description = path, path.name, "a JSON array"
        lines = Lines(path)  # opens the file, and so complains early
        self.size: int | None = lines.size // 1024
        self._raw: Any = None

    def position(self) -> int:
        return _kilobytes_read(self._raw, self.size)

    def columns(self) -> list[str] | None:
        return None

    def records(self) -> Iterator[Record]:
        import ijson

        row = 0
        with self.path.open("rb") as self._raw:
            stream = decompressed(self._raw)
            start = stream.read(len(BOM))
            items = ijson.items(_Continued(b"" if start == BOM else start, stream), "item", use_float=True)
            while True:
                try:
                    element = next(items)
                except StopIteration:
                    return
                except (ijson.JSONError, UnicodeDecodeError, EOFError, OSError, zlib.error) as error:
                    raise BadInputError(
                        f"the JSON array is damaged after row {row} ({_line(error)}); the rows before were read",
                        file=self.path,
                    ) from error
                row += 1
                yield row, element if isinstance(element, dict) else RowError("not a JSON object"), None


class _Continued:
    """A stream of which `start` has been read already."""

    def __init__(self, start: bytes, stream: IO[bytes]) -> None:
        self._start, self._stream = start, stream

    def read(self, size: int = -1) -> bytes:
        if size == 0:  # how ijson asks whether this is text or bytes
            return b""
        start, self._start = self._start, b""
        return start or self._stream.read(size)


def json_container(path: Path) -> JsonLines | JsonArray:
    """JSON Lines or a JSON array, by the first character that is not white space."""
    lines = JsonLines(path)  # opens the file, and so complains early
    with path.open("rb") as raw:
        try:
            start = decompressed(raw).read(SNIFF_BYTES)
        except (EOFError, OSError, zlib.error):
            return lines  # reading it raises the error
    return JsonArray(path) if start.removeprefix(BOM).lstrip().startswith(b"[") else lines


class Csv:
    """CSV with a header (tabs for .tsv). Rows count records after the header, not lines."""

    unit = "kB"

    def __init__(self, path: Path) -> None:
        self.path, self.name, self.description = path, path.name, "CSV"
        self._lines = Lines(path)  # opens the file, and so complains early
        self.size: int | None = self._lines.size // 1024
        self._raw: Any = None
        self._delimiter = "\t" if ".tsv" in path.suffixes else ","
        csv.field_size_limit(sys.maxsize)

    def position(self) -> int:
        return _kilobytes_read(self._raw, self.size)

    def columns(self) -> list[str] | None:
        with self.path.open("rb") as raw:
            try:
                return list(self._reader(raw).fieldnames or [])
            except csv.Error as error:
                raise BadInputError(f"the header is broken ({error})", file=self.path, row=1) from error
            except (EOFError, OSError, zlib.error) as error:
                raise BadInputError(f"the file is damaged in its header ({error})", file=self.path) from error

    def _reader(self, raw: Any) -> csv.DictReader[str]:
        # surrogateescape: bytes that are no UTF-8 become lone surrogates, which the layouts reject row by row
        text = io.TextIOWrapper(decompressed(raw), encoding="utf-8-sig", errors="surrogateescape", newline="")
        return csv.DictReader(text, delimiter=self._delimiter, restkey="")

    def records(self) -> Iterator[Record]:
        with self.path.open("rb") as self._raw:
            reader = iter(self._reader(self._raw))
            row = 0
            while True:
                row += 1
                try:
                    record = next(reader)
                except StopIteration:
                    return
                except csv.Error as error:
                    yield row, RowError(f"broken CSV ({error})"), None
                    continue
                except (EOFError, OSError, zlib.error) as error:
                    raise BadInputError(f"the file is damaged after row {row - 1} ({error})", file=self.path) from error
                if "" in record and isinstance(record[""], list):
                    yield row, RowError("more fields than the header"), json.dumps(record).encode()
                else:
                    yield row, record, None


class Parquet:
    unit = "rows"

    def __init__(self, path: Path) -> None:
        self.path, self.name, self.description = path, path.name, "Parquet"
        self._at = 0
        try:
            self._file = pq.ParquetFile(path)
        except FileNotFoundError as error:
            raise BadInputError("no such file", file=path) from error
        except (OSError, pa.ArrowException) as error:
            raise BadInputError(f"not a Parquet file ({str(error).splitlines()[0]})", file=path) from error
        self.size: int | None = self._file.metadata.num_rows

    def position(self) -> int:
        return self._at

    def columns(self) -> list[str] | None:
        return list(self._file.schema_arrow.names)

    def records(self) -> Iterator[Record]:
        self._at = 0
        try:
            for batch in self._file.iter_batches(batch_size=PARQUET_ROWS):
                yield from self._records(batch)
        except (OSError, pa.ArrowException) as error:
            raise BadInputError(f"the file is damaged after row {self._at} ({error})", file=self.path) from error

    def _records(self, batch: Any) -> Iterator[Record]:
        try:
            rows: list[dict[str, Any] | RowError] = batch.to_pylist()
        except UnicodeDecodeError:
            rows = [_parquet_row(batch, index) for index in range(batch.num_rows)]
        for record in rows:
            self._at += 1
            yield self._at, record, None


def _parquet_row(batch: Any, index: int) -> dict[str, Any] | RowError:
    try:
        record: dict[str, Any] = batch.slice(index, 1).to_pylist()[0]
    except UnicodeDecodeError:
        return RowError("invalid UTF-8")
    return record


class HubDataset:
    """`hf:NAME`: a data set of the Hub or a local folder (also one that `save_to_disk` wrote), read as a stream."""

    unit = "rows"
    size: int | None = None

    def __init__(self, name: str, *, subset: str | None = None, split: str = "train") -> None:
        self.name, self._subset, self._split = name, subset, split
        self.description = f"data set {name} (split {split})"
        self._at = 0
        self._data = self._load()

    def position(self) -> int:
        return self._at

    def columns(self) -> list[str] | None:
        names = self._data.column_names
        return list(names) if names else None

    def records(self) -> Iterator[Record]:
        self._at = 0
        rows = iter(self._data)
        while True:
            try:
                record = next(rows)
            except StopIteration:
                return
            except Exception as error:  # `datasets` raises errors of many libraries here
                raise BackendError(f"hf:{self.name} broke off after row {self._at}: {_line(error)}") from error
            self._at += 1
            yield self._at, record, None

    def _load(self) -> Any:
        import datasets

        folder = Path(self.name).expanduser()
        try:
            if folder.is_dir() and ((folder / "state.json").is_file() or (folder / "dataset_dict.json").is_file()):
                loaded = datasets.load_from_disk(str(folder))
                if not isinstance(loaded, datasets.DatasetDict):
                    return loaded
                if self._split not in loaded:
                    raise NotFoundError(f"hf:{self.name} has no split {self._split!r}; it has {', '.join(loaded)}")
                return loaded[self._split]
            return datasets.load_dataset(self.name, self._subset, split=self._split, streaming=True)
        except NotFoundError:
            raise
        except Exception as error:  # `datasets` raises errors of many libraries here
            raise BackendError(
                f"cannot load hf:{self.name}: {_line(error)} (it needs the network, or a local folder)"
            ) from error


def _line(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:300]
