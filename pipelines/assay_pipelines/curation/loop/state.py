"""The steps that a loop has done: each happens once, whole, whatever kills the process in between."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from assay.errors import BadInputError
from assay.runs.progress_bar import Advance, silent
from assay.runs.progress_file import noted
from assay.store.database import Connection, registered
from assay.workspace import Workspace
from assay_pipelines.curation.loop.config import Stage1Config

Route: TypeAlias = Literal["people", "judges"]
RUN_KIND = "curate-stage1"  #: of the runs that work on a loop
#: What a person calls the steps of an iteration.
STEPS = {
    "targets": "choosing what to ask about",
    "train": "training the reward model",
    "people": "asking people",
    "judges": "asking judges",
    "final": "training the last model",
    "publish": "choosing the best model",
}
#: What loops did before these were settings.
BEFORE = {"judge_weights": "equal", "choose": "errors"}
#: What may be raised or moved for a loop that has begun; anything else would change what its steps meant.
EXTENDABLE = frozenset({"iterations", "max_cost", "run_on"})


class PausedError(Exception):
    """The loop has to wait, without an error."""

    def __init__(self, *, waiting: str | None = None, stopped: str | None = None) -> None:
        self.waiting, self.stopped = waiting, stopped


@dataclass(frozen=True)
class StepOutcome:
    """What a step came to. `write`: its writes, done in the transaction that marks the step as done."""

    payload: dict[str, Any]
    write: Callable[[Connection], None] | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """A comparison an iteration asks about, who is asked, and why it was chosen."""

    comparison_id: str
    route: Route
    why: dict[str, Any]


@dataclass(frozen=True)
class Loop:
    """An opened loop; `run_id` is the run that works on it now."""

    workspace: Workspace
    config: Stage1Config
    run_id: str
    step_done: Advance = silent  #: called for every step that is done, now or before

    @classmethod
    def open(cls, workspace: Workspace, config: Stage1Config, run_id: str) -> Loop:
        """Begin the loop or resume it. Raises BadInputError where its first step was done under another one."""
        settings = json.loads(json.dumps(config.to_dict()))
        with workspace.store.unit() as db:
            row = db.execute("SELECT config FROM loops WHERE loop = ?", [config.name]).fetchone()
            if row is None:
                db.execute("INSERT INTO loops (loop, config) VALUES (?, ?)", [config.name, json.dumps(settings)])
            else:
                begun = {**BEFORE, **json.loads(row[0])}
                if not db.execute("SELECT 1 FROM loop_steps WHERE loop = ? LIMIT 1", [config.name]).fetchall():
                    begun = settings  # nothing has happened yet
                changed = [k for k in settings if k not in EXTENDABLE and settings[k] != begun.get(k)]
                if changed:
                    raise BadInputError(
                        f"loop {config.name!r} began with another {changed[0]} ({begun.get(changed[0])!r}); "
                        "set it again, or choose another name for another loop",
                        field=changed[0],
                    )
                db.execute("UPDATE loops SET config = ? WHERE loop = ?", [json.dumps(settings), config.name])
        return cls(workspace, config, run_id)

    def done(self, iteration: int, step: str) -> dict[str, Any] | None:
        """The outcome of a step that has happened."""
        with self.workspace.store.unit() as db:
            row = db.execute(
                "SELECT outcome FROM loop_steps WHERE loop = ? AND iteration = ? AND step = ?",
                [self.config.name, iteration, step],
            ).fetchone()
        return json.loads(row[0]) if row else None

    def once(self, iteration: int, step: str, do: Callable[[], StepOutcome]) -> dict[str, Any]:
        """The step's outcome: the stored one, or that of doing it now."""
        if (stored := self.done(iteration, step)) is not None:
            self.step_done(1)
            return stored
        with noted(f"iteration {iteration}: {STEPS[step]}"):
            outcome = do()
        payload = json.dumps(outcome.payload)
        with self.workspace.store.unit() as db:
            if outcome.write is not None:
                outcome.write(db)
            db.execute(
                "INSERT INTO loop_steps (loop, iteration, step, outcome, run_id) VALUES (?, ?, ?, ?, ?)",
                [self.config.name, iteration, step, payload, self.run_id],
            )
        self.step_done(1)
        done: dict[str, Any] = json.loads(payload)
        return done

    def save_targets(self, db: Connection, iteration: int, targets: Sequence[Target]) -> None:
        import pyarrow as pa

        if not targets:
            return
        table = pa.table(
            {
                "comparison_id": [t.comparison_id for t in targets],
                "place": list(range(len(targets))),
                "route": [t.route for t in targets],
                "why": [json.dumps(t.why) for t in targets],
            }
        )
        with registered(db, "incoming", table):
            db.execute(
                """INSERT INTO loop_targets SELECT $loop, $iteration, comparison_id, place, route, why FROM incoming""",
                {"loop": self.config.name, "iteration": iteration},
            )

    def targets(self, iteration: int) -> list[Target]:
        """In the order they were chosen."""
        with self.workspace.store.unit() as db:
            rows = db.execute(
                "SELECT comparison_id, route, why FROM loop_targets WHERE loop = ? AND iteration = ? ORDER BY place",
                [self.config.name, iteration],
            ).fetchall()
        return [Target(comparison, route, json.loads(why)) for comparison, route, why in rows]

    def looked_at(self) -> set[str]:
        """Every comparison that an iteration of this loop has asked about."""
        with self.workspace.store.unit() as db:
            rows = db.execute("SELECT comparison_id FROM loop_targets WHERE loop = ?", [self.config.name]).fetchall()
        return {row[0] for row in rows}
