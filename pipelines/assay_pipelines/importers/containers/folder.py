"""Folders: a data set that `datasets` saved, or files of one kind, read as one after the other.

Rows count through all files, in the order of their names. Of files whose names begin with a split's
(`train-00000-of-00002.parquet`) those of the split are read.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from assay.errors import BadInputError
from assay_pipelines.importers.containers.container import Container, Record

_SPLIT = re.compile(r"(train|valid|val|validation|dev|eval|test)(?=[-_.\d])")
#: Kinds of files, those that are most likely the data first.
_KINDS = (".parquet", ".arrow", ".feather", ".jsonl", ".ndjson", ".csv", ".tsv", ".json")
#: What `datasets` writes beside the data.
_CARDS = frozenset({"dataset_info.json", "dataset_infos.json", "state.json", "dataset_dict.json"})
_EXPORT = "assay-export.json"  #: stands in a folder that `assay data export --format hf` wrote


class Files:
    def __init__(self, folder: Path, parts: Sequence[Container], split: str | None) -> None:
        self.path, self.name, self._parts = folder, folder.name, parts
        kinds = ", ".join(dict.fromkeys(part.description for part in parts))
        suffix = f" (split {split})" if split else ""
        self.description = f"{kinds}, {len(parts)} files{suffix}" if len(parts) > 1 else f"{kinds}{suffix}"
        self.unit = parts[0].unit
        sizes = [part.size for part in parts]
        self.size: int | None = sum(size or 0 for size in sizes) if None not in sizes else None
        self._finished, self._current = 0, parts[0]

    def position(self) -> int:
        return self._finished + self._current.position()

    def columns(self) -> list[str] | None:
        named = [part.columns() for part in self._parts]
        if any(columns is None for columns in named):
            return None
        return list(dict.fromkeys(name for columns in named for name in columns or ()))

    def records(self) -> Iterator[Record]:
        before = self._finished = 0
        for number, part in enumerate(self._parts):
            self._finished += (self._current.size or self._current.position()) if number else 0
            self._current = part
            row = 0
            for row, record, raw in part.records():
                yield before + row, record, raw
            before += row


def open_folder(folder: Path, split: str | None, open_file: Callable[[Path], Any]) -> Files:
    """The files of a folder; `open_file` opens one. `split`: None: `train` where the files are of several.

    Raises BadInputError for a folder without files that can be read, or with those of several kinds.
    """
    if (folder / "dataset_dict.json").is_file():
        names = _json(folder / "dataset_dict.json").get("splits") or []
        chosen = _chosen(folder, names, split)
        return Files(folder, _saved(folder / chosen, open_file), chosen)
    if (folder / _EXPORT).is_file():
        raise BadInputError("an export of Assay: import its folders `pairs` and `judgments`, one by one", file=folder)
    if (folder / "state.json").is_file():
        return Files(folder, _saved(folder, open_file), None)
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name not in _CARDS]
    kinds = [kind for kind in _KINDS if any(kind in path.suffixes for path in paths)]
    if not kinds:
        raise BadInputError(f"a folder without files that can be read ({', '.join(_KINDS)})", file=folder)
    if len(kinds) > 1:
        raise BadInputError(f"a folder with files of several kinds ({', '.join(kinds)}): name one file", file=folder)
    files = [path for path in paths if kinds[0] in path.suffixes]
    splits = {path: match[1] if (match := _SPLIT.match(path.name)) else None for path in files}
    names = [name for name in dict.fromkeys(splits.values()) if name]
    chosen_split = _chosen(folder, names, split) if names else None
    parts = [open_file(path) for path, name in splits.items() if name in (chosen_split, None)]
    return Files(folder, parts, chosen_split)


def _chosen(folder: Path, names: Sequence[str], split: str | None) -> str:
    chosen = split or ("train" if "train" in names or not names else names[0])
    if chosen not in names:
        raise BadInputError(f"no split {chosen!r}; there are {', '.join(names) or 'none'}", file=folder, field="split")
    return chosen


def _saved(folder: Path, open_file: Callable[[Path], Any]) -> list[Any]:
    entries = _json(folder / "state.json").get("_data_files")
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries) or not entries:
        raise BadInputError("it names no files of data", file=folder / "state.json")
    names = [Path(str(entry.get("filename"))).name for entry in entries]  # no path leads out of the folder
    return [open_file(folder / name) for name in names]


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInputError(f"cannot be read ({error})", file=path) from error
    if not isinstance(content, dict):
        raise BadInputError("not an object", file=path)
    return content
