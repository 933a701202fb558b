"""Comparisons with what their annotators said: for losses that learn from ties and from split opinions.

Covers: a snapshot's comparisons, ties included, with the standing judgments counted; the same from JSON Lines files
(pairs with `votes`, and the normalised form's `ratings.votes`). Leaves out: decided pairs alone (`assay.data.pairs`),
what probability votes amount to (the objective's matter).

Votes are one an annotator and standing judgment. A data set's own label counts as one vote only where nobody else
judged: usually it IS the others' vote. Judges that repeat recorded votes, and the single samples of a judge, do not
count.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from assay.conversation.message import stored_prompt, stored_response
from assay.data.conversation import ResponseForm, prompt_turns, response_form_of, row_turns, split_pair
from assay.data.json_lines import RowError
from assay.data.pairs import from_snapshot_or_file
from assay.data.row_files import number_of, read_rows
from assay.domain import Comparison, Prompt, Response, prompt_of, response_of
from assay.workspace import Workspace

Outcome = Literal["first", "second", "tie"]
_OUTCOMES: Mapping[object, Outcome] = {
    "A": "first",
    "B": "second",
    "first": "first",
    "second": "second",
    "tie": "tie",
    "both_good": "tie",
    "both_bad": "tie",
}


@dataclass(frozen=True, slots=True)
class Votes:
    """How many said what; `skip` is no vote."""

    first: float = 0.0
    second: float = 0.0
    ties: float = 0.0

    @property
    def total(self) -> float:
        return self.first + self.second + self.ties


@dataclass(frozen=True, slots=True)
class VotedPair:
    """One comparison: two responses, the label if it has one, and the votes (the label's own where nobody voted)."""

    prompt: Prompt
    first: Response
    second: Response
    label: Outcome | None
    votes: Votes
    comparison_id: str = ""
    margin: float | None = None
    weight: float = 1.0
    source: str = ""
    category: str = ""


def load_voted_pairs(workspace: Workspace | None, data: str | Path) -> list[VotedPair]:
    """`data` names a snapshot or a file; a snapshot comes first. Raises NotFoundError for neither."""
    return from_snapshot_or_file(workspace, data, snapshot_votes, read_voted_pairs)


def snapshot_votes(workspace: Workspace, name: str) -> list[VotedPair]:
    """The snapshot's comparisons, ties included, ordered by comparison id; first and second are A and B.

    Votes are those standing now, which may be more than when the snapshot was taken; its labels do not change.
    """
    from assay.data.snapshots import get_snapshot

    snapshot = get_snapshot(workspace, name)
    with workspace.store.unit() as db:
        rows = db.execute(
            """WITH items AS (SELECT * FROM snapshot_items WHERE snapshot_id = ?),
               said AS (
                   SELECT o.comparison_id, n.kind = 'source' AS is_source,
                          CASE WHEN o.answer IN ('A', 'B') THEN o.answer ELSE 'tie' END AS answer
                   FROM opinions o JOIN annotators n USING (annotator_id)
                   WHERE o.answer <> 'skip' AND json_extract(n.config, '$.recorded') IS NULL
                     AND o.comparison_id IN (SELECT comparison_id FROM items)),
               counted AS (
                   SELECT comparison_id, is_source, count(*) FILTER (answer = 'A') AS a,
                          count(*) FILTER (answer = 'B') AS b, count(*) FILTER (answer = 'tie') AS ties
                   FROM said GROUP BY comparison_id, is_source
                   QUALIFY row_number() OVER (PARTITION BY comparison_id ORDER BY is_source) = 1)
               SELECT pr.messages, pr.conversation, a.content, a.turns, b.content, b.turns,
                      i.label, i.comparison_id, i.margin, i.weight,
                      coalesce(v.a, 0), coalesce(v.b, 0), coalesce(v.ties, 0),
                      coalesce(o.source, ''), coalesce(o.category, '')
               FROM items i
               JOIN comparisons c USING (comparison_id)
               JOIN prompts pr USING (prompt_id)
               JOIN responses a ON a.response_id = c.response_a
               JOIN responses b ON b.response_id = c.response_b
               LEFT JOIN counted v USING (comparison_id)
               LEFT JOIN (SELECT comparison_id, min(o).source AS source, min(o).category AS category
                          FROM (SELECT comparison_id, {'source': source, 'category': category} AS o FROM origins
                                WHERE comparison_id IN (SELECT comparison_id FROM items))
                          GROUP BY comparison_id) o USING (comparison_id)
               ORDER BY i.comparison_id""",
            [snapshot.id],
        ).fetchall()
    pairs = []
    for messages, conversation, first, first_turns, second, second_turns, label, comparison, *columns in rows:
        margin, weight, a, b, ties, source, category = columns
        outcome = _OUTCOMES[label]
        votes = Votes(a, b, ties) if a + b + ties else _votes_of(outcome)
        pairs.append(
            VotedPair(
                stored_prompt(messages, conversation),
                stored_response(first, first_turns),
                stored_response(second, second_turns),
                outcome,
                votes,
                comparison,
                margin,
                weight,
                source,
                category,
            )
        )
    return pairs


def read_voted_pairs(path: str | Path) -> list[VotedPair]:
    """Every comparison of the file that has a label or votes. Raises BadInputError naming file, row and field.

    Rows: `prompt`, `chosen`, `rejected` and optionally `votes` {"chosen": n, "rejected": n, "tie": n}; or `prompt`,
    `responses` of two, with `label` (A, B or tie), the normalised `ratings.gold`, `ratings.scores`, `ratings.votes`.
    """
    return read_rows(path, _parse, what="comparisons with a label or votes")


def _parse(record: dict[str, Any]) -> list[VotedPair]:
    ratings = record.get("ratings") if isinstance(record.get("ratings"), dict) else {}
    assert isinstance(ratings, dict)
    responses = record.get("responses")
    outcome: Outcome | None
    first: ResponseForm
    second: ResponseForm
    if record.get("chosen") is not None or record.get("rejected") is not None:
        turns, first, second = split_pair(record.get("prompt"), record.get("chosen"), record.get("rejected"))
        outcome = "first"
        if (counts := record.get("votes")) is not None:
            votes = _counted(counts)
        else:
            votes = _votes(ratings, swapped=responses == [second, first], fits=responses in ([first, second], None))
    elif isinstance(responses, list) and len(responses) == 2:
        turns = prompt_turns(record.get("prompt"))
        first, second = (response_form_of(text, "responses") for text in responses)
        outcome, votes = _label(record, ratings), _votes(ratings, swapped=False, fits=True)
    else:
        return []
    if first == second != "" and record.get("chosen") is not None:
        raise RowError("the two sides are identical")
    if first == second or (outcome is None and not votes.total):
        return []
    prompt = prompt_of(row_turns(record, turns, first, second))
    sides = response_of(first), response_of(second)
    margin = record.get("margin")
    return [
        VotedPair(
            prompt,
            *sides,
            outcome,
            votes if votes.total else _votes_of(outcome),
            Comparison.of(prompt, *sides)[0].id,
            None if margin is None else number_of(margin, "margin"),
            source=str(record.get("source") or ""),
            category=str(record.get("category") or ""),
        )
    ]


def _votes_of(outcome: Outcome | None) -> Votes:
    """The label as one vote."""
    return Votes(float(outcome == "first"), float(outcome == "second"), float(outcome == "tie"))


def _counted(counts: object) -> Votes:
    if not isinstance(counts, dict) or not set(counts) <= {"chosen", "rejected", "tie"}:
        raise RowError("not counts of chosen, rejected and tie", field="votes")
    chosen, rejected, ties = (number_of(counts.get(name, 0), "votes") for name in ("chosen", "rejected", "tie"))
    if min(chosen, rejected, ties) < 0:
        raise RowError("a negative count", field="votes")
    return Votes(chosen, rejected, ties)


def _votes(ratings: dict[str, Any], *, swapped: bool, fits: bool) -> Votes:
    """Of `ratings.votes`, whose A and B are responses[0] and [1]; none where it is not known which those are."""
    listed = ratings.get("votes") or []
    if not isinstance(listed, list) or not all(isinstance(vote, dict) for vote in listed):
        raise RowError("wrong type: not a list of objects", field="ratings.votes")
    if not (fits or swapped):
        return Votes()
    labels = [vote.get("value") for vote in listed]
    if any(value != "skip" and value not in _OUTCOMES for value in labels):
        raise RowError("a vote that is none of A, B, tie, both_good, both_bad, skip", field="ratings.votes")
    outcomes = [_OUTCOMES[value] for value in labels if value != "skip"]
    first, second = outcomes.count("first"), outcomes.count("second")
    return Votes(second, first, outcomes.count("tie")) if swapped else Votes(first, second, outcomes.count("tie"))


def _label(record: dict[str, Any], ratings: dict[str, Any]) -> Outcome | None:
    for field, value in (("label", record.get("label")), ("ratings.gold", ratings.get("gold"))):
        if value is not None:
            if value not in _OUTCOMES:
                raise RowError("not one of A, B, tie", field=field)
            return _OUTCOMES[value]
    scores = ratings.get("scores")
    if isinstance(scores, list) and len(scores) == 2 and all(isinstance(s, int | float) for s in scores):
        return "tie" if scores[0] == scores[1] else ("first" if scores[0] > scores[1] else "second")
    return None
