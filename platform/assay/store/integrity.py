"""Whether the store's references and keys hold: an id that points nowhere or stands twice means damage or a bug.

Covers: every reference between tables, and the keys that DuckDB does not enforce (`assay.store.keys`). Leaves out: the
file's own consistency, which DuckDB checks when it opens it.
"""

from __future__ import annotations

from assay.store.database import Connection
from assay.store.keys import KEYS

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
    ("queue_items", "queue_id", "queues", "queue_id"),
    ("queue_items", "comparison_id", "comparisons", "comparison_id"),
    ("queue_events", "queue_id", "queues", "queue_id"),
    ("queue_decisions", "position", "decisions", "position"),
    ("response_origins", "response_id", "responses", "response_id"),
    ("feedback", "response_id", "responses", "response_id"),
    ("feedback", "annotator_id", "annotators", "annotator_id"),
    ("principle_judgments", "response_id", "responses", "response_id"),
    ("principle_judgments", "principle_id", "principles", "principle_id"),
    ("vote_principles", "judgment_id", "judgments", "judgment_id"),
    ("vote_principles", "response_id", "responses", "response_id"),
    ("vote_principles", "principle_id", "principles", "principle_id"),
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


#: Keys of tables without an index, those of `assay.store.keys` among them.
_UNIQUE = {**KEYS, "vote_principles": ("judgment_id", "side", "principle_id")}


def dangling(db: Connection) -> dict[str, int]:
    """Reference -> how many rows point nowhere; only those with any."""
    counts = {}
    for table, column, target, key in REFERENCES:
        row = db.execute(
            f"""SELECT count(*) FROM {table} t
                WHERE t.{column} IS NOT NULL AND NOT EXISTS (SELECT 1 FROM {target} x WHERE x.{key} = t.{column})"""
        ).fetchone()
        if row and row[0]:
            counts[f"{table}.{column}"] = int(row[0])
    return counts


def repeated(db: Connection) -> dict[str, int]:
    """Table -> how many of its rows have a key that an earlier row has; only those with any."""
    counts = {}
    for table, columns in _UNIQUE.items():
        key = ", ".join(columns)
        row = db.execute(
            f"SELECT sum(n - 1) FROM (SELECT count(*) AS n FROM {table} GROUP BY {key} HAVING n > 1)"
        ).fetchone()
        if row and row[0]:
            counts[table] = int(row[0])
    return counts
