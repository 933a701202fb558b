"""Where curation stands: the funnel, the rules that filled the pools, errors found, annotators against gold, loops."""

import json
from dataclasses import asdict, dataclass
from typing import Any

from assay.store.database import Connection
from assay.workspace import Workspace
from assay_pipelines.curation.reliability.estimates import SourceReliability, reliabilities


@dataclass(frozen=True)
class ErrorsFound:
    """Decisions in force of one rule against the source's A/B label: `against` gave the other label or a tie."""

    pool: str
    rule: str
    decided: int
    against: int


@dataclass(frozen=True)
class LoopState:
    """A curation loop: the iteration it is in, the last step that happened, its model's accuracy on gold."""

    name: str
    iteration: int
    step: str
    gold_accuracy: float | None
    gold_pairs: int


@dataclass(frozen=True)
class CurationStatus:
    """`pools`: name -> comparisons, every comparison once. `rules`: (pool, rule) -> comparisons, decisions in force."""

    comparisons: int
    pools: dict[str, int]
    rules: dict[tuple[str, str], int]
    errors: tuple[ErrorsFound, ...]
    loops: tuple[LoopState, ...]
    reliability: tuple[SourceReliability, ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            "comparisons": self.comparisons,
            "pools": self.pools,
            "rules": [{"pool": p, "rule": r, "comparisons": n} for (p, r), n in self.rules.items()],
            "errors_found": [asdict(e) for e in self.errors],
            "loops": [asdict(loop) for loop in self.loops],
            "reliability": [{**asdict(r), "worth": r.worth} for r in self.reliability],
        }


def curation_status(workspace: Workspace) -> CurationStatus:
    with workspace.store.unit() as db:
        pools = dict(db.execute("SELECT pool, count(*) FROM pools GROUP BY pool ORDER BY pool").fetchall())
        rules = {
            (pool, rule): number
            for pool, rule, number in db.execute(
                "SELECT pool, rule, count(*) FROM current_decisions GROUP BY pool, rule ORDER BY 3 DESC, 1, 2"
            ).fetchall()
        }
        return CurationStatus(
            sum(pools.values()), pools, rules, _errors(db), _loops(db), tuple(reliabilities(db).rows())
        )


def _errors(db: Connection) -> tuple[ErrorsFound, ...]:
    rows = db.execute(
        """SELECT d.pool, d.rule, count(*), count(*) FILTER (d.label IS DISTINCT FROM s.label)
           FROM current_decisions d JOIN source_labels s USING (comparison_id)
           WHERE s.label IN ('A', 'B') AND d.pool IN ('gold', 'silver', 'recycled')
           GROUP BY d.pool, d.rule ORDER BY d.pool, d.rule"""
    ).fetchall()
    return tuple(ErrorsFound(*row) for row in rows)


def _loops(db: Connection) -> tuple[LoopState, ...]:
    rows = db.execute(
        """SELECT l.loop, max(s.iteration), arg_max(s.step, s.created_at),
                  arg_max(s.outcome, s.created_at) FILTER (s.step IN ('train', 'final'))::VARCHAR
           FROM loops l LEFT JOIN loop_steps s USING (loop) GROUP BY l.loop, l.created_at ORDER BY l.created_at"""
    ).fetchall()
    states = []
    for name, iteration, step, trained in rows:
        accuracy = (json.loads(trained).get("gold_accuracy") if trained else None) or {}
        states.append(LoopState(name, iteration or 0, step or "begun", accuracy.get("value"), accuracy.get("pairs", 0)))
    return tuple(states)
