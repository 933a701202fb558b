"""Deduplication: the same pair written differently is kept once; pairs that sources label oppositely are set aside.

Covers: equality after normalisation (Unicode form, case, white space) of prompt and both responses; contradictions
between source labels of one pair or of its duplicates, with the evidence. Exact duplicates never arise: ids are
content hashes, so the import counted them as known; `exact_repeats` tells how many. Leaves out: near-duplicates.

Order: contradictions first, so that what is kept of a group has the label all its members agree on. Pool gold is
left alone and preferred as the one kept. Running twice changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay_pipelines.normalisation import same_prompt, same_text

if TYPE_CHECKING:
    import duckdb


@dataclass(frozen=True)
class DedupCounts:
    """`exact_repeats`: rows of the imports that were a comparison already there. The others: discarded now."""

    exact_repeats: int
    contradictions: int
    duplicates: int


# Comparisons still in play, the normalised pair as a key, and which side a source prefers as a hash of its text.
_GROUPS = f"""
    CREATE OR REPLACE TEMP TABLE pair_groups AS
    WITH live AS (
        SELECT c.comparison_id, c.prompt_id, p.pool, p.label, c.response_a, c.response_b
        FROM comparisons c JOIN pools p USING (comparison_id) WHERE p.pool <> 'discarded'
    ), texts AS (
        SELECT comparison_id, pool, label, sha256({same_prompt("pr.messages")}) AS prompt_key,
               sha256({same_text("a.content")}) AS a_key, sha256({same_text("b.content")}) AS b_key
        FROM live l JOIN prompts pr USING (prompt_id)
        JOIN responses a ON a.response_id = l.response_a
        JOIN responses b ON b.response_id = l.response_b
    )
    SELECT *, sha256(prompt_key || least(a_key, b_key) || greatest(a_key, b_key)) AS pair_key FROM texts"""

_EVIDENCE = """
    CREATE OR REPLACE TEMP TABLE preferences AS
    SELECT g.pair_key, g.comparison_id, if(j.answer = 'A', g.a_key, g.b_key) AS preferred,
           n.name || ' prefers ' || j.answer || ' of ' || g.comparison_id AS statement
    FROM pair_groups g JOIN judgments j USING (comparison_id) JOIN annotators n USING (annotator_id)
    WHERE n.kind = 'source' AND j.answer IN ('A', 'B')"""

_CONTRADICTIONS = """
    INSERT INTO decisions (comparison_id, pool, rule, reason, run_id)
    SELECT g.comparison_id, 'discarded', 'contradiction', e.reason, $run
    FROM pair_groups g JOIN (
        SELECT pair_key,
               'opposite labels: ' || array_to_string((list_sort(list(DISTINCT statement)))[:6], '; ') AS reason
        FROM preferences GROUP BY pair_key HAVING min(preferred) <> max(preferred)
    ) e USING (pair_key)
    WHERE g.pool NOT IN ('gold', 'silver')
      AND NOT EXISTS (SELECT 1 FROM decisions d WHERE d.comparison_id = g.comparison_id AND d.rule = 'contradiction')"""

_DUPLICATES = """
    INSERT INTO decisions (comparison_id, pool, rule, reason, run_id)
    SELECT comparison_id, 'discarded', 'duplicate', 'same as ' || kept || ' but for case or white space', $run
    FROM (
        SELECT *, first_value(comparison_id) OVER rank AS kept, row_number() OVER rank AS place FROM pair_groups g
        WHERE NOT EXISTS (SELECT 1 FROM decisions d WHERE d.comparison_id = g.comparison_id AND d.rule = 'duplicate')
          AND NOT EXISTS (SELECT 1 FROM current_decisions d
                          WHERE d.comparison_id = g.comparison_id AND d.pool = 'discarded')
        WINDOW rank AS (PARTITION BY pair_key ORDER BY
            CASE pool WHEN 'gold' THEN 0 WHEN 'silver' THEN 1 ELSE 2 END, label IS NULL, comparison_id)
    ) WHERE place > 1 AND pool <> 'gold'"""


def dedup(db: duckdb.DuckDBPyConnection, run_id: str | None) -> DedupCounts:
    """Write the decisions inside the caller's unit."""
    repeats = _number(db, "SELECT (SELECT count(*) FROM origins) - (SELECT count(DISTINCT comparison_id) FROM origins)")
    db.execute(_GROUPS)
    db.execute(_EVIDENCE)
    contradictions = _number(db, _CONTRADICTIONS, {"run": run_id})
    duplicates = _number(db, _DUPLICATES, {"run": run_id})
    db.execute("DROP TABLE preferences; DROP TABLE pair_groups")
    return DedupCounts(repeats, contradictions, duplicates)


def _number(db: duckdb.DuckDBPyConnection, query: str, values: dict[str, str | None] | None = None) -> int:
    row = db.execute(query, values).fetchone()
    return int(row[0]) if row else 0
