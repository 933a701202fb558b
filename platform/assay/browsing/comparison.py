"""All that the store knows of one comparison: texts, origins, judgments and other labels, scores, decisions.

Covers: reading it in one unit of work, everything in the comparison's own order (A and B as in the store), times in
ISO 8601. Leaves out: finding comparisons (`assay.browsing.page`), lineage (`assay.runs.lineage`).
"""

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from assay.browsing.messages import ShownMessage, shown_messages, shown_turns
from assay.conversation.message import stored_prompt, stored_response
from assay.errors import NotFoundError
from assay.store.database import Connection

Side = Literal["A", "B"]
R = TypeVar("R")
MARKED_CHARACTERS = 400  #: of a step or span that a record quotes


@dataclass(frozen=True, slots=True)
class ResponseText:
    """`content`: its text view. `turns`: of a response that is more than text."""

    response_id: str
    content: str
    turns: list[ShownMessage] | None


@dataclass(frozen=True, slots=True)
class OriginRecord:
    """Where the comparison was seen. `meta`: JSON, as the source had it."""

    source: str
    record_id: str
    category: str | None
    license: str | None
    language: str | None
    meta: str | None
    run_id: str | None


@dataclass(frozen=True, slots=True)
class JudgmentRecord:
    """One judgment, withdrawn ones included. `vote`: one of several samples behind a judge's opinion."""

    judgment_id: str
    annotator_id: str
    annotator: str
    kind: str
    answer: str
    strength: int | None
    confidence: float | None
    rationale: str | None
    shown_order: str | None
    seconds: float | None
    origin: str
    vote: bool
    run_id: str | None
    created_at: str
    withdrawn_at: str | None
    withdrawn_reason: str | None


@dataclass(frozen=True, slots=True)
class LabelRecord:
    """A label of one response (`aspect`: a rating, binary label or recorded score), of one of its steps (`step`, from
    0), or of words in it. `words`: the beginning of what is marked. `value` null: none, or the annotator could not say.
    `low`, `high`: the ends of the scale, where known."""

    side: Side
    judgment_id: str
    annotator: str
    kind: str
    aspect: str | None
    step: int | None
    label: str | None
    words: str | None
    value: float | None
    low: float | None
    high: float | None
    rationale: str | None
    origin: str
    run_id: str | None
    created_at: str
    withdrawn_at: str | None
    withdrawn_reason: str | None


@dataclass(frozen=True, slots=True)
class RankingRecord:
    """Where a ranking of the prompt's responses has these two; 1 is the best, equal places are ties."""

    annotator: str
    kind: str
    origin: str
    responses: int
    place_a: int
    place_b: int
    created_at: str


@dataclass(frozen=True, slots=True)
class ScoreRecord:
    """Either `reward` or `error` is there. `principle`: "" for a score of the whole response."""

    side: Side
    model: str
    model_version: str
    template_hash: str
    principle: str
    reward: float | None
    probability: float | None
    uncertainty: float | None
    tokens: int | None
    truncated: bool | None
    error: str | None
    run_id: str | None
    created_at: str


@dataclass(frozen=True, slots=True)
class PrincipleVote:
    """`outcome`: what the last filter run concluded of it, "kept" or the stage that dropped it, and why."""

    side: Side
    judgment_id: str
    principle: str
    annotator: str
    kind: str
    answer: str
    evidence: str | None
    extractor: str | None
    outcome: str | None
    outcome_reason: str | None
    run_id: str | None


@dataclass(frozen=True, slots=True)
class FeedbackText:
    side: Side
    feedback_id: str
    annotator: str
    kind: str
    content: str


@dataclass(frozen=True, slots=True)
class ResponseCheck:
    """What a model or verifier said of one response's correctness."""

    side: Side
    annotator: str
    kind: str
    verdict: str
    reason: str | None


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """`decision_id`: "d-" and its position; the last one is in force."""

    decision_id: str
    iteration: int
    pool: str
    label: str | None
    margin: float | None
    rule: str
    reason: str
    run_id: str | None
    created_at: str


@dataclass(frozen=True, slots=True)
class AttributeRecord:
    """`value`: JSON."""

    annotator: str
    name: str
    value: str


@dataclass(frozen=True, slots=True)
class SnapshotHolding:
    """A snapshot that holds the comparison, and what as."""

    snapshot_id: str
    snapshot: str
    label: str
    pool: str
    weight: float


@dataclass(frozen=True, slots=True)
class BenchmarkOverlap:
    """ResponseText that the prompt shares with a benchmark."""

    benchmark: str
    benchmark_prompt_id: str
    overlap: str
    ngrams: int


@dataclass(frozen=True, slots=True)
class ComparisonRecord:
    """`pool`, `label`: as now in force; the sources' own label where nobody has decided."""

    comparison_id: str
    prompt_id: str
    prompt: list[ShownMessage]
    a: ResponseText
    b: ResponseText
    pool: str
    label: str | None
    source_label: str | None
    run_id: str | None
    origins: list[OriginRecord]
    judgments: list[JudgmentRecord]
    labels: list[LabelRecord]
    rankings: list[RankingRecord]
    scores: list[ScoreRecord]
    principle_votes: list[PrincipleVote]
    feedback: list[FeedbackText]
    checks: list[ResponseCheck]
    decisions: list[DecisionRecord]
    attributes: list[AttributeRecord]
    snapshots: list[SnapshotHolding]
    overlaps: list[BenchmarkOverlap]


def _rows(table: str, condition: str) -> str:
    """SQL: the rows of a table that grows with the data, found by the condition's narrow columns, then read whole."""
    return f"(SELECT * FROM {table} WHERE rowid IN (SELECT rowid FROM {table} WHERE {condition}))"


_SIDE = "if(response_id = $a, 'A', 'B') AS side"
_OF_COMPARISON, _OF_RESPONSE = "comparison_id = $id", "response_id IN ($a, $b)"


def _queries() -> dict[str, str]:
    """Of `comparison.toml`."""
    text = Path(__file__).with_name("comparison.toml").read_text(encoding="utf-8")
    text = text.replace("{side}", _SIDE).replace("{marked}", str(MARKED_CHARACTERS))
    text = re.sub(r"\{time (.+?)\}", r"strftime(\1, '%Y-%m-%dT%H:%M:%SZ')", text)  # units of work are at UTC
    for name, condition in (("of_comparison", _OF_COMPARISON), ("of_response", _OF_RESPONSE)):
        text = re.sub(rf"\{{{name} (\w+)\}}", _rows(r"\1", condition), text)
    return tomllib.loads(text)


_QUERIES = _queries()


def comparison(db: Connection, comparison_id: str) -> ComparisonRecord:
    """Raises NotFoundError."""
    row = db.execute(
        f"SELECT prompt_id, response_a, response_b, run_id FROM {_rows('comparisons', _OF_COMPARISON)}",
        {"id": comparison_id},
    ).fetchone()
    if row is None:
        raise NotFoundError(f"there is no comparison {comparison_id!r}")
    prompt_id, a, b, run_id = row
    parameters = {"id": comparison_id, "prompt": prompt_id, "a": a, "b": b}
    texts = {
        response_id: ResponseText(response_id, content, shown_turns(stored_response(content, turns)))
        for response_id, content, turns in db.execute(
            f"SELECT response_id, content, turns FROM {_rows('responses', _OF_RESPONSE)}", {"a": a, "b": b}
        ).fetchall()
    }
    prompts = db.execute(
        f"SELECT messages, conversation FROM {_rows('prompts', 'prompt_id = $prompt')}", {"prompt": prompt_id}
    ).fetchall()
    judgments = _records(db, JudgmentRecord, parameters)
    decisions = _records(db, DecisionRecord, parameters)
    source_label = _source_label(judgments)
    return ComparisonRecord(
        comparison_id,
        prompt_id,
        [turn for stored in prompts for turn in shown_messages(stored_prompt(*stored))],
        texts.get(a) or ResponseText(a, "", None),
        texts.get(b) or ResponseText(b, "", None),
        decisions[-1].pool if decisions else "unverified",
        decisions[-1].label if decisions else source_label,
        source_label,
        run_id,
        _records(db, OriginRecord, parameters),
        judgments,
        _records(db, LabelRecord, parameters),
        _records(db, RankingRecord, parameters),
        _records(db, ScoreRecord, parameters),
        _records(db, PrincipleVote, parameters),
        _records(db, FeedbackText, parameters),
        _records(db, ResponseCheck, parameters),
        decisions,
        _records(db, AttributeRecord, parameters),
        _records(db, SnapshotHolding, parameters),
        _records(db, BenchmarkOverlap, parameters),
    )


def _records(db: Connection, record: type[R], parameters: dict[str, str]) -> list[R]:
    """The rows of the record's query, whose columns are the record's fields in their order."""
    query = _QUERIES[record.__name__]
    values = {name: value for name, value in parameters.items() if f"${name}" in query}
    return [record(*row) for row in db.execute(query, values).fetchall()]


def _source_label(judgments: list[JudgmentRecord]) -> str | None:
    """As the view `source_labels` has it: where all statements of sources agree."""
    labels = {
        j.answer if j.answer in ("A", "B") else "tie" for j in judgments if j.kind == "source" and j.answer != "skip"
    }
    return labels.pop() if len(labels) == 1 else None
