"""Pairs of rows, anywhere in a file, that rate completions of one prompt oppositely, joined in a scratch DuckDB."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from assay.data.json_lines import RowError
from assay.store.database import Connection, registered
from assay_pipelines.importers.containers import Container, Record
from assay_pipelines.importers.layout import JoinedLayout
from assay_pipelines.importers.rows import PairRow

_CHUNK = 10_000


def joined(
    records: Iterator[Record], layout: JoinedLayout, container: Container, spill: Path
) -> Iterator[tuple[int, PairRow | RowError]]:
    """Pairs with the row of the preferred completion, then the rejects. `spill`: folder for what memory cannot hold.

    A completion that one row prefers and another rejects makes a pair of identical sides, which is rejected.
    """
    import duckdb

    config: dict[str, Any] = {"memory_limit": "1GB", "temp_directory": str(spill)}
    with duckdb.connect(config=config) as db:
        db.execute("CREATE TABLE rated (row BIGINT, prompt VARCHAR, stem VARCHAR, completion VARCHAR, preferred BOOL)")
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
            """WITH once AS (SELECT min(row) AS row, prompt, stem, completion, preferred FROM rated GROUP BY ALL)
               SELECT t.row, t.prompt, t.stem, t.completion, f.completion, f.row
               FROM once t JOIN once f ON t.prompt = f.prompt AND t.stem = f.stem AND t.preferred AND NOT f.preferred
               ORDER BY t.row, f.row, t.stem"""
        )
        while rows := cursor.fetchmany(_CHUNK):
            for row, prompt, stem, preferred, rejected, other in rows:
                pair = PairRow(
                    json.loads(prompt),
                    stem + preferred,
                    stem + rejected,
                    "first",
                    record_id=f"{container.name}#{row}+{other}",
                    meta={"shared_characters": len(stem)} if stem else {},
                )
                try:
                    yield row, pair.check((layout.completion_field,) * 2)
                except RowError as error:
                    yield row, error
        unmatched = db.execute(
            """SELECT row FROM (
                   SELECT row, EXISTS (SELECT 1 FROM rated o WHERE o.prompt = s.prompt AND o.stem = s.stem
                                       AND o.preferred <> s.preferred) AS matched FROM rated s)
               GROUP BY row HAVING NOT bool_or(matched) ORDER BY row"""
        )
        while rows := unmatched.fetchmany(_CHUNK):
            for (row,) in rows:
                yield row, RowError(layout.unmatched, field=layout.label_field)


def _put(db: Connection, chunk: list[tuple[int, str, str, str, bool]]) -> None:
    import pyarrow as pa

    if not chunk:
        return
    columns = list(zip(*chunk, strict=True))
    with registered(db, "chunk", pa.table(columns, names=["row", "prompt", "stem", "completion", "preferred"])):
        db.execute("INSERT INTO rated SELECT * FROM chunk")
    chunk.clear()
