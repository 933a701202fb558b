"""Comparisons of a pool or a selection, with their texts, in pages of short units.

Time is linear where the texts of an import are adjacent in their tables, as imports write them: each page then reads
one range of those tables. A page whose texts are scattered costs a full scan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.browsing.candidates import Candidate, candidate_of
from assay.compute.scratch_store import Scratch
from assay.data.snapshots import CATEGORIES, Selection
from assay.store.database import registered
from assay.workspace import Workspace

if TYPE_CHECKING:
    import pyarrow as pa

PAGE = 50_000
SHARD = 10_000  #: comparisons
PLACES = "pair_places"
_POSITIONS = "item, place, comparison_id, prompt_row, a_row, b_row"

_ROWS = "c.rowid AS place, c.comparison_id, c.prompt_id"
# Ids and positions only, no text: seconds for millions.
_KEPT = f"""
    SELECT {_ROWS}, coalesce(d.pool, 'unverified') AS pool, d.rule
    FROM comparisons c
    LEFT JOIN (SELECT comparison_id, arg_max(pool, "position") AS pool, arg_max(rule, "position") AS rule
               FROM decisions GROUP BY comparison_id) d ON d.comparison_id = c.comparison_id
    WHERE coalesce(d.pool, '') <> 'discarded' OR d.rule = $rule"""
# `label`: the decision's; the source's for unverified comparisons, and for pending ones without one.
_SELECTED = """
    SELECT c.rowid AS place, c.comparison_id, c.prompt_id, v.pool,
           if(v.pool = 'pending', coalesce(v.label, s.label), v.label) AS label,
           s.label AS source_label
    FROM (SELECT p.* FROM pools p {categories} WHERE {condition}) v
    JOIN comparisons c ON c.comparison_id = v.comparison_id
    LEFT JOIN source_labels s ON s.comparison_id = c.comparison_id"""
# The rows of the texts, each by one join that can spill: all joins of a query are in memory at once.
_TEXT_ROWS = (
    ("prompt_row", "prompts", "prompt_id", "prompt_id"),
    ("a_row", "responses", "response_id", "response_a"),
    ("b_row", "responses", "response_id", "response_b"),
)
_SAID = """
    SELECT j.comparison_id, j.judgment_id FROM judgments j JOIN annotators n USING (annotator_id)
    WHERE n.kind = 'source' AND j.answer <> 'skip'"""
_PLAIN = "w.item, w.comparison_id, c.prompt_id, p.messages, a.content AS a, b.content AS b"
_WHOLE = """
    w.item, w.comparison_id, w.pool, w.label, w.source_label, p.messages, p.conversation, c.response_a,
    c.response_b, a.content AS a, a.turns AS a_turns, b.content AS b, b.turns AS b_turns"""
_TEXTS = """
    SELECT {columns}
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
    """`items` comparisons, numbered from 0 in the order of the store. The places are a table of the scratch file: item,
    place, comparison_id, prompt_id, prompt_row, a_row, b_row, and the pool and rule (of a selection: pool, label and
    source_label) of the decision in force."""

    workspace: Workspace
    scratch: Scratch
    items: int

    def pages(self, *, page: int = PAGE, only: str = "") -> Iterator[pa.Table]:
        """(item, comparison_id, prompt_id, messages, a, b) of up to `page` comparisons at a time; the pages
        follow each other by `item`, the rows within one do not.

        `only`: SQL condition over the places, e.g. `item IN (SELECT item FROM candidates)`.
        """
        for positions in self.scratch.item_pages(PLACES, _POSITIONS, self.items, page=page, only=only):
            yield self._texts(positions, _PLAIN)

    def shards(self, rows: int = SHARD) -> Iterator[pa.Table]:
        """Of a selection: comparisons as `candidates_of` reads them, in the order of the store, `rows` at a time."""
        columns = f"{_POSITIONS}, pool, label, source_label"
        step = max(rows, PAGE // rows * rows)
        for positions in self.scratch.item_pages(PLACES, columns, self.items, page=step):
            ordered = self._texts(positions, _WHOLE).sort_by("item")
            first, last = ordered.column("item")[0].as_py(), ordered.column("item")[-1].as_py()
            judgments = self.scratch.db.sql(
                f"""SELECT list(judgment_id ORDER BY judgment_id) FILTER (judgment_id IS NOT NULL) AS source_judgments
                    FROM {PLACES} LEFT JOIN {PLACES}_said USING (item)
                    WHERE item BETWEEN {first} AND {last} GROUP BY item ORDER BY item"""
            ).to_arrow_table()
            ordered = ordered.drop_columns(["item"]).append_column("source_judgments", judgments.column(0))
            for start in range(0, ordered.num_rows, rows):
                yield ordered.slice(start, rows).combine_chunks()

    def rows(self, query: str, values: Mapping[str, Any], page: int = PAGE) -> Iterator[pa.Table]:
        """What a query on the store gives for up to `page` comparisons at a time. The query reads them in `wanted` and
        joins comparisons c, prompts p, responses a and b under the condition `{near}`."""
        for positions in self.scratch.item_pages(PLACES, _POSITIONS, self.items, page=page):
            with self.workspace.store.unit() as db, registered(db, "wanted", positions):
                yield db.sql(query.format(near=_near(positions)), params=dict(values)).to_arrow_table()

    def _texts(self, positions: pa.Table, columns: str) -> pa.Table:
        for clause in (_near(positions), "true"):  # without the positions, should they ever have changed
            with self.workspace.store.unit() as db, registered(db, "wanted", positions):
                texts = db.sql(_TEXTS.format(columns=columns, near=clause)).to_arrow_table()
            if texts.num_rows == positions.num_rows:
                break
        return texts


def _near(positions: pa.Table) -> str:
    import pyarrow.compute as pc

    spans = {}
    for name in ("place", "prompt_row", "a_row", "b_row"):
        ends = pc.min_max(positions.column(name))
        spans[name] = f"{ends['min']} AND {ends['max']}"
    return _NEAR.format(**spans)


def pair_pages(workspace: Workspace, scratch: Scratch, *, but_discarded_by: str | None = None) -> PairPages:
    """Record the positions of all comparisons that are not discarded, in one unit of work; those that the rule
    `but_discarded_by` discarded are included."""
    return _numbered(workspace, scratch, _KEPT, rule=but_discarded_by or "")


def selected_pages(workspace: Workspace, scratch: Scratch, selection: Selection) -> PairPages:
    """Record the positions of the comparisons of a selection, and what their sources said."""
    condition, values = selection.where()
    by_category = selection.slice is not None and selection.slice.by == "category"
    categories = f"LEFT JOIN {CATEGORIES} g ON g.prompt_id = p.prompt_id" if by_category else ""
    query = _SELECTED.format(categories=categories, condition=condition)
    pages = _numbered(workspace, scratch, query, **values)
    scratch.copy(workspace, f"{PLACES}_voices", _SAID)
    scratch.db.execute(
        f"""CREATE OR REPLACE TABLE {PLACES}_said AS SELECT item, judgment_id
            FROM {PLACES}_voices JOIN {PLACES} USING (comparison_id) ORDER BY item"""
    )
    scratch.db.execute(f"DROP TABLE {PLACES}_voices")
    return pages


def _numbered(workspace: Workspace, scratch: Scratch, query: str, **values: Any) -> PairPages:
    with workspace.store.unit() as store:
        store.execute(f"CREATE OR REPLACE TEMP TABLE chosen AS {query}", values)
        for row, table, key, reference in _TEXT_ROWS:
            store.execute(
                f"""CREATE OR REPLACE TEMP TABLE chosen_{row} AS SELECT x.place, t.rowid AS {row}
                    FROM chosen x JOIN comparisons c ON c.rowid = x.place JOIN {table} t ON t.{key} = c.{reference}"""
            )
        joins = " ".join(f"JOIN chosen_{row} USING (place)" for row, *_ in _TEXT_ROWS)
        scratch.fill(f"{PLACES}_found", store.sql(f"SELECT * FROM chosen {joins}"))
    scratch.db.execute(
        f"""CREATE OR REPLACE TABLE {PLACES} AS
            SELECT row_number() OVER (ORDER BY place) - 1 AS item, * FROM {PLACES}_found ORDER BY place"""
    )
    scratch.db.execute(f"DROP TABLE {PLACES}_found")
    return PairPages(workspace, scratch, scratch.number(f"SELECT count(*) FROM {PLACES}"))


def candidates_of(shard: pa.Table) -> list[Candidate]:
    """The comparisons of a shard of `PairPages.shards`, without what their sources noted (`meta`)."""
    return [candidate_of(**{**row, "source_judgments": row["source_judgments"] or ()}) for row in shard.to_pylist()]


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
