"""What comparisons can be filtered by here: the sources, categories, languages and scoring models of the store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

MOST = 500  #: values listed of each; the commonest


@dataclass(frozen=True, slots=True)
class Value:
    """`origins`: how many; a comparison may have several."""

    value: str
    origins: int


@dataclass(frozen=True, slots=True)
class ScoredBy:
    """A model, and the range of its rewards."""

    model: str
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Facets:
    comparisons: int
    sources: list[Value]
    categories: list[Value]
    languages: list[Value]
    models: list[ScoredBy]


def facets(db: duckdb.DuckDBPyConnection) -> Facets:
    """Commonest first; models by name."""
    models = db.execute("SELECT model, min(reward), max(reward) FROM scores GROUP BY model ORDER BY model").fetchall()
    return Facets(
        int(db.execute("SELECT count(*) FROM comparisons").fetchall()[0][0]),
        _values(db, "source"),
        _values(db, "category"),
        _values(db, "language"),
        [ScoredBy(*row) for row in models],
    )


def _values(db: duckdb.DuckDBPyConnection, column: str) -> list[Value]:
    rows = db.execute(
        f"""SELECT {column}, count(*) FROM origins WHERE {column} IS NOT NULL
            GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT {MOST}"""
    ).fetchall()
    return [Value(*row) for row in rows]
