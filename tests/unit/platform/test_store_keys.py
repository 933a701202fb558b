"""Keys without indexes: an old store keeps every row, nothing is doubled, and doctor's check counts what is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from assay.domain import Comparison, Judgment, Message
from assay.store import Database, records
from assay.store.intake import pair_schema, store_pairs
from assay.store.integrity import repeated
from assay.store.keys import KEYS
from assay.store.schema import migrate, migrations
from assay.workspace import Workspace

OLD_ROWS = """
    INSERT INTO runs (run_id, kind, config, code_version, status) VALUES ('run-1', 'import', '{}', '0', 'done');
    INSERT INTO prompts (prompt_id, messages, run_id)
        VALUES ('p-1', [{'role': 'user', 'content': 'why?'}], 'run-1'), ('p-2', [], NULL);
    INSERT INTO responses (response_id, prompt_id, content, run_id)
        VALUES ('r-1', 'p-1', 'because', 'run-1'), ('r-2', 'p-1', 'naïve ☂', NULL);
    INSERT INTO comparisons VALUES ('c-1', 'p-1', 'r-1', 'r-2', 'run-1');
    INSERT INTO origins VALUES ('c-1', 's', '1', 'k', 'MIT', 'en', '{"a": 1}', 'run-1'),
                               ('c-1', 's', '2', NULL, NULL, NULL, NULL, NULL);
    INSERT INTO annotators VALUES ('a-1', 'source', 's', NULL);
    INSERT INTO judgments VALUES ('j-1', 'c-1', 'a-1', 'A', 3, 0.5, 'so', 'BA', 1.5, 'x', 'run-1', '2026-01-02 03:04Z');
    INSERT INTO decisions (comparison_id, pool, label, margin, rule, reason) VALUES
        ('c-1', 'pending', NULL, NULL, 'queue', 'first'), ('c-1', 'gold', 'A', 2.0, 'majority', 'second');
    INSERT INTO scores (response_id, model_version, template_hash, principle, model, reward, probability, uncertainty,
                        tokens, truncated, error, run_id, created_at) VALUES
        ('r-1', 'v', 't', '', 'rm', 1.5, 0.8, 0.1, 7, false, NULL, 'run-1', '2026-01-02 03:04Z'),
        ('r-2', 'v', 't', 'p', 'rm', NULL, NULL, NULL, NULL, NULL, 'gone', NULL, '2026-01-02 03:04Z');
    INSERT INTO snapshots VALUES ('s-1', 'train', 'h', 1, '{}', NULL, '2026-01-02 03:04Z');
    INSERT INTO snapshot_items (snapshot_id, comparison_id, label, margin, weight, pool)
        VALUES ('s-1', 'c-1', 'A', 1.0, 0.5, 'gold');
"""


#: Tables of the first version.
NEWER = {"response_origins", "response_judgments", "step_judgments", "queue_answers", "media"}
NEWER |= {"queue_changes", "vote_contexts"}
OLD_TABLES = [table for table in KEYS if table not in NEWER]


def contents(db: duckdb.DuckDBPyConnection) -> dict[str, list[tuple[Any, ...]]]:
    # `calibration` of scores came with migration 12, `basis` of decisions with 14, what is not text with 16, the weight
    # and the preference of a decision with 18
    later = ("calibration", "basis", "conversation", "turns", "preference")
    views = ("pools", "current_decisions", "source_labels")
    found = {}
    for table in (*OLD_TABLES, *views):
        more = ("weight",) if "decisions" in table else ()
        columns = f"COLUMNS(lambda c: NOT list_contains({[*later, *more]}, c))"
        found[table] = db.execute(f"SELECT {columns}::VARCHAR FROM {table} ORDER BY ALL").fetchall()
    return found


def test_a_store_with_indexes_keeps_every_row(tmp_path: Path) -> None:
    path = tmp_path / "old.duckdb"
    with duckdb.connect(str(path)) as db:
        db.execute("CREATE TABLE schema_migrations (version INTEGER PRIMARY KEY, applied_at TIMESTAMPTZ)")
        db.execute(migrations()[1])
        db.execute("INSERT INTO schema_migrations VALUES (1, now())")
        db.execute(OLD_ROWS)
        before = contents(db)
    with Database(path).unit() as db:
        assert contents(db) == before
        assert all(before.values()), "every table and view was put to the test"
        constraints = "SELECT count(*) FROM duckdb_constraints() WHERE constraint_type IN ('PRIMARY KEY', 'UNIQUE')"
        tables = ", ".join(f"'{table}'" for table in OLD_TABLES)
        assert db.execute(f"{constraints} AND table_name IN ({tables})").fetchone() == (0,)
        checks = (
            "SELECT count(*) FROM duckdb_constraints() WHERE constraint_type = 'CHECK' AND table_name = 'judgments'"
        )
        assert db.execute(checks).fetchone() == (5,)
        assert migrate(db) == []
        db.execute("INSERT INTO decisions (comparison_id, pool, rule, reason) VALUES ('c-1', 'gold', 'r', 'third')")
        position = db.execute("SELECT position FROM decisions WHERE reason = 'third'").fetchone()
    assert position is not None
    assert position[0] > max(int(row[0]) for row in before["decisions"]), "the sequence goes on where it was"


def pair(row: int, prompt: str, first: str, second: str, **more: object) -> dict[str, object]:
    messages = [{"role": "user", "content": prompt}]
    fixed = {"row": row, "messages": messages, "first": first, "second": second, "label": "first", "source": "s"}
    return {**fixed, "record_id": f"f#{row}", **more}


def put(workspace: Workspace, *rows: dict[str, object]) -> tuple[int, int, int, int, int]:
    with workspace.store.unit() as db:
        counts = store_pairs(db, pa.Table.from_pylist(list(rows), schema=pair_schema()), "run-1")
    return (counts.prompts, counts.responses, counts.comparisons, counts.origins, counts.judgments)


def test_only_what_is_new_is_written(workspace: Workspace) -> None:
    assert put(workspace, pair(1, "p", "a", "b"), pair(2, "p", "a", "c"), pair(3, "q", "a", "b")) == (2, 5, 3, 3, 3)
    # one prompt known, one new; a known response beside a new one; the same pair from another row, swapped
    rows = [pair(4, "p", "b", "d"), pair(5, "new", "a", "b"), pair(6, "p", "b", "a"), pair(6, "p", "b", "a")]
    assert put(workspace, *rows) == (1, 3, 2, 3, 3)
    with workspace.store.unit() as db:
        assert repeated(db) == {}
        texts = db.execute("SELECT content FROM responses ORDER BY 1").fetchall()
    assert [text for (text,) in texts] == ["a", "a", "a", "b", "b", "b", "c", "d"]


def test_records_beside_an_import(workspace: Workspace) -> None:
    """What other writers put in is known to a later import, and the other way round."""
    prompt = (Message("user", "p"),)
    comparison, swapped = Comparison.of(prompt, "a", "b")
    with workspace.store.unit() as db:
        records.insert_responses(db, [(prompt, "a"), (prompt, "a"), (prompt, "x")], "run-0")
    assert put(workspace, pair(1, "p", "a", "b")) == (0, 1, 1, 1, 1)
    with workspace.store.unit() as db:
        records.insert_responses(db, [(prompt, "b"), (prompt, "y")], "run-2")
        source = records.insert_annotator(db, "source", "s")
        said = Judgment(comparison.id, source, "B" if swapped else "A")
        assert records.insert_judgments(db, [said], "run-2") == 0, "the import said so already"
        assert repeated(db) == {}
        assert db.execute("SELECT count(*) FROM responses").fetchone() == (4,)


@pytest.mark.parametrize("table", ["prompts", "origins", "judgments", "scores"])
def test_repeats_are_counted(tmp_path: Path, table: str) -> None:
    with Database(tmp_path / "s.duckdb").unit() as db:
        db.execute(OLD_ROWS)
        assert repeated(db) == {}
        key = KEYS[table][0]
        db.execute(f"INSERT INTO {table} SELECT * FROM {table} WHERE {key} = (SELECT min({key}) FROM {table}) LIMIT 1")
        assert repeated(db) == {table: 1}
