"""Preference pairs as training and evaluation read them: from a snapshot, or straight from a file.

Covers: JSON Lines (also .gz, .zst), Parquet and CSV in TRL's explicit form and in the normalised form
(`chosen`/`rejected` null where there is no decided pair). Leaves out: other formats, which go through `assay data
import` first; nothing here needs a workspace unless a snapshot is named.
"""

import os
from collections.abc import Callable, Collection, Iterable
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from assay.data.conversation import row_turns, split_pair
from assay.data.json_lines import RowError
from assay.data.row_files import RowFile, read_rows
from assay.domain import Comparison, PreferencePair, prompt_of, response_of
from assay.errors import NotFoundError, nearest_names
from assay.workspace import Workspace

Rows = TypeVar("Rows", bound=Collection[Any])
_MOST_FILES = 1000  #: of a folder, that a slip is compared with


def read_pair_file(path: str | Path) -> list[PreferencePair]:
    """Every decided pair of the file, in its order. Rows whose sides are null (ties, no pair) are skipped and counted
    in a log warning. Raises BadInputError naming file, row and field at the first bad row: training on a part
    of a file unawares is worse than stopping; `assay data import` takes the good rows.
    """
    return read_rows(path, _decided, what="decided pair")


def _decided(record: dict[str, Any]) -> Iterable[PreferencePair]:
    if "chosen" in record and record["chosen"] is None and record.get("rejected") is None:
        return ()
    return (pair_of(record),)


def pair_of(record: dict[str, Any]) -> PreferencePair:
    """One row with `chosen`, `rejected` and, unless it is implied, `prompt`. Raises RowError."""
    turns, *sides = split_pair(record.get("prompt"), record.get("chosen"), record.get("rejected"))
    if sides[0] == sides[1] != "":
        raise RowError("the two sides are identical")
    prompt = prompt_of(row_turns(record, turns, *sides))
    chosen, rejected = map(response_of, sides)
    margin = record.get("margin")
    if margin is not None and (isinstance(margin, bool) or not isinstance(margin, int | float)):
        raise RowError("not a number", field="margin")
    return PreferencePair(
        prompt,
        chosen,
        rejected,
        comparison_id=Comparison.of(prompt, chosen, rejected)[0].id,
        margin=margin,
        source=str(record.get("source") or ""),
        category=str(record.get("category") or ""),
    )


def load_pairs_or_file(workspace: Workspace | None, data: str | Path) -> list[PreferencePair]:
    """`data` names a snapshot of the workspace or a file; a snapshot comes first. Raises NotFoundError for neither."""
    from assay.data.snapshots import load_pairs

    return from_snapshot_or_file(workspace, data, load_pairs, read_pair_file)


def open_pairs(workspace: Workspace | None, data: str | Path) -> Collection[PreferencePair]:
    """As `load_pairs_or_file`, but the pairs of a file are parsed again each time they are iterated over."""
    from assay.data.snapshots import load_pairs

    return from_snapshot_or_file(workspace, data, load_pairs, lambda path: RowFile(path, _decided, what="decided pair"))


def from_snapshot_or_file(
    workspace: Workspace | None,
    data: str | Path,
    load: Callable[[Workspace, str], Rows],
    read: Callable[[Path], Rows],
) -> Rows:
    """What `load` gives of a snapshot of that name, else `read` of the file. Raises NotFoundError for neither."""
    path = Path(data).expanduser()
    if workspace is not None:
        try:
            return load(workspace, str(data))
        except NotFoundError:
            if not path.is_file():
                near = nearest_names(data, [*_snapshot_names(workspace), *_files_beside(path, data)])
                raise NotFoundError(f"{data!r} is neither a snapshot of {workspace.root} nor a file{near}") from None
    if not path.is_file():
        near = nearest_names(data, _files_beside(path, data))
        raise NotFoundError(f"no such file: {data} (a snapshot needs a workspace: --workspace){near}")
    return read(path)


def _snapshot_names(workspace: Workspace) -> list[str]:
    with workspace.store.unit() as db:
        return [name for (name,) in db.execute("SELECT name FROM snapshots ORDER BY created_at DESC").fetchall()]


def _files_beside(path: Path, data: str | Path) -> list[str]:
    """As `data` would name them; none of a folder that cannot be read, of a large one the first."""
    above = str(data).rstrip(os.sep).removesuffix(path.name)
    try:
        with os.scandir(path.parent) as entries:
            return [f"{above}{other.name}" for other in islice(entries, _MOST_FILES) if other.is_file()]
    except OSError:
        return []
