"""Comparisons as pages show them beside what is said of them: texts, cut where they are long, and the label in force.

Leaves out: everything else that is known of a comparison (`assay.browsing.comparison`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

CHARACTERS = 4_000  #: of a text that are shown


@dataclass(frozen=True, slots=True)
class ShownTurn:
    """A message of a prompt, cut."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class ShownPair:
    """A comparison in its own order. `pool`, `label`: as now in force; `source_label`: where its sources agree.
    `reason`: of the decision in force. `characters_a`, `characters_b`: of the whole responses."""

    comparison_id: str
    prompt: list[ShownTurn]
    response_a: str
    response_b: str
    characters_a: int
    characters_b: int
    pool: str
    label: str | None
    source_label: str | None
    rule: str | None
    reason: str | None
    sources: list[str]


_PAIRS = f"""
    WITH chosen AS (SELECT * FROM comparisons WHERE list_contains($ids, comparison_id)),
    decided AS (
        SELECT comparison_id, arg_max({{'pool': pool, 'label': label, 'rule': rule, 'reason': reason}}, position) AS d
        FROM decisions WHERE list_contains($ids, comparison_id) GROUP BY comparison_id),
    said AS (
        SELECT comparison_id, if(min(answer) = max(answer), min(answer), NULL) AS label FROM (
            SELECT comparison_id,
                   CASE WHEN answer IN ('A', 'B') THEN answer WHEN answer <> 'skip' THEN 'tie' END AS answer
            FROM judgments JOIN annotators USING (annotator_id)
            WHERE kind = 'source' AND answer <> 'skip' AND list_contains($ids, comparison_id)
        ) GROUP BY comparison_id),
    seen AS (
        SELECT comparison_id, list_sort(list(DISTINCT source)) AS sources
        FROM origins WHERE list_contains($ids, comparison_id) GROUP BY comparison_id)
    SELECT c.comparison_id, p.messages, a.content[:{CHARACTERS}], b.content[:{CHARACTERS}],
           length(a.content), length(b.content), coalesce(d.pool, 'unverified'),
           if(d IS NULL, s.label, d.label), s.label, d.rule, d.reason, coalesce(o.sources, [])
    FROM chosen c
    JOIN prompts p ON p.prompt_id = c.prompt_id
    JOIN responses a ON a.response_id = c.response_a
    JOIN responses b ON b.response_id = c.response_b
    LEFT JOIN decided ON decided.comparison_id = c.comparison_id
    LEFT JOIN said s ON s.comparison_id = c.comparison_id
    LEFT JOIN seen o ON o.comparison_id = c.comparison_id"""


def shown_pairs(db: duckdb.DuckDBPyConnection, comparison_ids: Sequence[str]) -> dict[str, ShownPair]:
    """By id; unknown ids are left out."""
    if not comparison_ids:
        return {}
    rows = db.execute(_PAIRS, {"ids": list(dict.fromkeys(comparison_ids))}).fetchall()
    return {
        comparison: ShownPair(comparison, [ShownTurn(m["role"], m["content"][:CHARACTERS]) for m in messages], *rest)
        for comparison, messages, *rest in rows
    }
