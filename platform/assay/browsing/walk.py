"""The comparisons that a filter matches, in the order of import, a window at a time: within a time limit.

Covers: `walk`, which stops with enough matches, at the end, or when its time is up, and returns the position to
resume from. Leaves out: what is shown of a match (`assay.browsing.page`).

A comparison's place is its row number; rows are only added, so a place stays. Reading one narrow column of every row to
find a window's rows costs tens of milliseconds at a million rows however large the window, so that windows grow while
matches are rare; and a condition that few rows meet names them first, so that only they are looked at.
"""

import re
import time
from dataclasses import dataclass
from typing import Literal

from assay.browsing.filters import Filter
from assay.browsing.texts import locate
from assay.errors import BadInputError
from assay.store.database import Connection

Order = Literal["oldest", "newest"]

FEW = 20_000  #: candidates that a condition may name before the walk begins
MANY = 0.3  #: and, once a window has brought too few matches, the share of all comparisons
FIRST, LARGEST = 4_096, 1 << 18  #: comparisons of a window
FIRST_TEXT, LARGEST_TEXT = 1_024, 1 << 15  #: where their texts are read: up to about 50 MB
SEEDED = 16  #: of candidates that a condition named, so much fewer: most of them match
GROWTH, GROWTH_TEXT = 4, 16
PATIENCE = 1 / 3  #: of the time, for a search's first page that has a row: it is shown, and the rest is asked for


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where a walk resumes: after row `position`, with a window of `window` rows."""

    position: int
    window: int = FIRST

    def __str__(self) -> str:
        return f"{self.position}.{self.window}"

    @classmethod
    def parse(cls, text: str) -> "Cursor":
        """Inverse of `str`. Raises BadInputError."""
        if (match := _CURSOR.fullmatch(text)) is None:
            raise BadInputError("not what an earlier page gave", field="after")
        return cls(int(match[1]), min(max(int(match[2]), FIRST_TEXT), LARGEST))


_CURSOR = re.compile(r"(\d{1,15})\.(\d{1,9})")


@dataclass(frozen=True, slots=True)
class WalkResult:
    """`places` of the matches, in order. `after`: where to resume, None at the end. `examined` of `total` comparisons
    lie before it."""

    places: list[int]
    after: Cursor | None
    examined: int
    total: int


def walk(
    db: Connection,
    criteria: Filter,
    *,
    after: Cursor | None = None,
    order: Order = "oldest",
    limit: int | None = None,
    seconds: float = 0.15,
) -> WalkResult:
    """Matches that lie behind place `after`, at most `limit`. Begins no further window after `seconds`, nor, at the
    start of a search that has a match, after a part of them: it may return few or none and still not be at the end."""
    started = time.monotonic()
    total = _one(db, "SELECT coalesce(max(rowid), -1) + 1 FROM comparisons")
    up = order == "oldest"
    at = (0 if up else total - 1) if after is None else (after.position + 1 if up else after.position - 1)
    first = FIRST_TEXT if criteria.text else FIRST
    size = min(after.window if after is not None else first, LARGEST_TEXT if criteria.text else LARGEST)
    sparse = size > first
    seed = _seed(db, criteria, max(FEW, round(MANY * total)) if sparse else FEW)
    matches: list[int] = []
    end: int | None = None
    while 0 <= at < total:
        began = time.monotonic()
        if seed is None:
            end = min(at + size, total) - 1 if up else max(at - size, -1) + 1
        else:
            least = max(size // SEEDED, 1)
            end = _seeded_end(db, at, least if seed.looks or limit is None else max(limit, least), up)
        if end is None:  # no further candidate
            break
        low, high = min(at, end), max(at, end)
        matches += sorted(_matching(db, criteria, seed, low, high, total), reverse=not up)
        if limit is not None and len(matches) >= limit:
            matches = matches[:limit]
            end = matches[-1]
            at = end + 1 if up else end - 1
            break
        at = end + 1 if up else end - 1
        now = time.monotonic()
        size = _next_size(size, criteria, now - began, seconds)
        first_match_shown = criteria.text and matches and limit is not None and after is None
        if now - started >= (seconds * PATIENCE if first_match_shown else seconds):
            break
        if seed is None and not sparse:
            sparse, seed = True, _seed(db, criteria, round(MANY * total))
    if end is not None and 0 <= at < total and not (seed is not None and _seeded_end(db, at, 1, up) is None):
        return WalkResult(matches, Cursor(end, size), at if up else total - 1 - at, total)
    return WalkResult(matches, None, total, total)


def _next_size(size: int, criteria: Filter, took: float, seconds: float) -> int:
    """Of the window after one of `size` that took so long. Larger, because most of a small window's time does not
    depend on its size; but on a slow machine no larger than what somebody waits for."""
    first, largest, growth = (FIRST_TEXT, LARGEST_TEXT, GROWTH_TEXT) if criteria.text else (FIRST, LARGEST, GROWTH)
    if took > 2 * seconds > 0:
        return max(size // GROWTH, first + 1)
    return size if took > seconds > 0 else min(size * growth, largest)


def _seeded_end(db: Connection, at: int, size: int, up: bool) -> int | None:
    """The last place of a window from `at` on that holds `size` candidates; None where there are no more."""
    behind, last, direction = (f">= {at}", "max", "") if up else (f"<= {at}", "min", "DESC")
    row = db.execute(
        f"""SELECT {last}(place)
            FROM (SELECT place FROM seed WHERE place {behind} ORDER BY place {direction} LIMIT {size})"""
    ).fetchone()
    return None if row is None or row[0] is None else int(row[0])


def _matching(db: Connection, criteria: Filter, seed: "Seed | None", low: int, high: int, total: int) -> list[int]:
    """Places of the candidates between `low` and `high` that meet every condition."""
    if seed is not None and not seed.looks:
        return [p for (p,) in db.execute(f"SELECT place FROM seed WHERE place BETWEEN {low} AND {high}").fetchall()]
    db.execute(
        f"""CREATE OR REPLACE TEMP TABLE looked AS
            SELECT rowid AS place, comparison_id, prompt_id, response_a, response_b FROM comparisons
            WHERE rowid BETWEEN {low} AND {high} {"AND rowid IN (FROM seed)" if seed is not None else ""}"""
    )
    for number, (query, values) in enumerate(criteria.conditions("looked", seed.meets if seed is not None else None)):
        db.execute(f"CREATE OR REPLACE TEMP TABLE met_{number} AS {query}", values)
        db.execute(
            f"""CREATE OR REPLACE TEMP TABLE looked AS SELECT * FROM looked SEMI JOIN met_{number}
                USING (comparison_id)"""
        )
    if criteria.text:
        return _containing(db, criteria, low, high, total)
    return [position for (position,) in db.execute("SELECT place FROM looked").fetchall()]


def _containing(db: Connection, criteria: Filter, low: int, high: int, total: int) -> list[int]:
    """Those whose prompt or a response has the text."""
    span = (low / total, (high + 1) / total)
    locate(db, "prompts", "SELECT DISTINCT prompt_id FROM looked", span)
    locate(db, "responses", "SELECT response_a FROM looked UNION SELECT response_b FROM looked", span)
    # MATERIALIZED: else the whole range is searched in which the rows stand, and they are picked afterwards.
    rows = db.execute(
        """WITH answers AS MATERIALIZED (
               SELECT response_id, content FROM responses WHERE rowid IN (SELECT place FROM at_responses)),
           questions AS MATERIALIZED (
               SELECT prompt_id, messages FROM prompts WHERE rowid IN (SELECT place FROM at_prompts)),
           said AS (SELECT response_id FROM answers WHERE regexp_matches(content, $pattern)),
           asked AS (
               SELECT prompt_id FROM questions
               WHERE len(list_filter(messages, lambda m: regexp_matches(m.content, $pattern))) > 0)
           SELECT place FROM looked WHERE response_a IN (FROM said) OR response_b IN (FROM said)
              OR prompt_id IN (FROM asked)""",
        {"pattern": criteria.pattern},
    ).fetchall()
    return [position for (position,) in rows]


@dataclass(frozen=True, slots=True)
class Seed:
    """The temporary table `seed` holds row numbers of one condition's candidates. `meets`: as in `CandidateQuery`.
    `looks`: whether a match must meet anything else."""

    meets: str | None
    looks: bool


def _seed(db: Connection, criteria: Filter, most: int) -> Seed | None:
    """By the condition that names the fewest, if those are not more than `most`."""
    fewest, best = most, None
    for candidates in criteria.few():
        rows = db.execute(
            f"SELECT count(*) FROM (SELECT 1 FROM ({candidates.query}) LIMIT {most + 1})", candidates.values
        ).fetchall()
        if rows[0][0] <= fewest:
            fewest, best = rows[0][0], candidates
    if best is None:
        return None
    columns = ("comparison_id",) if best.key == "comparison_id" else ("response_a", "response_b")
    # A comparison of two named responses is one candidate.
    places = " UNION ".join(
        f"SELECT rowid AS place FROM comparisons SEMI JOIN named ON comparisons.{column} = named.{best.key}"
        for column in columns
    )
    db.execute(f"CREATE OR REPLACE TEMP TABLE seed AS WITH named AS ({best.query}) {places}", best.values)
    return Seed(best.meets, bool(criteria.text) or next(criteria.conditions("looked", best.meets), None) is not None)


def _one(db: Connection, query: str) -> int:
    row = db.execute(query).fetchone()
    assert row is not None
    return int(row[0])
