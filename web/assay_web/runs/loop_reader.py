"""An online loop from the files of its run's folder: its phase, its budget, what it asked; and orders to it.

Covers: reading `loop.json`, `labels.jsonl`, `control.json`, and the one place where the page writes the latter. Leaves
out: events in words (`loop_events`), curves (`curves`), obeying (`assay_pipelines.online.labelling`).
"""

import json
import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from assay.browsing.messages import ShownMessage
from assay.errors import BadInputError, ConflictError, NotFoundError
from assay.runs.process import process_of
from assay_pipelines.online.config import LoopConfig, loop_of
from assay_pipelines.online.journal import LABELS, LOOP_FILE, Control, LabelRow, read_labels
from assay_web.runs.loop_events import event_reply, event_rows
from assay_web.runs.loop_replies import (
    AskedLabelReply,
    AskedLabelsReply,
    LoopLimitReply,
    LoopOrder,
    LoopPhase,
    OnlineLoopReply,
)

MOST_EVENTS = 200
_LIMITS: Sequence[Any] = ("labels", "money", "steps", "minutes")
_LOCK = threading.Lock()  # an order changes a part of the file


def online_loop(folder: Path, newest: Mapping[str, Any]) -> OnlineLoopReply:
    """`newest`: the newest row of its metrics. Raises NotFoundError for a run that is no loop."""
    config, control = _config(folder), _control(folder)
    labels, events = _labels(folder), event_rows(folder)
    waiting = sum(_waits(row) for row in labels)
    answered = sum(row.label is not None for row in labels)
    step = newest.get("step")
    spent = {
        "labels": float(answered + waiting),
        "money": newest.get("labels_cost", sum(row.cost for row in labels)) + waiting * _price(config),
        "steps": float(step or 0),
        "minutes": newest.get("seconds_training", 0.0) / 60,
    }
    return OnlineLoopReply(
        phase=_phase(folder, control, events),
        step=step,
        answered=answered,
        waiting=waiting,
        contradictions=sum(row.contradicts for row in labels),
        selector=str(config.labels.selector["kind"]),
        source=str(config.labels.source["kind"]),
        every=config.labels.every,
        count=config.labels.count,
        when_spent=config.budget.when_spent,
        gold=bool(config.training.get("watch")),
        ensemble=not newest or "ensemble_agreement" in newest,
        limits=[
            LoopLimitReply(
                name=name,
                spent=spent[name],
                configured=getattr(config.budget, name),
                ordered=getattr(control, name),
            )
            for name in _LIMITS
        ],
        events=[event_reply(row) for row in reversed(events[-MOST_EVENTS:])],
        more_events=max(0, len(events) - MOST_EVENTS),
    )


def asked_labels(folder: Path, *, waiting: bool, limit: int, offset: int) -> AskedLabelsReply:
    """`waiting`: only those without an answer yet."""
    _config(folder)
    rows = _labels(folder)
    unanswered = [row for row in rows if _waits(row)]
    chosen = unanswered if waiting else rows
    page = chosen[::-1][offset : offset + limit]
    return AskedLabelsReply(total=len(chosen), waiting=len(unanswered), labels=[_label_reply(row) for row in page])


def order(folder: Path, body: LoopOrder) -> Control:
    """What the loop does from now on. Raises ConflictError when it has ended, BadInputError naming a wrong limit."""
    _config(folder)
    process = process_of(folder)
    if process is None:
        raise ConflictError("nothing is known of the run's process, so nothing would obey")
    if process.status != "running" or process.is_gone():
        raise ConflictError(f"the run has ended: {'its process is gone' if process.is_gone() else process.status}")
    changes: dict[str, Any] = {} if body.state is None else {"state": body.state}
    changes |= {} if body.limits is None else body.limits.model_dump()
    with _LOCK:
        control = replace(_control(folder), **changes)
        control.write(folder)
    return control


def _control(folder: Path) -> Control:
    """As if nothing was ordered where it cannot be read, which is an event of the loop."""
    try:
        return Control.read(folder)
    except BadInputError:
        return Control()


def _phase(folder: Path, control: Control, events: Sequence[Mapping[str, Any]]) -> LoopPhase:
    process = process_of(folder)
    if process is None or process.status != "running" or process.is_gone():
        return "ended"
    if control.state == "pause":
        last = next((row["kind"] for row in reversed(events) if row["kind"] in ("paused", "continued")), None)
        return "paused" if last == "paused" else "pausing"
    return "stopping" if control.state == "stop" else "running"


def _config(folder: Path) -> LoopConfig:
    try:
        return _read_config(folder / LOOP_FILE, (folder / LOOP_FILE).stat().st_mtime_ns)
    except FileNotFoundError:
        raise NotFoundError(f"{folder.name} is no online loop") from None


def _price(config: LoopConfig) -> float:
    """Of a pair that is waited for: of all its votes. Counts against the limit of money already."""
    source = config.labels.source
    return float(source.get("price", 0.0)) * int(source.get("overlap", 1))


@lru_cache(16)
def _read_config(path: Path, changed: int) -> LoopConfig:
    return loop_of(json.loads(path.read_text(encoding="utf-8"))["config"])


def _labels(folder: Path) -> tuple[LabelRow, ...]:
    """The last row of each comparison, in the order in which they were asked about."""
    try:
        stat = (folder / LABELS).stat()
    except FileNotFoundError:
        return ()
    return _read_labels(folder, stat.st_size, stat.st_mtime_ns)


@lru_cache(4)
def _read_labels(folder: Path, size: int, changed: int) -> tuple[LabelRow, ...]:
    return tuple({row.comparison_id: row for row in read_labels(folder)}.values())


def _waits(row: LabelRow) -> bool:
    return row.label is None and row.answered_at is None


def _label_reply(row: LabelRow) -> AskedLabelReply:
    return AskedLabelReply(
        step=row.step,
        comparison_id=row.comparison_id,
        prompt=[ShownMessage(turn["role"], turn["content"]) for turn in row.prompt],
        responses=row.responses,
        selector=row.selector,
        why={name: value if math.isfinite(value) else None for name, value in row.why.items()},
        source=row.source,
        label=row.label,
        waiting=_waits(row),
        held_out=row.held_out,
        contradicts=row.contradicts,
        cost=row.cost,
        asked_at=row.asked_at,
        answered_at=row.answered_at,
    )
