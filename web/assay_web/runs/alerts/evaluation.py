"""Rules against the folders of runs, by a thread of the web server: the store is not read, no run is waited for.

Covers: numbers that are not finite, above or below a value for some rows, runs without progress, failed runs; also what
happened while no server ran, as far as the last megabyte of metrics says. Leaves out: the rules (`alert_file`),
sending webhooks.
"""

import json
import logging
import math
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from assay.errors import AssayError
from assay.runs.process import RunProcess, process_of
from assay.workspace import Workspace
from assay_web.report.pages.runs import METRICS
from assay_web.runs.alerts.alert_file import AlertFile
from assay_web.runs.alerts.replies import AlertRule, RunAlert
from assay_web.webhooks.event import Alert, emit

EVERY_S = 10.0
TAIL = 1 << 20  #: bytes of a metrics file that are read where nothing was read before
_PROGRESS = (METRICS, "progress.json", "rollouts.jsonl", "console.log", "process.json")

log = logging.getLogger(__name__)


@dataclass
class WatchedRun:
    """A run that goes on: how far its metrics are read, rows in a row that met each rule."""

    position: int | None = None
    streaks: dict[int, int] = field(default_factory=dict)


class AlertWatch:
    """`start` and `stop` by the server. Each new alert is logged and told to webhooks."""

    def __init__(self, workspace: Workspace, every_s: float = EVERY_S) -> None:
        self._workspace = workspace
        self.file = AlertFile(workspace.root)
        self._every_s = every_s
        self._settled: set[str] = set()  # runs that have ended and were looked at
        self._watched: dict[str, WatchedRun] = {}
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="assay-alerts", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join()
        self.file.close()

    def _watch(self) -> None:
        while not self._ending.wait(self._every_s):
            try:
                self.evaluate()
            except AssayError as error:
                log.warning("alerts were not evaluated: %s", error)
            except Exception as error:  # one run's odd folder must not end the watch
                log.error("alerts were not evaluated: %s", type(error).__name__, exc_info=error)

    def evaluate(self) -> list[RunAlert]:
        """All rules against all runs that go on or have ended since the last time; the alerts that are new."""
        rules = self.file.rules()
        if not rules:
            return []
        rung = self.file.rung()
        new: list[RunAlert] = []
        runs = self._workspace.runs
        for name in sorted(os.listdir(runs)) if runs.is_dir() else []:
            if name in self._settled or (process := process_of(runs / name)) is None:
                continue
            new += self._evaluate_run(runs / name, process, rules, rung)
            if process.status != "running" or process.is_gone():
                self._settled.add(name)
                self._watched.pop(name, None)
        for alert in new:
            log.warning("alert: %s", alert_text(alert))
            emit(self._workspace, Alert(run=alert.run, rule=_rule_text(alert), message=alert_text(alert)))
        return new

    def _evaluate_run(
        self, folder: Path, process: RunProcess, rules: Sequence[AlertRule], rung: set[tuple[int, str]]
    ) -> list[RunAlert]:
        newest = _newest(folder)
        ended = process.status != "running" or process.is_gone()
        rules = [
            rule
            for rule in rules
            if (rule.id, folder.name) not in rung
            and (rule.kind is None or rule.kind == process.kind)
            and (rule.run is None or rule.run == folder.name)
            and not (ended and newest < rule.created)  # over before anybody asked
        ]
        if not rules:
            return []
        watched = self._watched.setdefault(folder.name, WatchedRun())
        met: dict[int, RunAlert] = {}
        for row in _new_rows(folder / METRICS, watched):
            for rule in rules:
                if rule.id not in met and (alert := _of_row(rule, row, watched, folder.name, process.kind)):
                    met[rule.id] = alert
        for rule in rules:
            alert = None
            if rule.condition == "failed" and (process.status == "failed" or process.is_gone()):
                alert = _alert(rule, folder.name, process.kind, detail=process.error or "its process is gone")
            elif rule.condition == "stalled" and not ended:
                since = max(newest, datetime.fromisoformat(process.started).timestamp())
                if time.time() - since >= 60 * rule.minutes:
                    alert = _alert(rule, folder.name, process.kind)
            if alert is not None:
                met[rule.id] = alert
        return [alert for alert in met.values() if self.file.ring(alert)]


def alert_text(alert: RunAlert) -> str:
    """One line in English, for logs and webhooks."""
    reading = "" if alert.reading is None else f" ({alert.reading:.4g})"
    at = "" if alert.step is None else f" at step {alert.step}"
    what = {
        "not_finite": f"{alert.metric} is not a finite number{at}",
        "above": f"{alert.metric} is above {alert.value}{reading}{at}",
        "below": f"{alert.metric} is below {alert.value}{reading}{at}",
        "stalled": f"no progress for {alert.minutes:g} minutes",
        "failed": f"it failed: {alert.detail}",
    }[alert.condition]
    return f"{alert.run} ({alert.run_kind}): {what}"


def _rule_text(alert: RunAlert) -> str:
    return " ".join(str(part) for part in (alert.metric, alert.condition, alert.value) if part is not None)


def _of_row(rule: AlertRule, row: Mapping[str, Any], watched: WatchedRun, run: str, run_kind: str) -> RunAlert | None:
    if rule.condition not in ("not_finite", "above", "below"):
        return None
    held_out = row.get("kind") == "eval"
    values = {f"eval/{name}" if held_out else name: value for name, value in row.items() if _is_number(value)}
    step = row["step"] if isinstance(row.get("step"), int) else None
    if rule.condition == "not_finite":
        names = values if rule.metric is None else [rule.metric]
        name = next((name for name in names if not math.isfinite(values.get(name, 0.0))), None)
        return None if name is None else _alert(rule, run, run_kind, metric=name, step=step)
    if rule.metric not in values or rule.value is None:
        return None
    value = values[rule.metric]
    met = value > rule.value if rule.condition == "above" else value < rule.value
    watched.streaks[rule.id] = watched.streaks.get(rule.id, 0) + 1 if met else 0
    if watched.streaks[rule.id] < rule.steps:
        return None
    return _alert(rule, run, run_kind, step=step, reading=value if math.isfinite(value) else None)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _alert(
    rule: AlertRule,
    run: str,
    run_kind: str,
    *,
    metric: str | None = None,
    step: int | None = None,
    reading: float | None = None,
    detail: str = "",
) -> RunAlert:
    return RunAlert(
        rule=rule.id,
        run=run,
        run_kind=run_kind,
        at=time.time(),
        condition=rule.condition,
        metric=metric or rule.metric,
        value=rule.value,
        steps=rule.steps,
        minutes=rule.minutes,
        step=step,
        reading=reading,
        detail=detail[:500],
        seen_by=None,
    )


def _newest(folder: Path) -> float:
    """When the run last wrote something."""
    times = [0.0]
    for name in _PROGRESS:
        try:
            times.append((folder / name).stat().st_mtime)
        except OSError:
            continue
    return max(times)


def _new_rows(path: Path, watched: WatchedRun) -> Iterator[Mapping[str, Any]]:
    try:
        with path.open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            if watched.position is None or watched.position > size:  # new to us, or cut back to a checkpoint
                watched.position, cut = max(0, size - TAIL), size > TAIL
            else:
                cut = False
            stream.seek(watched.position)
            block = stream.read()
    except OSError:
        return
    end = block.rfind(b"\n") + 1
    watched.position += end
    for line in block[:end].split(b"\n")[int(cut) :]:
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            yield row
