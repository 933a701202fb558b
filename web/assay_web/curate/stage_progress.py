"""Progress and spending of the runs of stages, from their progress files and the store.

Progress files are in the run's folder, so they can be read while another process holds the store. Leaves out: writing
them (`assay.runs.progress_file`), the record of calls (`assay_pipelines.llm.calls`).
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
from assay_web.curate.replies import StageCount

MOST = 1_000  #: runs whose last figures are cached for while a stage holds the store


@dataclass(frozen=True)
class StoredFigures:
    """`metrics`: of a finished run, empty before. `spent`: None if it called no model."""

    metrics: dict[str, Any]
    spent: RunSpending | None


NOTHING = StoredFigures({}, None)


def counts_of(folder: Path) -> list[StageCount]:
    """The last progress of the run in this folder."""
    return [StageCount.model_validate(one, from_attributes=True) for one in progress_of(folder)]


def stored_figures(workspace: Workspace, runs: Iterable[str]) -> dict[str, StoredFigures]:
    """Figures of these runs in the store; the last ones read while another process holds it."""
    run_ids = list(runs)
    if not run_ids:
        return {}
    try:
        spent = spending_of_runs(workspace, run_ids)
        with workspace.store.unit() as db:
            rows = db.execute(
                "SELECT run_id, metrics::VARCHAR FROM runs WHERE list_contains($runs, run_id) AND metrics IS NOT NULL",
                {"runs": run_ids},
            ).fetchall()
    except BusyError:
        with _LOCK:
            return {run: _LAST[workspace.root, run] for run in run_ids if (workspace.root, run) in _LAST}
    ended = {run: json.loads(metrics) for run, metrics in rows}
    stored = {run: StoredFigures(ended.get(run, {}), spent.get(run)) for run in run_ids}
    with _LOCK:
        for run, figures in stored.items():
            _LAST[workspace.root, run] = figures
        while len(_LAST) > MOST:
            del _LAST[next(iter(_LAST))]
    return stored


_LAST: dict[tuple[Path, str], StoredFigures] = {}
_LOCK = threading.Lock()
