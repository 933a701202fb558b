"""Unique keys without an index: which of the given keys a table has already.

Covers: the tables that grow with the data (migration 0002), their keys, and the one way to ask: a hash join whose
small side is what comes in, whose large side is a scan of one narrow column, in bounded memory. Leaves out: the
inserts themselves (`assay.store.intake`, `assay.store.records`), counting repeats (`assay.store.integrity`).

Asking and inserting must be in one unit of work: then no other writer comes in between, and the key stays unique.
"""

from assay.store.connection import Connection

#: Table -> the columns whose values may occur once. DuckDB does not enforce it: writers do, `integrity` checks.
KEYS: dict[str, tuple[str, ...]] = {
    "prompts": ("prompt_id",),
    "responses": ("response_id",),
    "comparisons": ("comparison_id",),
    "origins": ("comparison_id", "source", "record_id"),
    "judgments": ("judgment_id",),
    "decisions": ("position",),
    "media": ("content_hash",),
    "scores": ("response_id", "model_version", "template_hash", "principle"),
    "response_origins": ("response_id", "source", "record_id"),
    "response_judgments": ("judgment_id",),
    "step_judgments": ("judgment_id",),
    "queue_answers": ("answer_id",),
    "queue_changes": ("change_id",),
    "vote_contexts": ("judgment_id",),
    "snapshot_items": ("snapshot_id", "comparison_id"),
}

#: One table for each thing that is judged: comparisons, single responses, parts of responses.
JUDGMENT_TABLES = ("judgments", "response_judgments", "step_judgments")

#: Keys of the tables whose rows an UPDATE may change.
UPDATE_KEYS: dict[str, tuple[str, ...]] = {
    "runs": ("run_id",),
    "scores": KEYS["scores"],
    "embeddings": ("ref", "encoder"),
    "loops": ("loop",),
    "run_notes": ("run_id",),
    "principle_extractions": ("feedback_id", "extractor"),
}


def known_keys(table: str, candidates: str) -> str:
    """SQL query: those keys of `candidates` (a table or view with the key's columns) that `table` has already."""
    columns = ", ".join(KEYS[table])
    return f"SELECT {columns} FROM {table} SEMI JOIN {candidates} USING ({columns})"


def unknown(table: str, candidates: str) -> str:
    """SQL query: the rows of `candidates` whose key `table` does not have."""
    return f"SELECT * FROM {candidates} ANTI JOIN ({known_keys(table, candidates)}) USING ({', '.join(KEYS[table])})"


def keep_known(db: Connection, table: str, candidates: str) -> int:
    """Put `known_keys(table, candidates)` into the temporary table `known_TABLE`; returns how many there are.

    `candidates` may also be a query in brackets.
    """
    row = db.execute(f"CREATE OR REPLACE TEMP TABLE known_{table} AS {known_keys(table, candidates)}").fetchone()
    return int(row[0]) if row else 0
