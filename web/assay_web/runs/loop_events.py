"""What an online loop did, in words: the rows of its `events.jsonl` as a log, and as marks in the charts.

Leaves out: writing them (`assay_pipelines.online.journal`).
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay.runs.json_log import JsonLog
from assay_pipelines.online.journal import EVENTS
from assay_web.run_charts.policy import LOOP
from assay_web.runs.loop_replies import LoopEventReply
from assay_web.runs.replies import Moment

MOST_MARKS = 200  #: the newest ones
_MARKED = frozenset({"swap", "kept", "alarm", "returned", "penalty", "budget"})
_TROUBLE = frozenset({"alarm", "source_down", "unanswered", "order_refused"})
_AFTER_ALARM = {
    "stop": "the run ends",
    "return": "the last good checkpoint is taken up, and labels are bought there",
    "label": "labels are bought",
    "penalty": "KL and length cost reward from now on",
}


def event_rows(folder: Path) -> list[dict[str, Any]]:
    """In order; none of a run that is no loop."""
    return JsonLog(folder / EVENTS).rows()


def loop_moments(folder: Path) -> list[Moment]:
    rows = [row for row in event_rows(folder) if row["kind"] in _MARKED][-MOST_MARKS:]
    return [Moment(step=row["step"], text=row["kind"], section=LOOP, ordinary=row["kind"] != "alarm") for row in rows]


def event_reply(row: Mapping[str, Any]) -> LoopEventReply:
    kind = str(row["kind"])
    return LoopEventReply(
        step=row["step"], at=row["at"], kind=kind.replace("_", " "), text=event_text(row), trouble=kind in _TROUBLE
    )


def event_text(row: Mapping[str, Any]) -> str:
    """One sentence or two; of a kind that is not known, its figures."""
    match row:
        case {"kind": "refit", "labels": labels, "model": model, **more}:
            return f"{model} was fitted on {labels} labels{_compared(more)}."
        case {"kind": "swap", "model": model, "before": before}:
            return f"{model} gives the rewards from the next step on, in place of {before}."
        case {"kind": "kept", "model": model, "refused": refused, "why": why}:
            return f"{model} stays; {refused} does not take over: {why}."
        case {"kind": "kept", "model": model, "why": why}:
            return f"{model} stays: {why}."
        case {"kind": "alarm", "action": action, **more}:
            figures = ", ".join(f"{name} {_figure(more[name])}" for name in more if name not in ("step", "at", "kind"))
            return f"An alarm ({figures}): {_AFTER_ALARM.get(action, action)}."
        case {"kind": "returned", "good": good}:
            return f"Weights and optimiser are again those of step {good}."
        case {"kind": "penalty", "kl": kl, "length": length}:
            return f"From now on a response costs {kl:g} of reward a nat of KL, and {length:g} a token."
        case {"kind": "budget", "reached": reached, "then": then}:
            after = "the run ends" if then == "stop" else "training goes on with the reward as it is"
            return f"No more labels are bought ({reached}); {after}."
        case {"kind": "paused"}:
            return "Paused by an order; the step is done."
        case {"kind": "continued"}:
            return "Goes on."
        case {"kind": "stopped"}:
            return "Ended by an order."
        case {"kind": "order_refused", "why": why}:
            return f"An order that cannot be read; the one before it counts: {why}."
        case {"kind": "source_down", "source": source, "why": why}:
            return f"{source} could not be reached{_pairs(row)}: {why}."
        case {"kind": "unanswered", "source": source, "why": why}:
            return f"{source} gave no answer{_pairs(row)}: {why}."
    rest = {name: value for name, value in row.items() if name not in ("step", "at", "kind")}
    return json.dumps(rest, ensure_ascii=False)


def _compared(figures: Mapping[str, Any]) -> str:
    """Of a refit: how it compares with the version before."""
    parts = []
    if figures.get("seconds") is not None:
        parts.append(f" in {figures['seconds']:.1f} s")
    if figures.get("agreement") is not None:
        parts.append(f"; it orders {figures['agreement']:.0%} of the step's pairs as the version before")
    old, new, held_out = (figures.get(name) for name in ("accuracy_old", "accuracy_new", "held_out"))
    if old is not None and new is not None:
        parts.append(f"; accuracy on {held_out} held-out labels {old:.0%} before, {new:.0%} now")
    return "".join(parts)


def _pairs(row: Mapping[str, Any]) -> str:
    return f" for {row['pairs']} pairs" if "pairs" in row else ""


def _figure(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else str(value)
