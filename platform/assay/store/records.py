"""Bulk, idempotent insertion of what comes after the import: judgments, decisions, responses, scores.

Covers: Python values in, one SQL statement per table out, inside the caller's unit of work; a value that is already
there is left alone. Every function returns how many rows were new. Leaves out: preference pairs from files
(`assay.store.intake`), opening the store (`assay.store.database`).
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from operator import attrgetter
from typing import Any, Literal, NamedTuple, TypeAlias

from assay import ids
from assay.conversation.message import is_typed, response_text
from assay.domain import AnnotatorKind, Judgment, Pool, Prompt, Response
from assay.score import Score, ScoreResult
from assay.store.database import Connection, registered
from assay.store.keys import KEYS, unknown

#: counted: a judgment that was counted as a vote. checked: a label that was compared with others, or put in question.
#: scored by: the version of a model. retrieved near, duplicate of: another comparison. overlaps: a benchmark's prompt.
BasisRelation: TypeAlias = Literal["counted", "checked", "scored by", "retrieved near", "duplicate of", "overlaps"]


class Evidence(NamedTuple):
    """One thing that a decision rests on; `ref`: its id."""

    relation: BasisRelation
    ref: str


@dataclass(frozen=True, slots=True)
class Decision:
    """What curation concluded of one comparison; becomes the decision in force."""

    comparison_id: str
    pool: Pool
    label: Literal["A", "B", "tie"] | None
    rule: str  #: the rule that decided, e.g. "verifier"
    reason: str  #: for a person
    margin: float | None = None
    iteration: int = 0
    basis: Sequence[Evidence] | None = None  #: None: not recorded; empty: the comparison's own text
    weight: float | None = None  #: of its loss in a training; None: 1
    preference: float | None = None  #: P(the label is right), a soft label of a training; None: 1


def insert_annotator(db: Connection, kind: AnnotatorKind, name: str, config: Mapping[str, Any] | None = None) -> str:
    """The annotator's id; the annotator is written down if it is new."""
    annotator = ids.annotator_id(kind, name)
    db.execute(
        "INSERT INTO annotators (annotator_id, kind, name, config) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
        [annotator, kind, name, json.dumps(dict(config), default=str) if config is not None else None],
    )
    return annotator


_JUDGMENT_COLUMNS = {
    "judgment_id": "text",
    "comparison_id": "text",
    "annotator_id": "text",
    "answer": "text",
    "strength": "small",
    "confidence": "real",
    "rationale": "text",
    "shown_order": "text",
    "seconds": "real",
    "origin": "text",
}
_judgment_values = attrgetter("id", *list(_JUDGMENT_COLUMNS)[1:])


def insert_judgments(db: Connection, judgments: Iterable[Judgment], run_id: str | None) -> int:
    """Annotators must be known already (`insert_annotator`)."""
    rows = {j.id: _judgment_values(j) for j in reversed(list(judgments))}  # of equal judgments the first counts
    return _insert_new(db, "judgments", list(rows.values()), _JUDGMENT_COLUMNS, run_id)


def insert_decisions(db: Connection, decisions: Iterable[Decision], run_id: str | None) -> int:
    """Append decisions in the given order. One that repeats what is already in force, on the same basis, is not written
    again."""
    texts = dict.fromkeys(("comparison_id", "pool", "label", "rule", "reason"), "text")
    columns = texts | {"margin": "real", "iteration": "big", "basis": "basis", "weight": "real", "preference": "real"}
    rounds: list[list[tuple[Any, ...]]] = []  # one decision per comparison each, so that positions keep the order
    seen: dict[str, int] = {}
    for d in decisions:
        turn = seen[d.comparison_id] = seen.get(d.comparison_id, -1) + 1
        if turn == len(rounds):
            rounds.append([])
        basis = None if d.basis is None else [{"relation": e.relation, "ref": e.ref} for e in sorted(set(d.basis))]
        rounds[turn].append(
            (d.comparison_id, d.pool, d.label, d.rule, d.reason, d.margin, d.iteration, basis, d.weight, d.preference)
        )
    # Not by the view of all that is in force: it sorts all decisions, however few come in.
    statement = """
        WITH last AS (SELECT max(position) AS position FROM decisions SEMI JOIN incoming USING (comparison_id)
                      GROUP BY comparison_id)
        INSERT INTO decisions (
            comparison_id, iteration, pool, label, margin, rule, reason, basis, weight, preference, run_id)
        SELECT i.comparison_id, i.iteration, i.pool, i.label, i.margin, i.rule, i.reason, i.basis,
               i.weight, i.preference, $run
        FROM incoming i LEFT JOIN (SELECT d.* FROM decisions d SEMI JOIN last USING (position)) d USING (comparison_id)
        WHERE d.comparison_id IS NULL
           OR (i.pool, i.iteration, i.rule, i.reason) IS DISTINCT FROM (d.pool, d.iteration, d.rule, d.reason)
           OR i.label IS DISTINCT FROM d.label OR i.margin IS DISTINCT FROM d.margin
           OR i.weight IS DISTINCT FROM d.weight OR i.preference IS DISTINCT FROM d.preference
           OR (d.basis IS NOT NULL AND i.basis IS DISTINCT FROM d.basis)"""
    return sum(_insert(db, rows, columns, statement, run_id) for rows in rounds)


def insert_demonstrations(db: Connection, shown: Mapping[str, Sequence[str]]) -> None:
    """`shown`: judgment id -> the comparisons that its judge was shown as examples. One that has some keeps them."""
    rows = [(judgment, n, comparison) for judgment, those in shown.items() for n, comparison in enumerate(those)]
    columns = {"judgment_id": "text", "position": "big", "comparison_id": "text"}
    statement = f"""
        INSERT INTO judgment_demonstrations ({", ".join(columns)})
        SELECT {", ".join(columns)} FROM incoming ANTI JOIN judgment_demonstrations USING (judgment_id)"""
    _insert(db, rows, columns, statement, None)


def insert_responses(db: Connection, responses: Sequence[tuple[Prompt, Response]], run_id: str | None) -> list[str]:
    """Write prompts and their responses (rollouts, samples); returns the response ids in the given order."""
    prompts: dict[str, tuple[list[dict[str, str]], str | None]] = {}
    answers: dict[str, tuple[str, str, str | None]] = {}
    order: list[str] = []
    for prompt, content in responses:
        prompt_id = ids.prompt_id(prompt)
        response_id = ids.response_id(prompt_id, content)
        if prompt_id not in prompts:
            texts = [{"role": m.role, "content": m.text} for m in prompt]
            prompts[prompt_id] = texts, ids.conversation_json(prompt) if is_typed(prompt) else None
        if response_id not in answers:
            turns = None if isinstance(content, str) else ids.conversation_json(content)
            answers[response_id] = prompt_id, response_text(content), turns
        order.append(response_id)
    prompt_rows = [(prompt_id, *columns) for prompt_id, columns in prompts.items()]
    prompt_columns = {"prompt_id": "text", "messages": "messages", "conversation": "text"}
    _insert_new(db, "prompts", prompt_rows, prompt_columns, run_id)
    response_rows = [(response_id, *answer) for response_id, answer in answers.items()]
    response_columns = dict.fromkeys(("response_id", "prompt_id", "content", "turns"), "text")
    _insert_new(db, "responses", response_rows, response_columns, run_id)
    return order


def insert_scores(
    db: Connection,
    scores: Iterable[tuple[str, ScoreResult]],
    *,
    model: str,
    version: str,
    template_hash: str,
    run_id: str | None,
    principles: Iterable[str | None] = (),
) -> int:
    """Scores by response id. A failure is stored as its reason; a later success takes its place, never the reverse.
    A score that is there keeps its reward, and takes the probability of another calibration.

    `model`, `version` and `template_hash` are of the model that was asked, `principles` what each was asked by: a
    failure does not carry them.
    """
    columns = dict.fromkeys(("response_id", "model_version", "template_hash", "principle", "model"), "text") | {
        "reward": "real",
        "probability": "real",
        "uncertainty": "real",
        "tokens": "big",
        "truncated": "flag",
        "error": "text",
        "calibration": "text",
    }
    rows: dict[tuple[str, str], tuple[Any, ...]] = {}
    for (response_id, result), requested_principle in zip(scores, chain(principles, repeat(None)), strict=False):
        values: tuple[Any, ...]
        if isinstance(result, Score):
            s = result
            values = (s.reward, s.probability, s.uncertainty, s.tokens, s.truncated, None, s.calibration)
            principle = s.principle or ""
        else:
            values = (None, None, None, None, None, f"{result.code}: {result.message}", None)
            principle = requested_principle or ""
        rows[response_id, principle] = (response_id, version, template_hash, principle, model, *values)
    update = ", ".join(f"{n} = i.{n}" for n in list(columns)[5:])
    same = " AND ".join(f"scores.{key} = i.{key}" for key in KEYS["scores"])
    late = f"""
        UPDATE scores SET {update}, run_id = $run FROM incoming i
        WHERE {same} AND scores.reward IS NULL AND i.reward IS NOT NULL"""
    recalibrated = f"""
        UPDATE scores SET probability = i.probability, calibration = i.calibration FROM incoming i
        WHERE {same} AND scores.reward IS NOT NULL AND i.calibration IS DISTINCT FROM scores.calibration
          AND i.calibration IS NOT NULL"""
    incoming = list(rows.values())
    _insert(db, incoming, columns, recalibrated, run_id)
    return _insert(db, incoming, columns, late, run_id) + _insert_new(db, "scores", incoming, columns, run_id)


def _insert_new(
    db: Connection, table: str, rows: Sequence[tuple[Any, ...]], columns: Mapping[str, str], run_id: str | None
) -> int:
    """Insert the rows whose key the table does not have."""
    names = ", ".join(columns)
    statement = f"INSERT INTO {table} ({names}, run_id) SELECT {names}, $run FROM ({unknown(table, 'incoming')})"
    return _insert(db, rows, columns, statement, run_id)


def _insert(
    db: Connection,
    rows: Sequence[tuple[Any, ...]],
    columns: Mapping[str, str],
    statement: str,
    run_id: str | None,
) -> int:
    """Run `statement` over `rows` as the Arrow table `incoming`. `columns`: name -> type."""
    import pyarrow as pa

    if not rows:
        return 0
    kinds = {
        "text": pa.string(),
        "real": pa.float64(),
        "small": pa.int8(),
        "big": pa.int64(),
        "flag": pa.bool_(),
        "basis": pa.list_(pa.struct([("relation", pa.string()), ("ref", pa.string())])),
        "messages": pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())])),
    }
    values = zip(*rows, strict=True)
    arrays = [pa.array(column, type=kinds[kind]) for column, kind in zip(values, columns.values(), strict=True)]
    table = pa.table(arrays, names=list(columns))
    with registered(db, "incoming", table):
        row = db.execute(statement, {"run": run_id} if "$run" in statement else {}).fetchone()
    return int(row[0]) if row else 0
