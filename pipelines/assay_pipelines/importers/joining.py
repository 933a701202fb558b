"""Rows that make pairs only together: completions of one beginning that one row likes and another dislikes.

Covers: joining rows that may be anywhere in the file, in a scratch DuckDB that spills to disk, so that memory stays
bounded. Leaves out: what a row says (`unpaired`, `stepwise`); rows that find no partner are rejected with a reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.data.json_lines import RowError
from assay.store.database import registered
from assay_pipelines.importers.containers import Container, Record
from assay_pipelines.importers.layout import JoinedLayout
from assay_pipelines.importers.rows import PairRow

if TYPE_CHECKING:
    import duckdb

_CHUNK = 10_000


def joined(
    records: Iterator[Record], layout: JoinedLayout, container: Container, spill: Path
) -> Iterator[tuple[int, PairRow | RowError]]:
    """Pairs with the row of the liked completion, then the rejects. `spill`: folder for what memory cannot hold.

    The same completion of the same beginning, liked by one row and disliked by another, is rejected as identical.
    """
    import duckdb

    config: dict[str, Any] = {"memory_limit": "1GB", "temp_directory": str(spill)}
    with duckdb.connect(config=config) as db:
        db.execute("CREATE TABLE said (row BIGINT, prompt VARCHAR, stem VARCHAR, completion VARCHAR, liked BOOLEAN)")
        chunk: list[tuple[int, str, str, str, bool]] = []
        for row, record, _ in records:
            try:
                if isinstance(record, RowError):
                    raise record
                for rated in layout.completions(record):
                    prompt = json.dumps(rated.turns, ensure_ascii=False)
                    chunk.append((row, prompt, rated.stem, rated.completion, rated.preferred))
            except RowError as error:
                yield row, error
            if len(chunk) >= _CHUNK:
                _put(db, chunk)
        _put(db, chunk)
        cursor = db.execute(
            """WITH once AS (SELECT min(row) AS row, prompt, stem, completion, liked FROM said GROUP BY ALL)
               SELECT t.row, t.prompt, t.stem, t.completion, f.completion, f.row
               FROM once t JOIN once f ON t.prompt = f.prompt AND t.stem = f.stem AND t.liked AND NOT f.liked
               ORDER BY t.row, f.row, t.stem"""
        )
        while rows := cursor.fetchmany(_CHUNK):
            for row, prompt, stem, liked, disliked, other in rows:
                pair = PairRow(
                    json.loads(prompt),
                    stem + liked,
                    stem + disliked,
                    "first",
                    record_id=f"{container.name}#{row}+{other}",
                    meta={"shared_characters": len(stem)} if stem else {},
                )
                try:
                    yield row, pair.check((layout.completion_field,) * 2)
                except RowError as error:
                    yield row, error
        lonely = db.execute(
            """SELECT row FROM (
                   SELECT row, EXISTS (SELECT 1 FROM said o WHERE o.prompt = s.prompt AND o.stem = s.stem
                                       AND o.liked <> s.liked) AS matched FROM said s)
               GROUP BY row HAVING NOT bool_or(matched) ORDER BY row"""
        )
        while rows := lonely.fetchmany(_CHUNK):
            for (row,) in rows:
                yield row, RowError(layout.unmatched, field=layout.label_field)


def _put(db: duckdb.DuckDBPyConnection, chunk: list[tuple[int, str, str, str, bool]]) -> None:
    import pyarrow as pa

    if not chunk:
        return
    columns = list(zip(*chunk, strict=True))
    with registered(db, "chunk", pa.table(columns, names=["row", "prompt", "stem", "completion", "liked"])):
        db.execute("INSERT INTO said SELECT * FROM chunk")
    chunk.clear()
