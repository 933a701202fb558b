"""Preference pairs as training and evaluation read them: from a snapshot, or straight from a file.

Covers: JSON Lines (also .gz, .zst) in TRL's explicit form and in the normalised form (`chosen`/`rejected` null where
there is no decided pair), and writing TRL's explicit conversational form. Leaves out: other formats, which go
through `assay data import` first; nothing here needs a workspace unless a snapshot is named.
"""

from __future__ import annotations

import gzip
import json
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from assay.data.conversation import split_pair
from assay.data.json_lines import Lines, RowError, parse_object
from assay.domain import Comparison, PreferencePair, prompt_of
from assay.errors import BadInputError, NotFoundError
from assay.system.atomic_files import replacing
from assay.workspace import Workspace

log = logging.getLogger(__name__)


def read_pair_file(path: str | Path) -> list[PreferencePair]:
    """Every decided pair of the file, in its order. Rows whose sides are null (ties, no pair) are skipped and counted
    in a log warning. Raises BadInputError naming file, row and field at the first bad row: training on a part
    of a file unawares is worse than stopping; `assay data import` takes the good rows.
    """
    path = Path(path)
    pairs: list[PreferencePair] = []
    undecided = 0
    for row, line in Lines(path):
        try:
            record = parse_object(line)
            if "chosen" in record and record["chosen"] is None and record.get("rejected") is None:
                undecided += 1
                continue
            pairs.append(pair_of(record))
        except RowError as error:
            raise BadInputError(error.reason, file=path, row=row, field=error.field) from error
    if not pairs:
        raise BadInputError("holds no decided pair", file=path)
    if undecided:
        log.warning("%s: skipped %d rows without a decided pair", path, undecided)
    return pairs


def pair_of(record: dict[str, Any]) -> PreferencePair:
    """One row with `chosen`, `rejected` and, unless it is implied, `prompt`. Raises RowError."""
    turns, chosen, rejected = split_pair(record.get("prompt"), record.get("chosen"), record.get("rejected"))
    if chosen == rejected:
        raise RowError("the two sides are identical")
    prompt = prompt_of(turns)
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

    path = Path(data).expanduser()
    if workspace is not None:
        try:
            return load_pairs(workspace, str(data))
        except NotFoundError:
            if not path.is_file():
                raise NotFoundError(f"{data!r} is neither a snapshot of {workspace.root} nor a file") from None
    if not path.is_file():
        raise NotFoundError(f"no such file: {data} (a snapshot needs a workspace: --workspace)")
    return read_pair_file(path)


def write_pairs(path: str | Path, pairs: Iterable[PreferencePair]) -> int:
    """Write TRL's explicit conversational form, whole or not at all; gzip where the name ends in .gz. Returns rows."""
    path = Path(path)
    written = 0
    with (
        replacing(path) as temporary,
        gzip.open(temporary, "wt", encoding="utf-8")
        if path.suffix == ".gz"
        else temporary.open("w", encoding="utf-8") as stream,
    ):
        for pair in pairs:
            row = {
                "prompt": [message.to_dict() for message in pair.prompt],
                "chosen": [{"role": "assistant", "content": pair.chosen}],
                "rejected": [{"role": "assistant", "content": pair.rejected}],
                "comparison_id": pair.comparison_id,
                "source": pair.source,
                "category": pair.category,
                "margin": pair.margin,
            }
            stream.write(json.dumps(row, ensure_ascii=False) + "\n")
            written += 1
    return written
