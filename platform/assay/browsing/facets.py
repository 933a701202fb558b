"""What comparisons can be filtered by here: the sources, categories, languages and scoring models of the store."""

from dataclasses import dataclass

from assay.store.database import Connection

MOST = 500  #: values listed of each; the commonest


@dataclass(frozen=True, slots=True)
class FacetValue:
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
class ComparisonFacets:
    comparisons: int
    sources: list[FacetValue]
    categories: list[FacetValue]
    languages: list[FacetValue]
    models: list[ScoredBy]


def facets(db: Connection) -> ComparisonFacets:
    """Commonest first; models by name."""
    models = db.execute("SELECT model, min(reward), max(reward) FROM scores GROUP BY model ORDER BY model").fetchall()
    return ComparisonFacets(
        int(db.execute("SELECT count(*) FROM comparisons").fetchall()[0][0]),
        _values(db, "source"),
        _values(db, "category"),
        _values(db, "language"),
        [ScoredBy(*row) for row in models],
    )


def _values(db: Connection, column: str) -> list[FacetValue]:
    rows = db.execute(
        f"""SELECT {column}, count(*) FROM origins WHERE {column} IS NOT NULL
            GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT {MOST}"""
    ).fetchall()
    return [FacetValue(*row) for row in rows]
