"""Comparisons as pages show them: texts, cut where they are long, and the label in force.

Leaves out: everything else that is known of a comparison (`assay.browsing.comparison`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from assay.browsing.chosen import ANSWERED, ASKED, DECIDED, SAID, choose
from assay.browsing.messages import ConversationTurn
from assay.store.database import Connection

CHARACTERS = 4_000  #: of a text that are shown


@dataclass(frozen=True, slots=True)
class ShownPair:
    """A comparison in its own order. `pool`, `label`: as now in force; `source_label`: where its sources agree.
    `reason`: of the decision in force. `characters_a`, `characters_b`: of the whole responses."""

    comparison_id: str
    prompt: list[ConversationTurn]
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
    WITH decided AS ({DECIDED}), said AS ({SAID}),
    seen AS (
        SELECT comparison_id, list_sort(list(DISTINCT source)) AS sources
        FROM origins SEMI JOIN chosen USING (comparison_id) GROUP BY comparison_id),
    asked AS ({ASKED}),
    answered AS (
        SELECT response_id, content[:{CHARACTERS}] AS content, length(content) AS characters FROM ({ANSWERED}))
    SELECT c.comparison_id, p.messages, a.content, b.content, a.characters, b.characters,
           coalesce(d.pool, 'unverified'), if(d IS NULL, s.label, d.label), s.label, d.rule, d.reason,
           coalesce(o.sources, [])
    FROM chosen c
    JOIN asked p ON p.prompt_id = c.prompt_id
    JOIN answered a ON a.response_id = c.response_a
    JOIN answered b ON b.response_id = c.response_b
    LEFT JOIN decided ON decided.comparison_id = c.comparison_id
    LEFT JOIN said s ON s.comparison_id = c.comparison_id
    LEFT JOIN seen o ON o.comparison_id = c.comparison_id"""


def shown_pairs(db: Connection, comparison_ids: Sequence[str]) -> dict[str, ShownPair]:
    """By id; unknown ids are left out."""
    if not comparison_ids or not choose(db, comparison_ids):
        return {}
    rows = db.execute(_PAIRS).fetchall()
    return {comparison: ShownPair(comparison, _cut(messages), *columns) for comparison, messages, *columns in rows}


def _cut(messages: Sequence[dict[str, str]]) -> list[ConversationTurn]:
    return [ConversationTurn(message["role"], message["content"][:CHARACTERS]) for message in messages]
