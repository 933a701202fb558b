"""Where the texts of some comparisons stand in their tables, so that only they are read.

A table of texts is gigabytes; its ids are a narrow column. An import writes comparisons, prompts and responses batch by
batch, so that a window's texts mostly stand at the same fraction of their tables: ids are looked for there first, and
what is not there in the whole column.
"""

from typing import Literal

from assay.store.database import Connection

#: Rows on either side. An import's batch is one row group of pairs: its first responses, then its second ones.
SLACK = 130_000
KEYS = {"prompts": "prompt_id", "responses": "response_id"}


def locate(
    db: Connection,
    table: Literal["prompts", "responses"],
    ids_query: str,
    span: tuple[float, float],
) -> None:
    """Put `place` (row number) and key of each id that the query `wanted` names into the temporary table `at_TABLE`.

    `span`: the fractions of the comparisons between which those of the ids lie.
    """
    key = KEYS[table]
    rows = _one(db, f"SELECT count(*) FROM {table}")
    low, high = int(span[0] * rows) - SLACK, int(span[1] * rows) + SLACK
    db.execute(f"CREATE OR REPLACE TEMP TABLE sought ({key}) AS {ids_query}")
    near = f"WHERE rowid BETWEEN {max(low, 0)} AND {high}" if high - low < rows // 2 else ""
    db.execute(
        f"""CREATE OR REPLACE TEMP TABLE at_{table} AS
            SELECT rowid AS place, {key} FROM {table} SEMI JOIN sought USING ({key}) {near}"""
    )
    if near and _one(db, f"SELECT (SELECT count(*) FROM sought) - (SELECT count(*) FROM at_{table})") > 0:
        db.execute(
            f"""INSERT INTO at_{table} SELECT rowid, {key} FROM {table}
                SEMI JOIN (FROM sought ANTI JOIN at_{table} USING ({key})) USING ({key})"""
        )


def _one(db: Connection, query: str) -> int:
    row = db.execute(query).fetchone()
    assert row is not None
    return int(row[0])
