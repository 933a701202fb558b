"""Details of one run, and comparison of runs by the settings in which they differ. For a running one the store is read
once only, so that watching does not delay it.
"""

import json
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from assay.errors import NotFoundError
from assay.runs import console_log, resource_log
from assay.runs.notes import RunNote, notes_of
from assay.runs.process import process_of
from assay.runs.record import mark_dead_runs
from assay.runs.trackers import tracked_runs
from assay.workspace import Workspace
from assay_pipelines.online.journal import LOOP_FILE
from assay_policy_training.training.checkpoint import checkpoints
from assay_web.report.pages.runs import METRICS, ROLLOUTS, flattened
from assay_web.runs.key_figure import key_figure
from assay_web.runs.records import (
    RunRecord,
    group_of,
    has_dead,
    links_of,
    models_of,
    named_values,
    record_of,
    row_of,
    runs_resuming,
    stop_note,
)
from assay_web.runs.replies import ComparedRuns, RunDetail, RunLink, RunTable, SettingDifference, TrackedRunReply
from assay_web.runs.tables import tables_of
from assay_web.service import WebService

MOST_RUNS = 64
STATE = "state.pt"  #: of a reward-model training; naming it here spares the server the import of torch


@dataclass(frozen=True)
class StoredRun:
    record: RunRecord
    inputs: list[RunLink]
    outputs: list[RunLink]
    more_links: int
    resumed_in: list[str]
    group: list[RunRecord]
    note: RunNote
    models: list[str]


class Details:
    """Least-recently-used records of running runs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: OrderedDict[str, StoredRun] = OrderedDict()

    def forget(self, runs: Sequence[str]) -> None:
        """Their records have changed."""
        with self._lock:
            for run in runs:
                self._running.pop(run, None)

    def of(self, service: WebService, run_id: str) -> RunDetail:
        """Raises NotFoundError, and BusyError if another process holds the store and the record is not cached."""
        folder = service.workspace.runs / run_id
        process = process_of(folder)
        with self._lock:
            facts = self._running.get(run_id)
        if facts is None or process is None or process.status != "running" or process.is_gone():
            facts = _read(service, run_id)
            with self._lock:
                self._running.pop(run_id, None)
                if facts.record.status == "running":
                    self._running[run_id] = facts
                while len(self._running) > MOST_RUNS:
                    self._running.popitem(last=False)
        return _detail(facts, service, folder)


def _read(service: WebService, run_id: str) -> StoredRun:
    with service.store() as db:
        dead = has_dead(db, service.workspace)
    if dead:
        mark_dead_runs(service.workspace)
    with service.store() as db:
        record = record_of(db, run_id)
        if record is None:
            raise NotFoundError(f"no run {run_id!r} in this workspace")
        inputs, more_inputs = links_of(db, run_id, "input")
        outputs, more_outputs = links_of(db, run_id, "output")
        return StoredRun(
            record,
            inputs,
            outputs,
            more_inputs + more_outputs,
            runs_resuming(db, run_id),
            group_of(db, record),
            notes_of(db, [run_id]).get(run_id, RunNote()),
            models_of(db, run_id),
        )


def _detail(facts: StoredRun, service: WebService, folder: Path) -> RunDetail:
    record = facts.record
    row = row_of(record, service.workspace, facts.note)
    process = process_of(folder)
    settings = record.settings
    return RunDetail(
        run=row,
        code_version=record.code_version,
        host=record.host,
        pid=record.pid,
        folder=str(folder),
        config=named_values(flattened(settings)),
        figures=named_values(flattened({k: v for k, v in record.results.items() if k != "warnings"})),  # in `run`
        tables=[*_group_table(facts.group), *tables_of(record.results)],
        inputs=facts.inputs,
        outputs=facts.outputs,
        more_links=facts.more_links,
        resumed_in=facts.resumed_in,
        resume_command=_resume_command(record.kind, row.status, settings, folder),
        curves=(folder / METRICS).is_file(),
        samples=(folder / ROLLOUTS).is_file(),
        loop=(folder / LOOP_FILE).is_file(),
        console=(folder / console_log.FILE).is_file(),
        resources=(folder / resource_log.FILE).is_file(),
        trackers=[TrackedRunReply(**asdict(run)) for run in tracked_runs(folder)],
        models=facts.models,
        stop=stop_note(folder),
        can_stop=process is not None and process.birth is not None and process.is_alive(),
    )


def _resume_command(kind: str, status: str, settings: dict[str, Any], folder: Path) -> str | None:
    """The command that resumes an interrupted run; None without a checkpoint."""
    if status not in ("interrupted", "failed"):
        return None
    if (folder / LOOP_FILE).is_file():
        return f"assay loop {settings.get('name', 'LOOP')}.yaml"  # by its name, whatever the file is called
    if kind == "rl" and has_saved_state(folder):
        return f"assay rl --resume {folder.name}"
    if kind == "train" and has_saved_state(folder):
        return f"assay train {settings.get('method', 'bt')} --resume {folder.name}"
    return None


def has_saved_state(folder: Path) -> bool:
    """Whether the run in this folder left what --resume goes on from."""
    return (folder / STATE).is_file() or bool(checkpoints(folder))


def compared(records: Sequence[RunRecord], workspace: Workspace) -> ComparedRuns:
    differences, names = _differences(records)
    by_settings: dict[str, list[str]] = {}
    for record in records:
        settings = {name: value for name, value in flattened(record.settings) if not _is_of_seed(name)}
        key = json.dumps([record.kind, settings], sort_keys=True, default=str)
        by_settings.setdefault(key, []).append(record.run_id)
    return ComparedRuns(
        runs=[row_of(record, workspace) for record in records],
        differences=differences,
        same=names - len(differences),
        groups=list(by_settings.values()),
    )


def _is_of_seed(name: str) -> bool:
    """Whether a setting may differ between runs of one configuration: seeds, and what such runs are called."""
    last = name.rpartition(".")[2]
    return name in ("name", "group", "resume", "resumed_from") or last == "seed" or last.endswith("_seed")


def _differences(records: Sequence[RunRecord]) -> tuple[list[SettingDifference], int]:
    """The settings in which they differ, and how many there are in all."""
    settings = [{entry.name: entry.value for entry in named_values(flattened(r.settings))} for r in records]
    names = list(dict.fromkeys(name for setting in settings for name in setting))
    differences = [SettingDifference(name=name, values=[setting.get(name) for setting in settings]) for name in names]
    return [entry for entry in differences if len(set(entry.values)) > 1], len(names)


def _group_table(records: Sequence[RunRecord]) -> list[RunTable]:
    """The runs of a group with the settings in which they differ."""
    if len(records) < 2:
        return []
    differences, _ = _differences(records)
    head = ["run", *(entry.name.removeprefix("config.") for entry in differences), "status", "figure"]
    rows = []
    for number, record in enumerate(records):
        figure = key_figure(record.kind, record.results)
        shown = "" if figure is None else f"{figure.label} {figure.value:.4f}"
        values = [str(entry.values[number] or "") for entry in differences]
        rows.append([record.run_id, *values, record.status, shown])
    return [RunTable(title=f"Runs of {records[0].settings['group']}", head=head, rows=rows)]
