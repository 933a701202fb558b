"""Comparisons for curation: texts, the label in force and the label of their sources.

Covers: paging through a selection with short units of work, so that others can use the store meanwhile. Leaves
out: deciding (the rules beside this module).
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from assay.browsing.chosen import ANSWERED, ASKED, DECIDED, SAID, choose
from assay.conversation.message import stored_prompt, stored_response
from assay.data.snapshots import CATEGORIES, Selection
from assay.domain import Prompt, Response
from assay.store.database import Connection
from assay.workspace import Workspace

Label: TypeAlias = Literal["A", "B", "tie"]
PAGE = 1_000
MOST = 8 * PAGE  #: comparisons looked at in one unit of work: each looks through narrow columns of the whole store

# Of the comparisons in `chosen`, as the view pools has them.
_CHOSEN_QUERY = f"""
    WITH decided AS ({DECIDED}), said AS ({SAID}), asked AS ({ASKED}), answered AS ({ANSWERED}),
    met AS (SELECT comparison_id, min(meta::VARCHAR) AS meta
            FROM origins SEMI JOIN chosen USING (comparison_id) WHERE meta IS NOT NULL GROUP BY comparison_id)
    SELECT c.comparison_id, p.messages, p.conversation, c.response_a, c.response_b,
           a.content, a.turns, b.content, b.turns, coalesce(d.pool, 'unverified'),
           CASE WHEN d.pool IS NULL THEN s.label WHEN d.pool = 'pending' THEN coalesce(d.label, s.label)
                ELSE d.label END, s.label, m.meta,
           coalesce(s.judgments, [])
    FROM chosen c
    JOIN asked p ON p.prompt_id = c.prompt_id
    JOIN answered a ON a.response_id = c.response_a
    JOIN answered b ON b.response_id = c.response_b
    LEFT JOIN decided ON decided.comparison_id = c.comparison_id
    LEFT JOIN said s ON s.comparison_id = c.comparison_id
    LEFT JOIN met m ON m.comparison_id = c.comparison_id ORDER BY c.comparison_id"""
# Those of a range of ids that match.
_MATCHES = """
    SELECT p.comparison_id FROM pools p {grouped}
    WHERE {condition} AND p.comparison_id BETWEEN $first AND $last"""
# The next comparisons, whatever pool they are in. Between two ids the views look at that range alone; without the upper
# one every page would cost a look at the whole store.
_RANGE = """
    SELECT min(comparison_id), max(comparison_id) FROM (
        SELECT comparison_id FROM comparisons WHERE comparison_id > $after ORDER BY comparison_id LIMIT $span)"""
_GROUPED = f"LEFT JOIN {CATEGORIES} g ON g.prompt_id = p.prompt_id"


@dataclass(frozen=True, slots=True)
class Candidate:
    """One comparison in canonical order. `label` is the decision's, or the source's for unverified and pending
    comparisons."""

    comparison_id: str
    prompt: Prompt
    response_a_id: str
    response_b_id: str
    response_a: Response
    response_b: Response
    pool: str
    label: Label | None
    source_label: Label | None  #: what its sources say, where they agree
    meta: dict[str, Any]
    source_judgments: tuple[str, ...] = ()  #: ids of what its sources say


def iter_candidates(workspace: Workspace, selection: Selection, *, page: int = PAGE) -> Iterator[list[Candidate]]:
    """Pages of candidates in the order of their ids. Decisions made between two pages do not disturb the paging."""
    condition, values = selection.where()
    by_category = selection.slice is not None and selection.slice.by == "category"
    query = _MATCHES.format(grouped=_GROUPED if by_category else "", condition=condition)
    after, span, held = "", max(page, PAGE), []
    while True:
        with workspace.store.unit() as db:
            ((first, last),) = db.execute(_RANGE, {"after": after, "span": span}).fetchall()
            if last is not None:
                matches = db.execute(query, {**values, "first": first, "last": last}).fetchall()
                if matches and choose(db, [row[0] for row in matches]):
                    held += db.execute(_CHOSEN_QUERY).fetchall()
        span = min(2 * span, max(page, MOST))
        while len(held) >= page or (held and last is None):
            yield [candidate_of(*row) for row in held[:page]]
            held = held[page:]
        if last is None:
            return
        after = last


def candidates_by_id(workspace: Workspace, comparison_ids: Sequence[str]) -> list[Candidate]:
    """Those comparisons, in the given order, whatever pool they are in; unknown ids are left out."""
    if not comparison_ids:
        return []
    with workspace.store.unit() as db:
        rows = db.execute(_CHOSEN_QUERY).fetchall() if choose(db, comparison_ids) else []
    candidates = {row[0]: candidate_of(*row) for row in rows}
    return [candidates[comparison] for comparison in comparison_ids if comparison in candidates]


def candidate_of(
    comparison_id: str,
    messages: list[dict[str, str]],
    conversation: str | None,
    response_a: str,
    response_b: str,
    a: str,
    a_turns: str | None,
    b: str,
    b_turns: str | None,
    pool: str,
    label: Label | None,
    source_label: Label | None,
    meta: str | None = None,
    source_judgments: Sequence[str] = (),
) -> Candidate:
    """From columns of the store; `a`, `b`: the text views of the responses with these ids."""
    return Candidate(
        comparison_id,
        stored_prompt(messages, conversation),
        response_a,
        response_b,
        stored_response(a, a_turns),
        stored_response(b, b_turns),
        pool,
        label,
        source_label,
        json.loads(meta) if meta else {},
        tuple(source_judgments),
    )


def decided_meanwhile(db: Connection, candidates: Sequence[Candidate]) -> set[str]:
    """Ids of those put into another pool since they were read: that decision stands."""
    rows = db.execute(
        """SELECT comparison_id, arg_max(pool, position)
           FROM decisions JOIN (SELECT unnest($read) AS comparison_id) USING (comparison_id) GROUP BY ALL""",
        {"read": [candidate.comparison_id for candidate in candidates]},
    ).fetchall()
    pools = dict(rows)
    return {c.comparison_id for c in candidates if pools.get(c.comparison_id, "unverified") != c.pool}


def count_candidates(workspace: Workspace, selection: Selection) -> int:
    condition, values = selection.where()
    with workspace.store.unit() as db:
        row = db.execute(
            f"""SELECT count(*) FROM pools p
                LEFT JOIN {CATEGORIES} g
                    ON g.prompt_id = p.prompt_id
                WHERE {condition}""",
            values,
        ).fetchone()
    return int(row[0]) if row else 0
