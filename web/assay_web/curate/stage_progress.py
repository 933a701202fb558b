"""How far the runs of stages are and what they have spent: what they note themselves, and what the store has of them.

The notes lie in the run's folder, so that they are there whoever holds the store and whichever server asks. Leaves out:
making them (`assay.runs.progress_file`), the record of calls (`assay_pipelines.llm.calls`).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.errors import BusyError
from assay.runs.progress_file import progress_of
from assay.workspace import Workspace
from assay_pipelines.llm.spending_of_runs import RunSpending, spending_of_runs
from assay_web.curate.replies import StageCount, StageSpent

MOST = 1_000  #: runs whose figures are kept for while a stage holds the store


@dataclass(frozen=True)
class Told:
    """`metrics`: what the run ended with, empty while it goes on. `spent`: None where it called no model."""

    metrics: dict[str, Any]
    spent: StageSpent | None


NOTHING = Told({}, None)


def counts_of(folder: Path) -> list[StageCount]:
    """What the run of this folder noted last."""
    return [
        StageCount(
            what=one.what,
            done=one.done,
            total=one.total,
            unit=one.unit,
            rate=one.rate,
            seconds_left=one.seconds_left,
            began=one.began,
            at=one.at,
            ended=one.ended,
        )
        for one in progress_of(folder)
    ]


def told_of_runs(workspace: Workspace, runs: Iterable[str]) -> dict[str, Told]:
    """Of these runs what the store tells; what it told last while another process holds it."""
    wanted = list(runs)
    if not wanted:
        return {}
    try:
        spent = spending_of_runs(workspace, wanted)
        with workspace.store.unit() as db:
            rows = db.execute(
                "SELECT run_id, metrics::VARCHAR FROM runs WHERE list_contains($runs, run_id) AND metrics IS NOT NULL",
                {"runs": wanted},
            ).fetchall()
    except BusyError:
        with _LOCK:
            return {run: _LAST[workspace.root, run] for run in wanted if (workspace.root, run) in _LAST}
    ended = {run: json.loads(metrics) for run, metrics in rows}
    found = {run: Told(ended.get(run, {}), _spent(spent.get(run))) for run in wanted}
    with _LOCK:
        for run, told in found.items():
            _LAST[workspace.root, run] = told
        while len(_LAST) > MOST:
            del _LAST[next(iter(_LAST))]
    return found


def _spent(found: RunSpending | None) -> StageSpent | None:
    return None if found is None else StageSpent(calls=found.calls, tokens=found.tokens, cost=found.cost)


_LAST: dict[tuple[Path, str], Told] = {}
_LOCK = threading.Lock()
