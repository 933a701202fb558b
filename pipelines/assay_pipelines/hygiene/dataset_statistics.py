"""Counts of a workspace's preference data by pool, source, category, label, annotator kind, rule and reason."""

from __future__ import annotations

from typing import Any

from assay.store.database import Connection

#: Tables whose rows are counted.
TABLES = ("prompts", "responses", "comparisons", "origins", "annotators", "judgments", "decisions", "snapshots")

_LABELS = """
    SELECT count(*) FILTER (label = 'A') AS a, count(*) FILTER (label = 'B') AS b,
           count(*) FILTER (label = 'tie') AS tie, count(*) FILTER (label IS NULL) AS unlabelled
    FROM pools WHERE pool <> 'discarded'"""


def statistics(db: Connection, *, categories: int = 20) -> dict[str, Any]:
    """Everything as one JSON-ready object. `categories`: how many of the largest are listed."""
    return {
        "tables": {t: _one(db, f"SELECT count(*) AS n FROM {t}")["n"] for t in TABLES},
        "pools": _counts(db, "SELECT pool, count(*) FROM pools GROUP BY pool"),
        "sources": _counts(db, "SELECT source, count(DISTINCT comparison_id) FROM origins GROUP BY source"),
        "categories": _counts(
            db, "SELECT coalesce(category, '(none)'), count(DISTINCT comparison_id) FROM origins GROUP BY 1", categories
        ),
        "labels": _one(db, _LABELS),
        "judgments": _counts(
            db, "SELECT kind, count(*) FROM judgments JOIN annotators USING (annotator_id) GROUP BY kind"
        ),
        "decisions": _counts(db, "SELECT pool || ' by ' || rule, count(*) FROM current_decisions GROUP BY 1"),
        "rejects": _counts(
            db,
            "SELECT if(field IS NULL, '', field || ': ') || reason, count(*) FROM rejects GROUP BY 1",
        ),
    }


def _counts(db: Connection, query: str, limit: int = 1000) -> dict[str, int]:
    rows: list[tuple[str, int]] = db.execute(f"{query} ORDER BY 2 DESC, 1 LIMIT {limit}").fetchall()
    return dict(rows)


def _one(db: Connection, query: str) -> dict[str, Any]:
    cursor = db.execute(query)
    names = [column[0] for column in cursor.description or []]
    row = cursor.fetchone()
    return dict(zip(names, row or (), strict=True))
