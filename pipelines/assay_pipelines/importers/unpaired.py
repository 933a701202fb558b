"""TRL's unpaired preference (prompt, completion, label true/false) to pairs: every liked with every disliked
completion of the same prompt.

Covers: joining rows that may be anywhere in the file, in a scratch DuckDB that spills to disk, so that memory stays
bounded. Leaves out: prompts with completions of one label only; their rows are rejected with that reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.conversation import Turns, prompt_turns, text_of, turns_of
from assay.json_lines import RowError
from assay.store.database import registered
from assay_pipelines.importers.containers import Container, Record
from assay_pipelines.importers.rows import PairRow

if TYPE_CHECKING:
    import duckdb

LONELY = "no completion of the same prompt with the opposite label"
_CHUNK = 10_000


def looks_unpaired(record: Mapping[str, Any]) -> bool:
    return {"prompt", "completion", "label"} <= record.keys()


def paired(records: Iterator[Record], container: Container, spill: Path) -> Iterator[tuple[int, PairRow | RowError]]:
    """Pairs with the row of the liked completion, then the rejects. `spill`: folder for what memory cannot hold."""
    import duckdb

    config: dict[str, Any] = {"memory_limit": "1GB", "temp_directory": str(spill)}
    with duckdb.connect(config=config) as db:
        db.execute("CREATE TABLE said (row BIGINT, prompt VARCHAR, completion VARCHAR, liked BOOLEAN)")
        chunk: list[tuple[int, str, str, bool]] = []
        for row, record, _ in records:
            try:
                if isinstance(record, RowError):
                    raise record
                chunk.append((row, *_parse(record)))
            except RowError as error:
                yield row, error
            if len(chunk) >= _CHUNK:
                _put(db, chunk)
        _put(db, chunk)
        cursor = db.execute(
            """SELECT t.row, t.prompt, t.completion, f.completion, f.row
               FROM said t JOIN said f ON t.prompt = f.prompt AND t.liked AND NOT f.liked ORDER BY t.row, f.row"""
        )
        while rows := cursor.fetchmany(_CHUNK):
            for row, prompt, liked, disliked, other in rows:
                pair = PairRow(
                    json.loads(prompt), liked, disliked, "first", record_id=f"{container.name}#{row}+{other}"
                )
                try:
                    yield row, pair.check(("completion", "completion"))
                except RowError as error:
                    yield row, error
        lonely = db.execute(
            """SELECT row FROM said s
               WHERE NOT EXISTS (SELECT 1 FROM said o WHERE o.prompt = s.prompt AND o.liked <> s.liked) ORDER BY row"""
        )
        while rows := lonely.fetchmany(_CHUNK):
            for (row,) in rows:
                yield row, RowError(LONELY, field="label")


def _parse(record: Mapping[str, Any]) -> tuple[str, str, bool]:
    turns = prompt_turns(record.get("prompt"))
    completion = record.get("completion")
    if isinstance(completion, list):
        messages: Turns = turns_of(completion, "completion")
        if len(messages) != 1 or messages[0]["role"] != "assistant":
            raise RowError("not one message of the assistant", field="completion")
        completion = messages[0]["content"]
    label = record.get("label")
    if isinstance(label, str):
        label = {"true": True, "1": True, "false": False, "0": False}.get(label.strip().lower())
    if not isinstance(label, bool) and label not in (0, 1):
        raise RowError("not true or false", field="label")
    return json.dumps(turns, ensure_ascii=False), text_of(completion, "completion"), bool(label)


def _put(db: duckdb.DuckDBPyConnection, chunk: list[tuple[int, str, str, bool]]) -> None:
    import pyarrow as pa

    if not chunk:
        return
    columns = list(zip(*chunk, strict=True))
    with registered(db, "chunk", pa.table(columns, names=["row", "prompt", "completion", "liked"])):
        db.execute("INSERT INTO said SELECT * FROM chunk")
    chunk.clear()
