"""What snapshots compute in SQL is what it stands for: the digest of their rows, slices by a hash of the prompt."""

from __future__ import annotations

import hashlib
import re

import pyarrow as pa

from assay import ids
from assay.data.snapshots import HashSlice, Selection, create_snapshot
from assay.store.intake import pair_schema, store_pairs
from assay.store.records import Decision, insert_decisions
from assay.workspace import Workspace

ODD_PROMPTS = [
    "Why?",
    "why?",
    " WHY? ",
    "why?\n",
    "a\tb",
    "a b",
    "A  b",
    "a\u00a0b",
    "naïve \f x",
    "NAÏVE x",
    "a\r\n\nb",
]


def fill(workspace: Workspace) -> None:
    rows = [
        {
            "row": n,
            "messages": [{"role": "user", "content": prompt}],
            "first": f"yes {n}",
            "second": f"no {n}",
            "label": "first",
            "strength": n % 4 if n % 5 else None,
            "source": "s",
            "record_id": str(n),
            "category": "abc"[n % 3],
        }
        for n, prompt in enumerate([*ODD_PROMPTS, *(f"question {n}" for n in range(100))])
    ]
    with workspace.store.unit() as db:
        store_pairs(db, pa.Table.from_pylist(rows, schema=pair_schema()), "run-1")
        chosen = db.execute("SELECT comparison_id FROM comparisons ORDER BY 1 LIMIT 6").fetchall()
        margins = (0.1 + 0.2, 1e-7, 1e20, -0.0, 123456.789, None)
        decisions = [Decision(c, "gold", "A", "r", "x", margin) for (c,), margin in zip(chosen, margins, strict=True)]
        insert_decisions(db, decisions, "run-1")


def test_the_content_hash_is_of_the_rows(workspace: Workspace) -> None:
    fill(workspace)
    snapshot = create_snapshot(workspace, "all", Selection(), None)
    with workspace.store.unit() as db:
        items = db.execute(
            """SELECT comparison_id, label, margin, weight, pool FROM snapshot_items ORDER BY comparison_id"""
        ).fetchall()
    assert len(items) == snapshot.items == 111
    assert snapshot.content_hash == ids.rows_digest(items)


def test_a_slice_is_by_the_hash_of_its_prompt(workspace: Workspace) -> None:
    fill(workspace)
    part = HashSlice(0.15, 0.65, seed=7)
    create_snapshot(workspace, "part", Selection(slice=part), None)
    with workspace.store.unit() as db:
        query = "SELECT DISTINCT messages[1].content FROM comparisons JOIN prompts USING (prompt_id) {}"
        inside = db.execute(query.format("JOIN snapshot_items USING (comparison_id)")).fetchall()
        prompts = db.execute(query.format("")).fetchall()

    def fraction(prompt: str) -> float:
        same = re.sub("[ \t\n\f\r]+", " ", f"user\x1f{prompt}").lower().strip(" ")
        return int(hashlib.sha256(f"7\x1f{same}".encode()).hexdigest()[:12], 16) / 16**12

    expected = {prompt for (prompt,) in prompts if part.low <= fraction(prompt) < part.high}
    assert {prompt for (prompt,) in inside} == expected
    assert 30 < len(expected) < 80
