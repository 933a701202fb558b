"""Comparisons as pages show them beside what is said of them: texts, cut where they are long, and the label in force.

Leaves out: everything else that is known of a comparison (`assay.browsing.comparison`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.browsing.comparison import ConversationTurn
from assay.browsing.texts import locate

if TYPE_CHECKING:
    import duckdb

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


_CHOSEN = """
    CREATE OR REPLACE TEMP TABLE chosen AS
    SELECT rowid AS place, comparison_id, prompt_id, response_a, response_b FROM comparisons
    WHERE comparison_id IN (SELECT unnest($ids))"""
# Of the large tables the narrow columns are looked through, and the texts of these rows alone are read.
_PAIRS = f"""
    WITH decided AS (
        SELECT comparison_id, arg_max({{'pool': pool, 'label': label, 'rule': rule, 'reason': reason}}, position) AS d
        FROM decisions SEMI JOIN chosen USING (comparison_id) GROUP BY comparison_id),
    said AS (
        SELECT comparison_id, if(min(answer) = max(answer), min(answer), NULL) AS label FROM (
            SELECT comparison_id,
                   CASE WHEN answer IN ('A', 'B') THEN answer WHEN answer <> 'skip' THEN 'tie' END AS answer
            FROM judgments SEMI JOIN chosen USING (comparison_id) JOIN annotators USING (annotator_id)
            WHERE kind = 'source' AND answer <> 'skip'
        ) GROUP BY comparison_id),
    seen AS (
        SELECT comparison_id, list_sort(list(DISTINCT source)) AS sources
        FROM origins SEMI JOIN chosen USING (comparison_id) GROUP BY comparison_id),
    asked AS (SELECT prompt_id, messages FROM prompts WHERE rowid IN (SELECT place FROM at_prompts)),
    answered AS (
        SELECT response_id, content[:{CHARACTERS}] AS content, length(content) AS characters
        FROM responses WHERE rowid IN (SELECT place FROM at_responses))
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


def shown_pairs(db: duckdb.DuckDBPyConnection, comparison_ids: Sequence[str]) -> dict[str, ShownPair]:
    """By id; unknown ids are left out."""
    if not comparison_ids:
        return {}
    db.execute(_CHOSEN, {"ids": list(dict.fromkeys(comparison_ids))})
    ((low, high, total),) = db.execute(
        "SELECT min(place), max(place), (SELECT count(*) FROM comparisons) FROM chosen"
    ).fetchall()
    if low is None:
        return {}
    span = (low / total, (high + 1) / total)
    locate(db, "prompts", "SELECT DISTINCT prompt_id FROM chosen", span)
    locate(db, "responses", "SELECT response_a FROM chosen UNION SELECT response_b FROM chosen", span)
    found = db.execute(_PAIRS).fetchall()
    return {comparison: ShownPair(comparison, _cut(messages), *rest) for comparison, messages, *rest in found}


def _cut(messages: Sequence[dict[str, str]]) -> list[ConversationTurn]:
    return [ConversationTurn(message["role"], message["content"][:CHARACTERS]) for message in messages]
