"""What the loops of a workspace have done: each iteration with its steps, sizes and figures.

Covers: reading the steps' outcomes and what an iteration looked at, and why. Leaves out: doing them (`stage1`).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assay.store.database import Connection
from assay_pipelines.curation.loop.state import RUN_KIND
from assay_pipelines.curation.shown_pairs import ShownPair, shown_pairs


@dataclass(frozen=True, slots=True)
class GoldAccuracy:
    """Of a model on `pairs` gold pairs, with its 95 % interval."""

    value: float
    low: float
    high: float
    pairs: int


@dataclass(frozen=True, slots=True)
class StepDone:
    """A step that has happened. `at`: seconds since the epoch."""

    step: str
    run_id: str | None
    at: float


@dataclass(frozen=True)
class LoopIteration:
    """Counts are None for steps that have not happened. 0 is the seed; the last one trains and publishes alone.

    `for_people`, `for_judges`: comparisons chosen. `gold_wrong` of `gold_predicted`: what the model gets wrong, around
    which the iteration looked. `undecided`, `conflicts`: what people could not settle, which is discarded.
    `trained_on`: pairs that were fitted; `left_out`: those that were not, being too long.
    """

    iteration: int
    steps: list[StepDone]
    trained_on: int | None
    left_out: int | None
    gold_accuracy: GoldAccuracy | None
    gold_predicted: int | None
    gold_wrong: int | None
    for_people: int | None
    for_judges: int | None
    people_asked: int | None
    people_open: int | None
    people_votes: int | None
    gold: int | None
    gold_against_source: int | None
    undecided: int | None
    conflicts: int | None
    judges_asked: int | None
    silver: int | None
    silver_against_source: int | None


@dataclass(frozen=True, slots=True)
class LoopCandidate:
    """A model of the loop on the gold of its end."""

    iteration: int
    trained_on: int
    left_out: int | None
    gold_accuracy: GoldAccuracy | None
    best: bool


@dataclass(frozen=True)
class LoopHistory:
    """`wanted`: iterations asked for. `candidates`: once it has published. `waiting`, `stopped`: why its last
    run stopped. `settings`: JSON, as begun. `spent`: on calls of models, in the currency of the prices."""

    name: str
    created: float
    settings: str
    wanted: int
    iterations: list[LoopIteration]
    candidates: list[LoopCandidate]
    model_name: str | None
    waiting: str | None
    stopped: str | None
    last_run: str | None
    last_status: str | None
    last_error: str | None
    spent: float


@dataclass(frozen=True, slots=True)
class LoopChoice:
    """A comparison an iteration asked about. `near`: the gold comparison whose error led there, which the model gave
    `p`; null for the seed."""

    pair: ShownPair
    route: str
    near: str | None
    p: float | None
    similarity: float | None


_LOOPS = """
    WITH last AS (
        SELECT config ->> 'name' AS loop, arg_max(run_id, started_at) AS run_id, arg_max(status, started_at) AS status,
               arg_max_null(error, started_at) AS error, arg_max_null(metrics, started_at)::VARCHAR AS metrics
        FROM runs WHERE kind = $kind GROUP BY 1),
    paid AS (
        SELECT r.config ->> 'name' AS loop, sum(c.cost) AS cost
        FROM model_calls c JOIN runs r USING (run_id) WHERE r.kind = $kind GROUP BY 1)
    SELECT l.loop, epoch(l.created_at), l.config::VARCHAR, last.run_id, last.status, last.error, last.metrics,
           coalesce(paid.cost, 0)
    FROM loops l LEFT JOIN last USING (loop) LEFT JOIN paid USING (loop) ORDER BY l.created_at DESC, l.loop"""
_STEPS = """SELECT loop, iteration, step, outcome::VARCHAR, run_id, epoch(created_at) FROM loop_steps
    ORDER BY created_at, iteration"""
_COUNTS = (
    "trained_on", "left_out", "gold_predicted", "gold_wrong", "people_asked", "people_open", "people_votes", "gold",
    "gold_against_source", "undecided", "conflicts", "judges_asked", "silver", "silver_against_source",
)  # fmt: skip


def loop_histories(db: Connection) -> list[LoopHistory]:
    """Of every loop, the newest first."""
    steps: dict[str, dict[int, list[tuple[StepDone, dict[str, Any]]]]] = {}
    for loop, iteration, step, outcome, run, at in db.execute(_STEPS).fetchall():
        steps.setdefault(loop, {}).setdefault(iteration, []).append((StepDone(step, run, at), json.loads(outcome)))
    histories = []
    for loop, created, settings, run, status, error, metrics, spent in db.execute(
        _LOOPS, {"kind": RUN_KIND}
    ).fetchall():
        loop_rows = steps.get(loop, {})
        run_metrics = json.loads(metrics) if metrics else {}
        published = next((o for done in loop_rows.values() for s, o in done if s.step == "publish"), {})
        histories.append(
            LoopHistory(
                loop,
                created,
                settings,
                json.loads(settings)["iterations"],
                [_iteration(number, done) for number, done in sorted(loop_rows.items())],
                [_candidate(model, published["best"]) for model in published.get("models", ())],
                published.get("name"),
                run_metrics.get("waiting"),
                run_metrics.get("stopped"),
                run,
                status,
                error,
                float(spent),
            )
        )
    return histories


def loop_choices(
    db: Connection, loop: str, iteration: int, *, limit: int, offset: int = 0
) -> tuple[list[LoopChoice], int]:
    """A page of what an iteration asked about, in the order it was chosen, and how much that is."""
    rows = db.execute(
        """SELECT comparison_id, route, why ->> 'gold', (why ->> 'p')::DOUBLE, (why ->> 'similarity')::DOUBLE,
                  count(*) OVER ()
           FROM loop_targets WHERE loop = $loop AND iteration = $iteration
           ORDER BY place LIMIT $limit OFFSET $offset""",
        {"loop": loop, "iteration": iteration, "limit": limit, "offset": offset},
    ).fetchall()
    pairs = shown_pairs(db, [row[0] for row in rows])
    return [LoopChoice(pairs[row[0]], *row[1:5]) for row in rows], int(rows[0][5]) if rows else 0


def _iteration(number: int, done: list[tuple[StepDone, dict[str, Any]]]) -> LoopIteration:
    outcomes: dict[str, Any] = {}
    for step, outcome in done:
        outcomes.update(outcome)
        if step.step in ("train", "final"):
            del outcomes["gold"]  # there the name of a snapshot; people's step counts by the same word
    chosen = next((outcome for step, outcome in done if step.step == "targets"), {})
    return LoopIteration(
        iteration=number,
        steps=[step for step, _ in done],
        gold_accuracy=_accuracy(outcomes.get("gold_accuracy")),
        for_people=chosen.get("people"),
        for_judges=chosen.get("judges"),
        **{name: outcomes.get(name) for name in _COUNTS},
    )


def _candidate(model: Mapping[str, Any], best: int) -> LoopCandidate:
    return LoopCandidate(
        model["iteration"],
        model["trained_on"],
        model.get("left_out"),
        _accuracy(model["gold_accuracy"]),
        model["iteration"] == best,
    )


def _accuracy(figures: Mapping[str, Any] | None) -> GoldAccuracy | None:
    return GoldAccuracy(figures["value"], figures["low"], figures["high"], figures["pairs"]) if figures else None
