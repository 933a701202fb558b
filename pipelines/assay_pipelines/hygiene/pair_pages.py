"""Comparisons that are not discarded, with their texts, in pages of short units.

Time is linear where the texts of an import are adjacent in their tables, as imports write them: each page then reads
one range of those tables. A page whose texts are scattered costs a full scan.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.store.database import registered
from assay.workspace import Workspace
from assay_pipelines.hygiene.scratch_store import Scratch

if TYPE_CHECKING:
    import pyarrow as pa

PAGE = 50_000
PLACES = "pair_places"

# Ids and positions only, no text: seconds for millions.
_PLACES = """
    SELECT c.rowid AS place, c.comparison_id, c.prompt_id, p.rowid AS prompt_row, a.rowid AS a_row, b.rowid AS b_row,
           coalesce(d.pool, 'unverified') AS pool, d.rule
    FROM comparisons c
    JOIN prompts p ON p.prompt_id = c.prompt_id
    JOIN responses a ON a.response_id = c.response_a
    JOIN responses b ON b.response_id = c.response_b
    LEFT JOIN (SELECT comparison_id, arg_max(pool, "position") AS pool, arg_max(rule, "position") AS rule
               FROM decisions GROUP BY comparison_id) d ON d.comparison_id = c.comparison_id"""
_TEXTS = """
    SELECT w.item, w.comparison_id, c.prompt_id, p.messages, a.content AS a, b.content AS b
    FROM wanted w
    JOIN comparisons c ON c.comparison_id = w.comparison_id
    JOIN prompts p ON p.prompt_id = c.prompt_id
    JOIN responses a ON a.response_id = c.response_a
    JOIN responses b ON b.response_id = c.response_b
    WHERE {near}"""
_NEAR = (
    "c.rowid BETWEEN {place} AND p.rowid BETWEEN {prompt_row} AND a.rowid BETWEEN {a_row} AND b.rowid BETWEEN {b_row}"
)


@dataclass(frozen=True)
class PairPages:
    """`items` comparisons, numbered from 0 in the order of the store. The places are a table of the scratch file:
    item, place, comparison_id, prompt_id, prompt_row, a_row, b_row, and the pool and rule of the decision in force."""

    workspace: Workspace
    scratch: Scratch
    items: int

    def pages(self, *, page: int = PAGE, only: str = "") -> Iterator[pa.Table]:
        """(item, comparison_id, prompt_id, messages, a, b) of up to `page` comparisons at a time; the pages
        follow each other by `item`, the rows within one do not.

        `only`: SQL condition over the places, e.g. `item IN (SELECT item FROM candidates)`.
        """
        columns = "item, place, comparison_id, prompt_row, a_row, b_row"
        for positions in self.scratch.item_pages(PLACES, columns, self.items, page=page, only=only):
            yield self._texts(positions)

    def _texts(self, positions: pa.Table) -> pa.Table:
        import pyarrow.compute as pc

        spans = {}
        for name in ("place", "prompt_row", "a_row", "b_row"):
            ends = pc.min_max(positions.column(name))
            spans[name] = f"{ends['min']} AND {ends['max']}"
        near = _NEAR.format(**spans)
        for clause in (near, "true"):  # without the positions, should they ever have changed
            with self.workspace.store.unit() as db, registered(db, "wanted", positions):
                texts = db.sql(_TEXTS.format(near=clause)).to_arrow_table()
            if texts.num_rows == positions.num_rows:
                break
        return texts


def pair_pages(workspace: Workspace, scratch: Scratch, *, but_discarded_by: str | None = None) -> PairPages:
    """Record the positions of all comparisons that are not discarded, in one unit of work; those that the rule
    `but_discarded_by` discarded are included."""
    where = " WHERE coalesce(d.pool, '') <> 'discarded' OR d.rule = $rule"
    scratch.copy(workspace, f"{PLACES}_found", _PLACES + where, rule=but_discarded_by or "")
    scratch.db.execute(
        f"""CREATE OR REPLACE TABLE {PLACES} AS
            SELECT row_number() OVER (ORDER BY place) - 1 AS item, * FROM {PLACES}_found ORDER BY place"""
    )
    scratch.db.execute(f"DROP TABLE {PLACES}_found")
    return PairPages(workspace, scratch, scratch.number(f"SELECT count(*) FROM {PLACES}"))


def count_pairs(workspace: Workspace, *, but_gold: bool = False) -> int:
    """How many comparisons `pair_pages` would return, without those of the gold pool if `but_gold`."""
    left_out = ("discarded", "gold") if but_gold else ("discarded",)
    with workspace.store.unit() as db:
        (row,) = db.execute(
            """SELECT (SELECT count(*) FROM comparisons) - count(*) FILTER (list_contains($pools, pool))
               FROM (SELECT arg_max(pool, "position") AS pool FROM decisions GROUP BY comparison_id)""",
            {"pools": list(left_out)},
        ).fetchall()
    return int(row[0])
