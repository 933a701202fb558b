"""Typed rows of a JSON Lines, Parquet or CSV file, all or none: what training reads directly, without a workspace.

Covers: naming file, row and field at the first bad row; rows that hold nothing of the kind, counted in a warning; rows
of Python code as a file of the workspace.
Leaves out: what the rows mean (each reader's), files whose good rows are to be taken (`assay data import`).
"""

import csv
import hashlib
import json
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from assay.data.json_lines import Lines, RowError, parse_object
from assay.errors import BadInputError
from assay.system.atomic_files import replacing
from assay.workspace import Workspace

log = logging.getLogger(__name__)
Row = TypeVar("Row")
#: Data as Python code passes it: a file or another name, or its rows (also a `datasets.Dataset`).
Data: TypeAlias = str | Path | Iterable[Mapping[str, Any] | str]
NumberedRows: TypeAlias = Iterator[tuple[int, dict[str, Any]]]


class RowFile(Collection[Row]):
    """The rows of `read_rows`, parsed again each time they are iterated over: none stays in memory.

    Raises as `read_rows` does, when it is made.
    """

    def __init__(self, path: Path, parse: Callable[[dict[str, Any]], Iterable[Row]], *, what: str) -> None:
        self._iterate = partial(_parsed_rows, path, parse, what)
        self._length = sum(1 for _ in self._iterate(log.warning))

    def __iter__(self) -> Iterator[Row]:
        return self._iterate(log.debug)

    def __len__(self) -> int:
        return self._length

    def __contains__(self, row: object) -> bool:
        return any(each == row for each in self)


def file_rows(path: Path) -> NumberedRows:
    """The rows of a file with their numbers, from 1: of Parquet, CSV or TSV (every value a text), else JSON Lines.

    Raises BadInputError naming file and row.
    """
    match path.suffix.lower():
        case ".parquet":
            yield from enumerate(_parquet_rows(path), start=1)
        case ".csv" | ".tsv":
            yield from enumerate(_csv_rows(path), start=1)
        case _:
            for number, line in Lines(path):
                try:
                    row = parse_object(line)
                except RowError as error:
                    raise BadInputError(error.reason, file=path, row=number, field=error.field) from error
                yield number, row


def _csv_rows(path: Path) -> Iterator[dict[str, Any]]:
    number = 0
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            table = csv.DictReader(stream, delimiter="\t" if path.suffix.lower() == ".tsv" else ",")
            for number, row in enumerate(table, start=1):
                if None in row or None in row.values():
                    raise BadInputError("has another number of columns than the header", file=path, row=number)
                yield row
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadInputError(f"cannot be read as CSV: {error}", file=path, row=number + 1) from error


def _parquet_rows(path: Path) -> Iterator[dict[str, Any]]:
    import pyarrow
    from pyarrow import parquet

    try:
        for batch in parquet.ParquetFile(path).iter_batches():
            yield from map(plain_row, batch.to_pylist())
    except (pyarrow.ArrowException, OSError) as error:
        raise BadInputError(f"cannot be read as Parquet: {str(error).splitlines()[0]}", file=path) from error


def plain_row(row: dict[str, Any]) -> dict[str, Any]:
    """A row of a table as JSON would hold it (dates as text), without the empty fields that a nested type adds."""
    plain: dict[str, Any] = json.loads(json.dumps({k: _without_nulls(v) for k, v in row.items()}, default=str))
    return plain


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(entry) for key, entry in value.items() if entry is not None}
    return [_without_nulls(entry) for entry in value] if isinstance(value, list) else value


def read_rows(path: str | Path, parse: Callable[[dict[str, Any]], Iterable[Row]], *, what: str) -> list[Row]:
    """Every row that `parse` makes of the file's objects, in their order; an object may hold none, which is counted.

    Raises BadInputError at the first bad row: training on a part of a file unawares is worse than stopping.
    `what`: plural, for messages.
    """
    return list(_parsed_rows(Path(path), parse, what, log.warning))


def _parsed_rows(
    path: Path, parse: Callable[[dict[str, Any]], Iterable[Row]], what: str, warn: Callable[..., None]
) -> Iterator[Row]:
    rows = without = 0
    for number, row in file_rows(path):
        try:
            parsed = list(parse(row))
        except RowError as error:
            raise BadInputError(error.reason, file=path, row=number, field=error.field) from error
        except BadInputError as error:
            raise BadInputError(str(error), file=path, row=number) from error
        without += not parsed
        rows += len(parsed)
        yield from parsed
    if not rows:
        raise BadInputError(f"holds no {what}", file=path)
    if without:
        warn("%s: skipped %d rows without %s", path, without, what)


def number_of(value: object, field: str) -> float:
    """A finite number. Raises RowError."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value or abs(value) == float("inf"):
        raise RowError("not a number", field=field)
    return float(value)


def named_data(workspace: Workspace, data: Data) -> str:
    """The name of the data: a file's absolute path, another name as it is. Rows are written to a JSON Lines file of the
    workspace, named by content, so that the run can be resumed and its record says what it read; a text is a row with
    only a `prompt`. Raises TypeError for what JSON cannot hold, BadInputError for a mapping (of splits)."""
    if isinstance(data, str | Path):
        path = Path(data).expanduser()
        return str(path.resolve()) if path.is_file() else str(data)
    if isinstance(data, Mapping):
        raise BadInputError(f"a mapping of {', '.join(map(str, data))} is no rows; pass those of one, data[NAME]")
    rows = ({"prompt": row} if isinstance(row, str) else dict(row) for row in data)
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    path = workspace.root / "rows" / f"rows-{hashlib.sha256(text.encode()).hexdigest()[:16]}.jsonl"
    path.parent.mkdir(exist_ok=True)
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return str(path)
