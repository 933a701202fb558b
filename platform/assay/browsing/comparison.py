"""All that the store knows of one comparison: texts, origins, judgments and other labels, scores, decisions.

Covers: reading it in one unit of work, everything in the comparison's own order (A and B as in the store), times in
ISO 8601. Leaves out: finding comparisons (`assay.browsing.page`), lineage (`assay.runs.lineage`).
"""

from dataclasses import dataclass
from typing import Any, Literal, TypeVar

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


def _time(column: str) -> str:
    """SQL: the time in ISO 8601. Units of work keep their time zone at UTC."""
    return f"strftime({column}, '%Y-%m-%dT%H:%M:%SZ')"


def _rows(table: str, condition: str) -> str:
    """SQL: the rows of a table that grows with the data, found by the condition's narrow columns, then read whole."""
    return f"(SELECT * FROM {table} WHERE rowid IN (SELECT rowid FROM {table} WHERE {condition}))"


_SIDE = "if(response_id = $a, 'A', 'B') AS side"
_OF_COMPARISON, _OF_RESPONSE = "comparison_id = $id", "response_id IN ($a, $b)"
_QUERIES: dict[type[Any], str] = {
    OriginRecord: f"""SELECT source, record_id, category, license, language, meta::VARCHAR AS meta, run_id
        FROM {_rows("origins", _OF_COMPARISON)} ORDER BY source, record_id""",
    JudgmentRecord: f"""SELECT j.judgment_id, j.annotator_id, n.name AS annotator, n.kind, j.answer, j.strength,
            j.confidence, j.rationale, j.shown_order, j.seconds, j.origin, starts_with(j.origin, 'vote/') AS vote,
            j.run_id, {_time("j.created_at")}, {_time("w.withdrawn_at")}, w.reason AS withdrawn_reason
        FROM {_rows("judgments", _OF_COMPARISON)} j JOIN annotators n USING (annotator_id)
        LEFT JOIN withdrawn_judgments w USING (judgment_id)
        ORDER BY n.kind <> 'source', j.created_at, n.name, vote, j.origin, j.judgment_id""",
    LabelRecord: f"""
        WITH labels AS (FROM {_rows("response_judgments", _OF_RESPONSE)} UNION ALL BY NAME
            FROM {_rows("step_judgments", _OF_RESPONSE)})
        SELECT {_SIDE}, judgment_id, n.name AS annotator, n.kind, aspect, step, label,
            substring(r.content, start + 1, least("end" - start, {MARKED_CHARACTERS})), value, low, high, rationale,
            origin, l.run_id, {_time("l.created_at")}, {_time("w.withdrawn_at")}, w.reason
        FROM labels l JOIN annotators n USING (annotator_id)
        JOIN {_rows("responses", _OF_RESPONSE)} r USING (response_id)
        LEFT JOIN withdrawn_judgments w USING (judgment_id)
        ORDER BY aspect, side, n.name, l.created_at, origin, step, start, judgment_id""",
    RankingRecord: f"""
        WITH said AS (
            SELECT annotator_id, origin, created_at, response_a, response_b, answer
            FROM standing_judgments
            JOIN (SELECT comparison_id, response_a, response_b FROM comparisons WHERE prompt_id = $prompt)
                USING (comparison_id)
            WHERE answer <> 'skip' AND (regexp_matches(origin, '(^|/)ranking(#|$)') OR (annotator_id, origin) IN (
                SELECT (annotator_id, 'queue/' || queue || '/' || attempt) FROM queue_answers
                WHERE item = $prompt AND question = 'ranking'))),
        places AS (
            SELECT annotator_id, origin, response_id, 1 + count(*) FILTER (lost) AS place, max(created_at) AS said_at
            FROM (SELECT * EXCLUDE (response_b), response_a AS response_id, answer = 'B' AS lost FROM said
                  UNION ALL BY NAME
                  SELECT * EXCLUDE (response_a), response_b AS response_id, answer = 'A' AS lost FROM said)
            GROUP BY 1, 2, 3)
        SELECT n.name AS annotator, n.kind, origin, count(*), max(place) FILTER (response_id = $a) AS place_a,
            max(place) FILTER (response_id = $b) AS place_b, {_time("max(said_at)")}
        FROM places JOIN annotators n USING (annotator_id) GROUP BY 1, 2, 3
        HAVING count(*) > 2 AND place_a IS NOT NULL AND place_b IS NOT NULL ORDER BY 1, 3""",
    ScoreRecord: f"""SELECT {_SIDE}, model, model_version, template_hash, principle, reward, probability, uncertainty,
            tokens, truncated, error, run_id, {_time("created_at")}
        FROM {_rows("scores", _OF_RESPONSE)} ORDER BY model, model_version, template_hash, principle, side""",
    PrincipleVote: f"""
        WITH votes AS (FROM {_rows("principle_judgments", _OF_RESPONSE)} UNION ALL BY NAME
            SELECT * FROM standing_principle_judgments WHERE {_OF_RESPONSE} AND item IS NOT NULL),
        concluded AS (
            SELECT o.judgment_id, arg_max(o.stage, r.started_at) AS outcome, arg_max(o.reason, r.started_at) AS why
            FROM principle_outcomes o SEMI JOIN votes USING (judgment_id) JOIN runs r USING (run_id)
            GROUP BY o.judgment_id)
        SELECT {_SIDE}, v.judgment_id, p.statement AS principle, n.name AS annotator, n.kind, v.answer, v.evidence,
            v.extractor, o.outcome, o.why AS outcome_reason, v.run_id
        FROM votes v JOIN principles p USING (principle_id) JOIN annotators n USING (annotator_id)
        LEFT JOIN concluded o USING (judgment_id)
        ORDER BY principle, side, annotator, v.judgment_id""",
    FeedbackText: f"""SELECT {_SIDE}, feedback_id, n.name AS annotator, n.kind, content
        FROM {_rows("feedback", _OF_RESPONSE)} JOIN annotators n USING (annotator_id)
        ORDER BY side, annotator, feedback_id""",
    ResponseCheck: f"""SELECT {_SIDE}, n.name AS annotator, n.kind, verdict, reason
        FROM response_checks JOIN annotators n USING (annotator_id) WHERE response_id IN ($a, $b)
        ORDER BY side, annotator""",
    DecisionRecord: f"""SELECT 'd-' || position AS decision_id, iteration, pool, label, margin, rule, reason, run_id,
            {_time("created_at")}
        FROM {_rows("decisions", _OF_COMPARISON)} ORDER BY position""",
    AttributeRecord: """SELECT n.name AS annotator, t.name, t.value::VARCHAR AS value
        FROM attributes t JOIN annotators n USING (annotator_id) WHERE comparison_id = $id ORDER BY t.name, n.name""",
    SnapshotHolding: """SELECT snapshot_id, s.name AS snapshot, i.label, i.pool, i.weight
        FROM snapshot_items i JOIN snapshots s USING (snapshot_id) WHERE comparison_id = $id ORDER BY s.created_at""",
    BenchmarkOverlap: """SELECT DISTINCT c.benchmark, h.benchmark_prompt_id, h.overlap, h.ngrams
        FROM contamination_hits h JOIN contamination_checks c USING (check_id)
        WHERE h.prompt_id = $prompt AND (h.response_id IS NULL OR h.response_id IN ($a, $b))
        ORDER BY c.benchmark, h.ngrams DESC""",
}


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
    query = _QUERIES[record]
    values = {name: value for name, value in parameters.items() if f"${name}" in query}
    return [record(*row) for row in db.execute(query, values).fetchall()]


def _source_label(judgments: list[JudgmentRecord]) -> str | None:
    """As the view `source_labels` has it: where all statements of sources agree."""
    labels = {
        j.answer if j.answer in ("A", "B") else "tie" for j in judgments if j.kind == "source" and j.answer != "skip"
    }
    return labels.pop() if len(labels) == 1 else None
