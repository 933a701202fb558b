"""Runs from the store, or from their folders while another process holds the store; stopping one.

Covers: the list, one run, its links, whether a run marked as running is alive; one interrupt to its process, with a
record of who requested it. Leaves out: curves and samples (`metrics_reader`, `rollouts_reader`), finding the process
(`assay.runs.process`), the training's reaction (`assay.system.graceful_stop`).
"""

import csv
import io
import json
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from assay.errors import ConflictError, without_credentials
from assay.runs.catalogue import REMOVED
from assay.runs.coverage import warnings_of
from assay.runs.notes import RunNote, notes_of
from assay.runs.process import RunProcess, process_of
from assay.store.database import Connection
from assay.system.atomic_files import replacing
from assay.workspace import Workspace
from assay_web.report.pages.runs import METRICS, flattened
from assay_web.runs.key_figure import key_figure, newest_step
from assay_web.runs.replies import KindCount, NamedValue, RunLink, RunList, RunRow, Status, StopNote
from assay_web.runs.run_query import FIELD, RunQuery, column_values

FILE = "stop.json"
_LOCK = threading.Lock()  # concurrent requests send one signal: a second skips the checkpoint


def stop_note(folder: Path) -> StopNote | None:
    """The stop request of a run, if any."""
    try:
        return StopNote(**json.loads((folder / FILE).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def stop(folder: Path, by: str, *, again: bool) -> StopNote:
    """Interrupt the run's process. A repeated request has no effect unless `again`, which does not wait for the step.
    Raises ConflictError if the run has ended or its process cannot be reached with certainty."""
    process = process_of(folder)
    if process is None:
        raise ConflictError("nothing is known of the run's process: end it with Ctrl-C where it runs")
    with _LOCK:
        noted = stop_note(folder)
        if noted is not None and not again and process.is_alive():
            return noted
        process.interrupt()
        noted = StopNote(by=by, at=time.time())
        with replacing(folder / FILE) as temporary:
            temporary.write_text(noted.model_dump_json() + "\n", encoding="utf-8")
        return noted


MOST_LINKS = 100  #: of a direction
MOST_TEXT = 2000  #: characters of a setting or figure
TABLE_COLUMNS = (
    *("run", "kind", "status", "name", "started", "seconds", "step", "figure", "value", "error"),
    *("warnings", "tags", "note", "archived"),
)
MOST_FIELDS = 2000  #: names that are offered as columns
_COLUMNS = """run_id, kind, status, error, config, metrics, code_version, pid, host, epoch(started_at) AS started,
    epoch(ended_at) AS ended"""


@dataclass(frozen=True)
class RunRecord:
    """One row of the store's runs."""

    run_id: str
    kind: str
    status: str
    error: str | None
    config: str
    metrics: str | None
    code_version: str
    pid: int | None
    host: str | None
    started: float
    ended: float | None

    @cached_property
    def settings(self) -> dict[str, Any]:
        config: dict[str, Any] = json.loads(without_credentials(self.config))
        return config

    @cached_property
    def results(self) -> dict[str, Any]:
        metrics: dict[str, Any] = json.loads(self.metrics) if self.metrics else {}
        return metrics


def records(
    db: Connection, query: RunQuery, *, limit: int, offset: int = 0
) -> tuple[list[tuple[RunRecord, RunNote]], int]:
    """A page with what people wrote, in the query's order, and the total. Raises BadInputError for a query that says
    nothing."""
    where, bound = query.where()
    ids = db.execute(
        f"SELECT run_id FROM runs LEFT JOIN run_notes USING (run_id) WHERE {where} ORDER BY {query.order()}", bound
    ).fetchall()
    page = [run_id for (run_id,) in ids[offset : offset + limit]]
    rows = db.execute(f"SELECT {_COLUMNS} FROM runs WHERE run_id IN (SELECT unnest($page))", {"page": page}).fetchall()
    by_id = {row[0]: RunRecord(*row) for row in rows}
    notes = notes_of(db, page)
    return [(by_id[run_id], notes.get(run_id, RunNote())) for run_id in page], len(ids)


def field_names(db: Connection) -> list[str]:
    """Settings and figures that the newest runs have, as columns: the most frequent first."""
    rows = db.execute("SELECT config, metrics FROM runs ORDER BY started_at DESC LIMIT 300").fetchall()
    counts: Counter[str] = Counter()
    for config, metrics in rows:
        for part, text in (("config", config), ("metrics", metrics)):
            counts.update(f"{part}.{name}" for name, _ in flattened(json.loads(text) if text else {}))
    return [name for name, _ in counts.most_common(MOST_FIELDS) if FIELD.fullmatch(name)]


def record_of(db: Connection, run_id: str) -> RunRecord | None:
    row = db.execute(f"SELECT {_COLUMNS} FROM runs WHERE run_id = ?", [run_id]).fetchone()
    return None if row is None else RunRecord(*row)


def group_of(db: Connection, record: RunRecord) -> list[RunRecord]:
    """The runs of one `assay train --seeds` or `--sweep`, of which this is one, in their order; else none."""
    rows = db.execute(
        f"SELECT {_COLUMNS} FROM runs WHERE kind = ? AND config ->> 'group' = ? ORDER BY started_at",
        [record.kind, record.settings.get("group")],
    ).fetchall()
    return [RunRecord(*row) for row in rows]


def kind_counts(db: Connection) -> list[KindCount]:
    rows = db.execute("SELECT kind, count(*) FROM runs GROUP BY kind ORDER BY kind").fetchall()
    return [KindCount(kind=kind, runs=runs) for kind, runs in rows]


def has_dead(db: Connection, workspace: Workspace) -> bool:
    """Whether a run is marked as running in the store but its process is gone."""
    running = db.execute("SELECT run_id FROM runs WHERE status = 'running'").fetchall()
    processes = (process_of(workspace.runs / run_id) for (run_id,) in running)
    return any(process is not None and process.is_gone() for process in processes)


def links_of(db: Connection, run_id: str, direction: str) -> tuple[list[RunLink], int]:
    """A run's inputs or outputs with names, and how many more there are."""
    rows = db.execute(
        f"""SELECT l.kind, l.ref, coalesce(a.name, s.name, r.kind), coalesce(a.kind, r.status), count(*) OVER ()
            FROM run_links l LEFT JOIN artifacts a ON l.kind = 'artifact' AND a.artifact_id = l.ref
            LEFT JOIN snapshots s ON l.kind = 'snapshot' AND s.snapshot_id = l.ref
            LEFT JOIN runs r ON l.kind = 'run' AND r.run_id = l.ref
            WHERE l.run_id = ? AND l.direction = ? ORDER BY l.kind, l.ref LIMIT {MOST_LINKS}""",
        [run_id, direction],
    ).fetchall()
    links = [RunLink(kind=kind, ref=ref, label=label, about=about) for kind, ref, label, about, _ in rows]
    return links, (int(rows[0][4]) - len(rows) if rows else 0)


def models_of(db: Connection, run_id: str) -> list[str]:
    """Reward models that it made and whose files are there."""
    rows = db.execute(
        """SELECT name FROM artifacts WHERE run_id = ? AND kind = 'reward_model' AND spec ->> 'removed' IS NULL
           ORDER BY created_at, name""",
        [run_id],
    ).fetchall()
    return [name for (name,) in rows]


def runs_resuming(db: Connection, run_id: str) -> list[str]:
    """Later runs of its kind that resumed it."""
    rows = db.execute(
        """SELECT later.run_id FROM run_links l JOIN runs later USING (run_id) JOIN runs own ON own.run_id = l.ref
           WHERE l.direction = 'input' AND l.kind = 'run' AND l.ref = ? AND later.kind = own.kind ORDER BY 1""",
        [run_id],
    ).fetchall()
    return [str(row[0]) for row in rows]


def row_of(
    record: RunRecord, workspace: Workspace, note: RunNote | None = None, columns: list[str] | None = None
) -> RunRow:
    """A row of the list; for a running run with the newest line of its metrics."""
    folder = workspace.runs / record.run_id
    settings = record.settings
    name = settings.get("name") or settings.get("model") or settings.get("bench")
    status, error, ended = state_of(record, folder)
    is_running = status in ("running", "ending")
    step, figure = newest_step(folder / METRICS) if is_running else (None, None)
    if not is_running:
        figure = key_figure(record.kind, record.results)
        step = _steps(record.results)
        if figure is None and step is None and status in ("interrupted", "failed"):  # its last step
            step, figure = newest_step(folder / METRICS)
    until = ended if ended is not None else (time.time() if is_running else None)
    return RunRow(
        id=record.run_id,
        kind=record.kind,
        status=status,
        name=Path(str(name)).name if name else None,
        started=record.started,
        seconds=None if until is None else max(0.0, until - record.started),
        step=step,
        figure=figure,
        error=error,
        warnings=warnings_of(record.results),
        note=note.note if note else "",
        tags=list(note.tags) if note else [],
        archived=note is not None and note.archived,
        removed=record.results.get(REMOVED),
        values=column_values(settings, record.results, columns or []),
    )


def state_of(record: RunRecord, folder: Path) -> tuple[Status, str | None, float | None]:
    """Status, error and end. For a run marked as running, its folder is more recent than the store."""
    if record.status != "running":
        return record.status, record.error, record.ended  # type: ignore[return-value]  # the store's CHECK constraint
    process = process_of(folder)
    if process is None:
        return "running", None, None
    return _state(process, folder)


def _state(process: RunProcess, folder: Path) -> tuple[Status, str | None, float | None]:
    if process.status != "running":
        ended = datetime.fromisoformat(process.ended).timestamp() if process.ended else None
        return process.status, process.error, ended  # type: ignore[return-value]  # as in the store
    if process.is_gone():
        return "interrupted", "process gone", None
    return ("running" if stop_note(folder) is None else "ending"), None, None


def rows_without_store(workspace: Workspace, query: RunQuery, *, limit: int, offset: int, held: str) -> RunList:
    """The list from the runs' folders, newest first: without settings, notes and order, with figures of running runs
    only."""
    text = (query.text or "").lower()
    rows: list[RunRow] = []
    kinds: dict[str, int] = {}
    for folder in workspace.runs.glob("run-*"):
        process = process_of(folder)
        if process is None:
            continue
        kinds[process.kind] = kinds.get(process.kind, 0) + 1
        state, error, ended = _state(process, folder)
        listed_status: Status = "running" if state == "ending" else state
        if (
            (query.kind and process.kind != query.kind)
            or (query.status and listed_status != query.status)
            or (text and text not in folder.name)
        ):
            continue
        is_running = state in ("running", "ending")
        step, figure = newest_step(folder / METRICS) if is_running else (None, None)
        started = datetime.fromisoformat(process.started).timestamp()
        until = ended if ended is not None else (time.time() if is_running else None)
        rows.append(
            RunRow(
                id=folder.name,
                kind=process.kind,
                status=state,
                name=None,
                started=started,
                seconds=None if until is None else until - started,
                step=step,
                figure=figure,
                error=error,
            )
        )
    rows.sort(key=lambda row: (row.started, row.id), reverse=True)
    counts = [KindCount(kind=name, runs=runs) for name, runs in sorted(kinds.items())]
    return RunList(runs=rows[offset : offset + limit], total=len(rows), kinds=counts, held=held)


def runs_table(rows: Sequence[RunRow], columns: Sequence[str]) -> str:
    """The list as CSV: times in UTC, numbers with all their digits."""
    text = io.StringIO()
    table = csv.writer(text)
    table.writerow([*TABLE_COLUMNS, *columns])
    for row in rows:
        figure = (row.figure.label, row.figure.value) if row.figure else ("", "")
        started = datetime.fromtimestamp(row.started, UTC).isoformat(timespec="seconds")
        table.writerow(
            [row.id, row.kind, row.status, row.name, started, row.seconds, row.step, *figure, row.error]
            + ["; ".join(row.warnings), " ".join(row.tags), row.note, row.archived]
            + [row.values[column] for column in columns]
        )
    return text.getvalue()


def named_values(flat: Sequence[tuple[str, Any]]) -> list[NamedValue]:
    return [NamedValue(name=name, value=_text(value)) for name, value in flat]


def _text(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]} ... ({len(text)} characters)"


def _steps(results: Mapping[str, Any]) -> int | None:
    training = results.get("training")
    steps = training.get("steps") if isinstance(training, Mapping) else results.get("steps")
    return steps if isinstance(steps, int) else None
