"""Whether the store's references and keys hold: an id that points nowhere or stands twice means damage or a bug.

Covers: every reference between tables, and the keys that DuckDB does not enforce (`assay.store.keys`). Leaves out: the
what DuckDB checks itself: the check sum of each block that it reads (`read_all`).
"""

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
    ("queue_changes", "queue_id", "queues", "queue_id"),
    ("judgment_demonstrations", "judgment_id", "judgments", "judgment_id"),
    ("judgment_demonstrations", "comparison_id", "comparisons", "comparison_id"),
    ("queue_decisions", "position", "decisions", "position"),
    ("response_origins", "response_id", "responses", "response_id"),
    *(
        (table, column, target, column)
        for table in ("response_judgments", "step_judgments")
        for column, target in (("response_id", "responses"), ("annotator_id", "annotators"), ("run_id", "runs"))
    ),
    ("queue_tasks", "queue_id", "queues", "queue_id"),
    ("queue_answers", "annotator_id", "annotators", "annotator_id"),
    ("feedback", "response_id", "responses", "response_id"),
    ("feedback", "annotator_id", "annotators", "annotator_id"),
    ("attributes", "comparison_id", "comparisons", "comparison_id"),
    ("attributes", "annotator_id", "annotators", "annotator_id"),
    ("response_checks", "response_id", "responses", "response_id"),
    ("principle_judgments", "response_id", "responses", "response_id"),
    ("principle_judgments", "annotator_id", "annotators", "annotator_id"),
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
_UNIQUE = {
    **KEYS,
    "judgment_demonstrations": ("judgment_id", "position"),
    "vote_principles": ("judgment_id", "side", "principle_id"),
}


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


def examples(db: Connection, reference: str, *, most: int = 3) -> list[str]:
    """Some of the ids that a reference of `dangling` points to and that are not there."""
    ((table, column, target, key),) = [r for r in REFERENCES if f"{r[0]}.{r[1]}" == reference]
    rows = db.execute(
        f"""SELECT DISTINCT t.{column}::VARCHAR FROM {table} t
            WHERE t.{column} IS NOT NULL AND NOT EXISTS (SELECT 1 FROM {target} x WHERE x.{key} = t.{column})
            ORDER BY 1 LIMIT {int(most)}"""
    ).fetchall()
    return [value for (value,) in rows]


def read_all(db: Connection) -> int:
    """Read every row, so that DuckDB compares every block with its check sum; returns how many there are. Raises
    DuckDB's error for a damaged block."""
    tables = db.execute("SELECT table_name FROM duckdb_tables() WHERE database_name = current_database()").fetchall()
    total = 0
    for (table,) in tables:
        ((rows, _),) = db.execute(f"SELECT count(*), bit_xor(hash(t)) FROM {table} t").fetchall()
        total += int(rows)
    return total


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
