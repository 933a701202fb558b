"""Bulk, idempotent insertion of what comes after the import: judgments, decisions, responses, scores.

Covers: Python values in, one SQL statement per table out, inside the caller's unit of work; a value that is already
there is left alone. Every function returns how many rows were new. Leaves out: preference pairs from files
(`assay.store.intake`), opening the store (`assay.store.database`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any, Literal, NamedTuple, TypeAlias

from assay import ids
from assay.domain import AnnotatorKind, Judgment, Pool, Prompt
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


def insert_annotator(db: Connection, kind: AnnotatorKind, name: str, config: Mapping[str, Any] | None = None) -> str:
    """The annotator's id; the annotator is written down if it is new."""
    annotator = ids.annotator_id(kind, name)
    db.execute(
        "INSERT INTO annotators (annotator_id, kind, name, config) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
        [annotator, kind, name, json.dumps(dict(config), default=str) if config is not None else None],
    )
    return annotator


def insert_judgments(db: Connection, judgments: Iterable[Judgment], run_id: str | None) -> int:
    """Annotators must be known already (`insert_annotator`)."""
    names = (
        "judgment_id",
        "comparison_id",
        "annotator_id",
        "answer",
        "strength",
        "confidence",
        "rationale",
        "shown_order",
        "seconds",
        "origin",
    )
    types = ("text", "text", "text", "text", "small", "real", "text", "text", "real", "text")
    rows = {
        j.id: (
            j.id,
            j.comparison_id,
            j.annotator_id,
            j.answer,
            j.strength,
            j.confidence,
            j.rationale,
            j.shown_order,
            j.seconds,
            j.origin,
        )
        for j in reversed(list(judgments))  # of equal judgments the first counts
    }
    columns = ", ".join(names)
    return _insert(
        db,
        list(rows.values()),
        names,
        types,
        f"INSERT INTO judgments ({columns}, run_id) SELECT {columns}, $run FROM ({unknown('judgments', 'incoming')})",
        run_id,
    )


def insert_decisions(db: Connection, decisions: Iterable[Decision], run_id: str | None) -> int:
    """Append decisions in the given order. One that repeats what is already in force, on the same basis, is not written
    again."""
    names = ("comparison_id", "pool", "label", "margin", "rule", "reason", "iteration", "basis")
    types = ("text", "text", "text", "real", "text", "text", "big", "basis")
    rounds: list[list[tuple[Any, ...]]] = []  # one decision per comparison each, so that positions keep the order
    seen: dict[str, int] = {}
    for d in decisions:
        turn = seen[d.comparison_id] = seen.get(d.comparison_id, -1) + 1
        if turn == len(rounds):
            rounds.append([])
        basis = None if d.basis is None else [{"relation": e.relation, "ref": e.ref} for e in sorted(set(d.basis))]
        rounds[turn].append((d.comparison_id, d.pool, d.label, d.margin, d.rule, d.reason, d.iteration, basis))
    statement = """
        INSERT INTO decisions (comparison_id, iteration, pool, label, margin, rule, reason, basis, run_id)
        SELECT i.comparison_id, i.iteration, i.pool, i.label, i.margin, i.rule, i.reason, i.basis, $run
        FROM incoming i LEFT JOIN current_decisions d USING (comparison_id)
        WHERE d.comparison_id IS NULL
           OR (i.pool, i.iteration, i.rule, i.reason) IS DISTINCT FROM (d.pool, d.iteration, d.rule, d.reason)
           OR i.label IS DISTINCT FROM d.label OR i.margin IS DISTINCT FROM d.margin
           OR (d.basis IS NOT NULL AND i.basis IS DISTINCT FROM d.basis)"""
    return sum(_insert(db, rows, names, types, statement, run_id) for rows in rounds)


def insert_demonstrations(db: Connection, shown: Mapping[str, Sequence[str]]) -> None:
    """`shown`: judgment id -> the comparisons that its judge was shown as examples. One that has some keeps them."""
    rows = [(judgment, n, comparison) for judgment, those in shown.items() for n, comparison in enumerate(those)]
    columns = ("judgment_id", "position", "comparison_id")
    statement = f"""
        INSERT INTO judgment_demonstrations ({", ".join(columns)})
        SELECT {", ".join(columns)} FROM incoming ANTI JOIN judgment_demonstrations USING (judgment_id)"""
    _insert(db, rows, columns, ("text", "big", "text"), statement, None)


def insert_responses(db: Connection, responses: Sequence[tuple[Prompt, str]], run_id: str | None) -> list[str]:
    """Write prompts and their responses (rollouts, samples); returns the response ids in the given order."""
    prompts: dict[str, list[dict[str, str]]] = {}
    answers: dict[str, tuple[str, str]] = {}
    order: list[str] = []
    for prompt, content in responses:
        prompt_id = ids.prompt_id(prompt)
        response_id = ids.response_id(prompt_id, content)
        prompts.setdefault(prompt_id, [m.to_dict() for m in prompt])
        answers.setdefault(response_id, (prompt_id, content))
        order.append(response_id)
    _insert(
        db,
        list(prompts.items()),
        ("prompt_id", "messages"),
        ("text", "messages"),
        f"""INSERT INTO prompts (prompt_id, messages, run_id)
            SELECT prompt_id, messages, $run FROM ({unknown("prompts", "incoming")})""",
        run_id,
    )
    _insert(
        db,
        [(response_id, *answer) for response_id, answer in answers.items()],
        ("response_id", "prompt_id", "content"),
        ("text", "text", "text"),
        f"""INSERT INTO responses (response_id, prompt_id, content, run_id)
            SELECT response_id, prompt_id, content, $run FROM ({unknown("responses", "incoming")})""",
        run_id,
    )
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
    names = (
        "response_id",
        "model_version",
        "template_hash",
        "principle",
        "model",
        "reward",
        "probability",
        "uncertainty",
        "tokens",
        "truncated",
        "error",
        "calibration",
    )
    types = ("text", "text", "text", "text", "text", "real", "real", "real", "big", "flag", "text", "text")
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
    columns = ", ".join(names)
    update = ", ".join(f"{n} = i.{n}" for n in names[5:])
    same = " AND ".join(f"scores.{key} = i.{key}" for key in KEYS["scores"])
    late = f"""
        UPDATE scores SET {update}, run_id = $run FROM incoming i
        WHERE {same} AND scores.reward IS NULL AND i.reward IS NOT NULL"""
    recalibrated = f"""
        UPDATE scores SET probability = i.probability, calibration = i.calibration FROM incoming i
        WHERE {same} AND scores.reward IS NOT NULL AND i.calibration IS DISTINCT FROM scores.calibration
          AND i.calibration IS NOT NULL"""
    new = f"INSERT INTO scores ({columns}, run_id) SELECT {columns}, $run FROM ({unknown('scores', 'incoming')})"
    incoming = list(rows.values())
    _insert(db, incoming, names, types, recalibrated, run_id)
    return _insert(db, incoming, names, types, late, run_id) + _insert(db, incoming, names, types, new, run_id)


def _insert(
    db: Connection,
    rows: Sequence[tuple[Any, ...]],
    names: Sequence[str],
    types: Sequence[str],
    statement: str,
    run_id: str | None,
) -> int:
    """Run `statement` over `rows` as the Arrow table `incoming`, which has columns `names` of `types`."""
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
    columns = zip(*rows, strict=True)
    table = pa.table(
        [pa.array(column, type=kinds[kind]) for column, kind in zip(columns, types, strict=True)], names=list(names)
    )
    with registered(db, "incoming", table):
        row = db.execute(statement, {"run": run_id} if "$run" in statement else {}).fetchone()
    return int(row[0]) if row else 0
