"""Counts of a workspace's preference data by pool, source, category, label, annotator kind, rule and reason."""

from typing import Any

from assay.store.database import Connection
from assay.store.keys import JUDGMENT_TABLES

#: Tables whose rows are counted.
TABLES = (
    *("prompts", "responses", "comparisons", "origins", "annotators"),
    *(*JUDGMENT_TABLES, "feedback", "decisions", "snapshots"),
)

_LABELS = """
    SELECT count(*) FILTER (label = 'A') AS a, count(*) FILTER (label = 'B') AS b,
           count(*) FILTER (label = 'tie') AS tie, count(*) FILTER (label IS NULL) AS unlabelled
    FROM pools WHERE pool <> 'discarded'"""


_BY_KIND = "count(*) FROM standing_{table} JOIN annotators USING (annotator_id) GROUP BY ALL"


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
        "ratings": _counts(db, f"SELECT aspect || ' by ' || kind, {_BY_KIND.format(table='response_judgments')}"),
        "steps and spans": _counts(
            db,
            f"SELECT if(step IS NULL, 'spans', 'steps') || ' by ' || kind, {_BY_KIND.format(table='step_judgments')}",
        ),
        "principle answers": _counts(
            db, f"SELECT answer || ' by ' || kind, {_BY_KIND.format(table='principle_judgments')}"
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
