"""Rows of benchmark files: JSON, JSON Lines, Parquet, plain or compressed, a file or a folder, or the hub.

Covers: finding the files, one `Record` per row with file and row number, digests of the files. Leaves out: the meaning
of fields (the protocols), importing into a workspace (`assay data import`).
"""

import gzip
import hashlib
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from assay.data.compression import decompressed
from assay.data.json_lines import BOM, Lines
from assay.errors import BackendError, BadInputError, NotFoundError
from assay_rm_training.benchmarks.item import Record

SUFFIXES = (".json", ".jsonl", ".ndjson", ".parquet", ".pq")
COMPRESSED = (".gz", ".zst")
#: Keys under which an object may hold its rows.
ROW_LISTS = ("rows", "data", "examples", "items")


@dataclass(frozen=True)
class Source:
    """A file with its digest (first 32 hex digits of SHA-256), or a hub split."""

    path: str
    sha256: str | None
    rows: int

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class HubSplit:
    """One split of a data set of the hub. `part`: of its rows, where only the split's name tells it."""

    repository: str
    split: str
    config: str | None = None
    part: str = ""


def files_of(path: Path) -> list[Path]:
    """The file, or every data file below the folder, sorted. Raises NotFoundError, BadInputError for none."""
    path = path.expanduser()
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise NotFoundError(f"no such file or folder: {path}")
    paths = sorted(file for file in path.rglob("*") if file.is_file() and _kind(file) in SUFFIXES)
    if not paths:
        raise BadInputError(f"holds no data file ({', '.join(SUFFIXES)}, also .gz and .zst)", file=path)
    return paths


def read_files(paths: Sequence[Path], *, constants: bool = False) -> tuple[list[Record], list[Source]]:
    """Every row of the files and folders, in order, and their sources. Raises BadInputError naming file and row."""
    records: list[Record] = []
    sources = []
    for file in dict.fromkeys(file for path in paths for file in files_of(path)):
        before = len(records)
        records.extend(read_file(file, constants=constants))
        with file.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()[:32]
        sources.append(Source(str(file), digest, len(records) - before))
    return records, sources


def read_file(path: Path, *, constants: bool = False) -> Iterator[Record]:
    """The rows of one file. `constants`: NaN and Infinity are read as numbers instead of refused."""
    kind = _kind(path)
    if kind in (".parquet", ".pq"):
        yield from _parquet(path)
    elif kind == ".json":
        yield from _json(path, constants)
    else:
        yield from _lines(path, constants)


def read_hub(splits: Sequence[HubSplit], *, offline_hint: str) -> tuple[list[Record], list[Source]]:
    """Every row of the splits through `datasets`. Raises BackendError where the hub does not answer."""
    from datasets import load_dataset

    records: list[Record] = []
    sources = []
    for split in splits:
        name = f"hub:{split.repository}:{split.config + ':' if split.config else ''}{split.split}"
        try:
            rows = load_dataset(split.repository, split.config, split=split.split)
        except Exception as error:  # the library raises many types of errors
            first = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise BackendError(f"cannot read {name} ({first}); {offline_hint}") from error
        before = len(records)
        for number, row in enumerate(rows, start=1):
            values = dict(row)
            if split.part:
                values.setdefault("domain", split.part)
            records.append(Record(name, number, values))
        sources.append(Source(name, getattr(rows, "_fingerprint", None), len(records) - before))
    return records, sources


def _kind(path: Path) -> str:
    plain = [suffix for suffix in path.suffixes if suffix not in COMPRESSED]
    return plain[-1].lower() if plain else ""


def _lines(path: Path, constants: bool) -> Iterator[Record]:
    for row, line in Lines(path):
        yield Record(str(path), row, _object(_parse(line, constants, path, row), path, row))


def _json(path: Path, constants: bool) -> Iterator[Record]:
    """An array of objects, an object that holds one, or one object per line, whatever the file's suffix."""
    try:
        with path.open("rb") as raw:
            content = decompressed(raw).read().removeprefix(BOM)
    except (OSError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadInputError(f"cannot be read ({error})", file=path) from error
    try:
        value = json.loads(content, parse_constant=None if constants else _no_constant)
    except (ValueError, RecursionError) as error:
        if content.lstrip().startswith(b"{"):
            yield from _lines(path, constants)
            return
        raise BadInputError(f"broken JSON ({error})", file=path) from error
    if isinstance(value, dict):
        inner = next((value[name] for name in ROW_LISTS if isinstance(value.get(name), list)), None)
        if inner is None:
            yield Record(str(path), 1, value)  # a file of JSON Lines with one line
            return
        value = [row["row"] if isinstance(row, dict) and isinstance(row.get("row"), dict) else row for row in inner]
    if not isinstance(value, list):
        raise BadInputError("neither an array of objects nor one object per line", file=path)
    for row, item in enumerate(value, start=1):
        yield Record(str(path), row, _object(item, path, row))


def _parquet(path: Path) -> Iterator[Record]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    row = 0
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=1024):
                for values in batch.to_pylist():
                    row += 1
                    yield Record(str(path), row, values)
    except (OSError, pa.ArrowException) as error:
        raise BadInputError(f"not a readable Parquet file ({error})", file=path) from error


def _parse(line: bytes, constants: bool, path: Path, row: int) -> Any:
    try:
        return json.loads(line.decode("utf-8"), parse_constant=None if constants else _no_constant)
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"broken JSON ({error})", file=path, row=row) from error


def _object(value: Any, path: Path, row: int) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadInputError("not a JSON object", file=path, row=row)
    return value


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")
