"""Reward models of one `--seeds` or `--sweep`: how one of the group is trained, and its held-out figures.

Leaves out: what of a group is due, and comparing (`assay.runs.sweep`).
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from assay.runs.json_log import read_metrics
from assay.runs.sweep import FinishedRun, GroupMember, GroupRun
from assay.workspace import Workspace
from assay_rm_training.methods.method import method_payload
from assay_rm_training.runs.train import TrainingPlan, last_interrupted, train_model

#: Held-out figures by name, where a final evaluation has them; of one that is not asked for, the first is chosen by.
_PLACES = {
    "nll": ("calibration.nll", "nll"),
    "accuracy": ("accuracy.value", "overall.accuracy", "figures.accuracy.value", "accuracy"),
    "rank correlation": ("spearman.value",),
}
_FREE = ("parallel", "device", "track", "preset")  #: as in `TrainingConfig.identity`
LOWER_IS_BETTER = ("nll",)


class RewardModelGroup:
    """`assay.runs.sweep.GroupTraining` of `train_model`."""

    kind = "train"

    def __init__(self, workspace: Workspace, members: Sequence[GroupMember[TrainingPlan]]) -> None:
        self.workspace = workspace
        self._rows: dict[str, tuple[Collection[Any] | None, ...]] = {}
        # A loss is a figure to compare by only where it is the same function in all of them.
        self._one_loss = len({_method_key(member.plan) for member in members}) == 1

    def last_interrupted(self, plan: TrainingPlan) -> str | None:
        return last_interrupted(self.workspace, plan)

    def train(self, plan: TrainingPlan, *, resume: str | None, force: bool) -> None:
        data, eval_data, final_data = self._read(plan)
        plan = replace(plan, force=force)
        train_model(self.workspace, plan, data or (), eval_data, resume=resume, final_rows=final_data)

    def _read(self, plan: TrainingPlan) -> tuple[Collection[Any] | None, ...]:
        """Rows of the plan's data, read once for each way of reading."""
        if (key := _method_key(plan)) not in self._rows:
            names = (plan.data, plan.eval_data, plan.final_data)
            self._rows = {key: tuple(plan.method.read(self.workspace, name) if name else None for name in names)}
        return self._rows[key]

    def compared(self, plan: TrainingPlan | Mapping[str, Any]) -> dict[str, Any]:
        record = plan if isinstance(plan, Mapping) else json.loads(json.dumps(plan.record()))
        kept = {name: record.get(name) for name in ("data", "eval_data", "final_data", "data_content", "method")}
        settings = {**kept, **record["config"], **record["objective"]}
        return {name: value for name, value in settings.items() if name not in _FREE}

    def measured(self, member: GroupMember[TrainingPlan], finished: FinishedRun) -> GroupRun:
        run, model, _, metrics = finished
        final, warnings = _figures(metrics.get("evaluation") or {}), tuple(metrics.get("warnings") or ())
        if seen := metrics.get("evaluated_seen"):
            warnings += (f"{seen} of the evaluated rows have a prompt that was trained on",)
        if member.plan.final_data is None and final:
            return GroupRun(member, run, final, {}, model, warnings=warnings)
        step = metrics.get("training", {}).get("kept_step")
        rows = read_metrics(self.workspace.runs / run) if (self.workspace.runs / run).is_dir() else []
        row = next((row for row in rows if row["kind"] == "eval" and row["step"] == step), {})
        loss = row.get("loss") if self._one_loss else None
        during = {"nll": row.get("nll", loss), "accuracy": row.get("accuracy")}
        chosen_by = {name: float(value) for name, value in during.items() if value is not None}
        return GroupRun(member, run, chosen_by, final, model, warnings=warnings)


def _method_key(plan: TrainingPlan) -> str:
    return json.dumps(method_payload(plan.method), sort_keys=True, default=str)


def _figures(evaluation: Mapping[str, Any]) -> dict[str, float]:
    figures = {}
    for name, places in _PLACES.items():
        for position in places:
            value: Any = evaluation
            for part in position.split("."):
                value = value.get(part) if isinstance(value, Mapping) else None
            if isinstance(value, int | float):
                figures[name] = float(value)
                break
    return figures
