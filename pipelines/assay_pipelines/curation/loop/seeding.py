"""Where a loop begins: a small part of the pool, spread over its categories.

Covers: the choice, by a hash of a seed and the comparison, so that it needs no random state. Leaves out: who is asked.
"""

from __future__ import annotations

from assay.data.snapshots import CATEGORIES, Selection
from assay.workspace import Workspace


def choose_seed(workspace: Workspace, selection: Selection, size: int, *, seed: int) -> list[str]:
    """Up to `size` comparison ids: the categories take turns, and so do the prompts of one category."""
    condition, values = selection.where()
    with workspace.store.unit() as db:
        rows = db.execute(
            f"""WITH pool AS (
                    SELECT p.comparison_id, p.prompt_id, coalesce(g.category, '') AS category,
                           sha256($seed || chr(31) || p.comparison_id) AS draw
                    FROM pools p LEFT JOIN {CATEGORIES} g ON g.prompt_id = p.prompt_id WHERE {condition}
                ), turns AS (
                    SELECT *, row_number() OVER (PARTITION BY category, prompt_id ORDER BY draw) AS of_prompt FROM pool
                )
                SELECT comparison_id FROM (
                    SELECT comparison_id, draw,
                           row_number() OVER (PARTITION BY category ORDER BY of_prompt, draw) AS turn FROM turns
                ) ORDER BY turn, draw LIMIT $size""",
            {**values, "seed": str(seed), "size": size},
        ).fetchall()
    return [row[0] for row in rows]
