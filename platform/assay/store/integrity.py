"""Whether the store's references hold: ids that point nowhere mean damage or a bug.

Covers: every reference between tables. Leaves out: the file's own consistency,
which DuckDB checks when it opens it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

#: (table, column, referenced table, referenced column); null references nothing.
REFERENCES: tuple[tuple[str, str, str, str], ...] = (
    ("responses", "prompt_id", "prompts", "prompt_id"),
    ("comparisons", "prompt_id", "prompts", "prompt_id"),
    ("comparisons", "response_a", "responses", "response_id"),
    ("comparisons", "response_b", "responses", "response_id"),
    ("origins", "comparison_id", "comparisons", "comparison_id"),
    ("judgments", "comparison_id", "comparisons", "comparison_id"),
    ("judgments", "annotator_id", "annotators", "annotator_id"),
    ("decisions", "comparison_id", "comparisons", "comparison_id"),
    ("scores", "response_id", "responses", "response_id"),
    ("snapshot_items", "snapshot_id", "snapshots", "snapshot_id"),
    ("snapshot_items", "comparison_id", "comparisons", "comparison_id"),
    ("principle_judgments", "response_id", "responses", "response_id"),
    ("principle_judgments", "principle_id", "principles", "principle_id"),
    *(
        (table, "run_id", "runs", "run_id")
        for table in (
            "prompts",
            "responses",
            "comparisons",
            "judgments",
            "decisions",
            "snapshots",
            "artifacts",
            "run_links",
        )
    ),
)


def dangling(db: duckdb.DuckDBPyConnection) -> dict[str, int]:
    """Reference -> how many rows point nowhere; only those with any."""
    found = {}
    for table, column, target, key in REFERENCES:
        row = db.execute(
            f"""SELECT count(*) FROM {table} t
                WHERE t.{column} IS NOT NULL AND NOT EXISTS (SELECT 1 FROM {target} x WHERE x.{key} = t.{column})"""
        ).fetchone()
        if row and row[0]:
            found[f"{table}.{column}"] = int(row[0])
    return found
