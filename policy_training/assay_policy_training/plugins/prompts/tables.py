"""Rows of prompts by where they are: files, folders of `datasets`, the Hub, snapshots of the workspace.

    FILE.jsonl, FILE.jsonl.gz, ...   a JSON object a line
    FILE.parquet, FILE.csv, .tsv     a row each; of CSV every value is a text
    hf:NAME[#SUBSET][:SPLIT]         a data set of the Hub; SPLIT is train unless it is named
    FOLDER[:SPLIT]                   a local one: data files, or what `save_to_disk` wrote
    NAME                             a snapshot: the prompts of its comparisons, each once

Leaves out: what a row means (`source`), drawing from several sources (`mixtures`).
"""

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from assay.data.hub_datasets import dataset_rows, open_dataset
from assay.data.json_lines import Lines, RowError, parse_object
from assay.data.snapshots import list_snapshots, load_pairs
from assay.errors import BadInputError
from assay.ids import prompt_id
from assay.workspace import Workspace

HUB = "hf:"
_DATASET = re.compile(r"(?P<name>[^#]+?)(?:#(?P<subset>[^:]+))?(?::(?P<split>[\w.-]+))?")
Rows = Iterator[tuple[int, dict[str, Any]]]


def table_rows(source: str, workspace: Workspace | None) -> Rows | None:
    """(number, row), from 1, of what `source` names; None where it names no table. Raises BadInputError."""
    path = Path(source).expanduser()
    if path.is_file():
        return _file_rows(path)
    if source.startswith(HUB) or Path(source.rpartition(":")[0] or source).expanduser().is_dir() or path.is_dir():
        return _dataset_rows(source.removeprefix(HUB))
    if workspace is not None and any(snapshot.name == source for snapshot in list_snapshots(workspace)):
        return _snapshot_rows(workspace, source)
    return None


def _file_rows(path: Path) -> Rows:
    match path.suffix.lower():
        case ".parquet":
            yield from enumerate(_parquet_rows(path), start=1)
        case ".csv" | ".tsv":
            with path.open(encoding="utf-8-sig", newline="") as stream:
                table = csv.DictReader(stream, delimiter="\t" if path.suffix.lower() == ".tsv" else ",")
                for number, row in enumerate(table, start=1):
                    if None in row or None in row.values():
                        raise BadInputError("has another number of columns than the header", file=path, row=number)
                    yield number, row
        case _:
            for number, line in Lines(path):
                try:
                    row = parse_object(line)
                except RowError as error:
                    raise BadInputError(error.reason, file=path, row=number, field=error.field) from error
                yield number, row


def _parquet_rows(path: Path) -> Iterator[dict[str, Any]]:
    import pyarrow
    from pyarrow import parquet

    try:
        for batch in parquet.ParquetFile(path).iter_batches():
            yield from map(_plain, batch.to_pylist())
    except (pyarrow.ArrowException, OSError) as error:
        raise BadInputError(f"cannot be read as Parquet: {str(error).splitlines()[0]}", file=path) from error


def _dataset_rows(text: str) -> Rows:
    match = None if Path(text).expanduser().is_dir() else _DATASET.fullmatch(text)
    name, subset, split = (match["name"], match["subset"], match["split"]) if match else (text, None, None)
    for number, row in dataset_rows(open_dataset(name, subset, split or "train"), name):
        yield number, _plain(row)


def _snapshot_rows(workspace: Workspace, name: str) -> Rows:
    by_id = {prompt_id(pair.prompt): pair for pair in load_pairs(workspace, name)}
    for number, pair in enumerate(by_id.values(), start=1):
        origin = {"source": pair.source, "category": pair.category}
        yield (
            number,
            {"prompt": [message.to_dict() for message in pair.prompt]} | {k: v for k, v in origin.items() if v},
        )


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """A row of a table as JSON would hold it (dates as text), without the empty fields that a column's type adds."""
    plain: dict[str, Any] = json.loads(json.dumps(_without_nulls(row), default=str))
    return plain


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(entry) for key, entry in value.items() if entry is not None}
    return [_without_nulls(entry) for entry in value] if isinstance(value, list) else value
