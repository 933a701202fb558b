"""Export: labelled comparisons as files that other trainers read, in TRL's explicit conversational form.

Covers: a snapshot or a selection of pools to JSON Lines (also .gz) or Parquet, written by DuckDB itself in bounded
memory, whole or not at all. Leaves out: loading pairs into Python (`assay.snapshots`).

Columns: prompt (messages), chosen and rejected (one assistant message each), comparison_id, source, category, margin,
pool.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.durable import replacing
from assay.errors import BadInputError
from assay.snapshots import Selection, get_snapshot
from assay.workspace import Workspace

_FORMATS = {
    ".jsonl": "FORMAT json",
    ".jsonl.gz": "FORMAT json, COMPRESSION gzip",
    ".parquet": "FORMAT parquet, COMPRESSION zstd",
}

_QUERY = """
    SELECT pr.messages AS prompt,
           [{{'role': 'assistant', 'content': if(i.label = 'A', a.content, b.content)}}] AS chosen,
           [{{'role': 'assistant', 'content': if(i.label = 'A', b.content, a.content)}}] AS rejected,
           i.comparison_id, o.source, o.category, i.margin, i.pool
    FROM ({items}) i
    JOIN comparisons c USING (comparison_id)
    JOIN prompts pr USING (prompt_id)
    JOIN responses a ON a.response_id = c.response_a
    JOIN responses b ON b.response_id = c.response_b
    LEFT JOIN (SELECT comparison_id, min(source) AS source, min(category) AS category
               FROM origins GROUP BY comparison_id) o USING (comparison_id)
    WHERE i.label IN ('A', 'B')
    ORDER BY i.comparison_id"""


@dataclass(frozen=True)
class ExportReport:
    """`undecided`: ties and unlabelled comparisons, which have no chosen side and are not in the file."""

    path: str
    pairs: int
    undecided: int


def export(workspace: Workspace, path: Path, what: str | Selection) -> ExportReport:
    """Write a snapshot (by name) or a selection to `path`; its ending says the format. An existing file is replaced.

    Raises BadInputError for an unknown ending or nothing to write, NotFoundError for an unknown snapshot.
    """
    path = path.expanduser().resolve()
    ending = next((end for end in sorted(_FORMATS, key=len, reverse=True) if path.name.endswith(end)), None)
    if ending is None:
        raise BadInputError(f"the file must end in {', '.join(_FORMATS)}", file=path)
    values: dict[str, Any]
    if isinstance(what, str):
        items = "SELECT comparison_id, label, margin, pool FROM snapshot_items WHERE snapshot_id = $snapshot"
        values = {"snapshot": get_snapshot(workspace, what).id}
    else:
        if what.slice is not None:
            raise BadInputError("make a snapshot of the slice, and export that")
        condition, values = what.where()
        items = f"SELECT comparison_id, label, margin, pool FROM pools p WHERE {condition}"
    with replacing(path) as temporary, workspace.store.unit() as db:
        db.execute(f"CREATE TEMP TABLE items AS {items}", values)
        row = db.execute("SELECT count(*) FILTER (label IN ('A', 'B')), count(*) FROM items").fetchone()
        pairs, matched = row if row else (0, 0)
        if not pairs:
            raise BadInputError(f"nothing to export: {matched} comparisons match, none of them has a decided label")
        db.execute("SET preserve_insertion_order = true")
        target = str(temporary).replace("'", "''")
        db.execute(f"COPY ({_QUERY.format(items='SELECT * FROM items')}) TO '{target}' ({_FORMATS[ending]})")
    return ExportReport(str(path), pairs, matched - pairs)
