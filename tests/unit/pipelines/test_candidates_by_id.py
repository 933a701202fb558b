"""Candidates that are asked for by id are those that a selection's pages have."""

from __future__ import annotations

from collections.abc import Callable

from assay.browsing.candidates import candidates_by_id, iter_candidates
from assay.data.snapshots import POOLS, Selection
from assay.domain import Judgment
from assay.store.records import Decision, insert_annotator, insert_decisions, insert_judgments
from assay.workspace import Workspace


def test_by_id_and_by_page_are_the_same(workspace: Workspace, fill_comparisons: Callable[[int], list[str]]) -> None:
    ids = fill_comparisons(12)
    pools = ("gold", "silver", "discarded", "recycled", "pending", "pending")
    with workspace.store.unit() as db:
        made = [
            Decision(ids[n], pool, "B" if n % 2 else None, "rule", "why")  # type: ignore[arg-type]
            for n, pool in enumerate(pools)
        ]
        insert_decisions(db, [*made, Decision(ids[0], "silver", "tie", "rule", "again")], None)
        other = insert_annotator(db, "source", "contradicts")
        said = [("A", 7, ""), ("B", 7, "x"), ("skip", 8, "")]
        insert_judgments(db, [Judgment(ids[n], other, answer, origin=o) for answer, n, o in said], None)  # type: ignore[arg-type]
        db.execute("UPDATE origins SET meta = '{\"k\": 1}' WHERE comparison_id = ?", [ids[9]])
    paged = {c.comparison_id: c for page in iter_candidates(workspace, Selection(POOLS)) for c in page}
    assert len(paged) == 12
    with workspace.store.unit() as db:
        rows = db.execute(
            """SELECT p.comparison_id, p.pool, if(p.pool = 'pending', coalesce(p.label, s.label), p.label), s.label
               FROM pools p LEFT JOIN source_labels s USING (comparison_id)"""
        ).fetchall()
    assert {(c.comparison_id, c.pool, c.label, c.source_label) for c in paged.values()} == set(rows)
    assert paged[ids[7]].source_label is None
    assert paged[ids[8]].source_label in ("A", "B")
    assert paged[ids[9]].meta == {"k": 1}
    small = [
        c.comparison_id
        for page in iter_candidates(workspace, Selection(("silver", "unverified")), page=3)
        for c in page
    ]
    assert small == sorted(c.comparison_id for c in paged.values() if c.pool in ("silver", "unverified"))
    assert {c.pool for c in paged.values()} == {*pools, "unverified"} - {"gold"}
    asked = [*reversed(ids), "unknown", ids[3]]
    assert candidates_by_id(workspace, asked) == [paged[c] for c in [*reversed(ids), ids[3]]]
    assert candidates_by_id(workspace, ["unknown"]) == candidates_by_id(workspace, []) == []
