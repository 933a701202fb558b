"""Rows of prompts by where they are: files, folders of `datasets`, the Hub, snapshots of the workspace.

    FILE.jsonl, FILE.jsonl.gz, ...   a JSON object a line
    FILE.parquet, FILE.csv, .tsv     a row each; of CSV every value is a text
    hf:NAME[#SUBSET][:SPLIT]         a data set of the Hub; SPLIT is train unless it is named
    FOLDER[:SPLIT]                   a local one: data files, or what `save_to_disk` wrote
    NAME                             a snapshot: the prompts of its comparisons, each once

Leaves out: what a row means (`source`), drawing from several sources (`mixtures`).
"""

import re
from pathlib import Path
from typing import Any

from assay.data.hub_datasets import dataset_rows, open_dataset
from assay.data.row_files import NumberedRows, file_rows, plain_row
from assay.data.snapshots import list_snapshots, load_pairs
from assay.ids import prompt_id
from assay.workspace import Workspace

HUB = "hf:"
_DATASET = re.compile(r"(?P<name>[^#]+?)(?:#(?P<subset>[^:]+))?(?::(?P<split>[\w.-]+))?")


def table_rows(source: str, workspace: Workspace | None) -> NumberedRows | None:
    """(number, row), from 1, of what `source` names; None where it names no table. Raises BadInputError."""
    path = Path(source).expanduser()
    if path.is_file():
        rows = file_rows(path)
        return ((n, _stated(row)) for n, row in rows) if path.suffix.lower() == ".parquet" else rows
    if source.startswith(HUB) or Path(source.rpartition(":")[0] or source).expanduser().is_dir() or path.is_dir():
        return _dataset_rows(source.removeprefix(HUB))
    if workspace is not None and any(snapshot.name == source for snapshot in list_snapshots(workspace)):
        return _snapshot_rows(workspace, source)
    return None


def _dataset_rows(text: str) -> NumberedRows:
    match = None if Path(text).expanduser().is_dir() else _DATASET.fullmatch(text)
    name, subset, split = (match["name"], match["subset"], match["split"]) if match else (text, None, None)
    for number, row in dataset_rows(open_dataset(name, subset, split or "train"), name):
        yield number, _stated(plain_row(row))


def _snapshot_rows(workspace: Workspace, name: str) -> NumberedRows:
    by_id = {prompt_id(pair.prompt): pair for pair in load_pairs(workspace, name)}
    for number, pair in enumerate(by_id.values(), start=1):
        origin = {"source": pair.source, "category": pair.category}
        yield (
            number,
            {"prompt": [message.to_dict() for message in pair.prompt]} | {k: v for k, v in origin.items() if v},
        )


def _stated(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if value is not None}
