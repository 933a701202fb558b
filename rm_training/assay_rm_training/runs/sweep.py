"""Groups of trainings that differ in swept settings and in their seed: each an ordinary run, compared on held-out data.

Covers: what of a group is trained already, training the rest, figures by settings with intervals over the seeds, the
best settings and the rule. Leaves out: reading `--sweep` (`commands/train/sweep.py`), one training (`train.py`).
"""

import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from assay.errors import AssayError, BadInputError
from assay.models.devices import is_out_of_memory
from assay.runs.json_log import read_metrics
from assay.runs.model_run import model_folder
from assay.runs.record import mark_dead_runs
from assay.statistics.intervals import Interval, bounds
from assay.statistics.seeds import seed_interval
from assay.workspace import Workspace
from assay_rm_training.methods.method import method_payload
from assay_rm_training.runs.recorded import snapshot_id
from assay_rm_training.runs.train import TrainingPlan, last_interrupted, train_model

#: Held-out figures by name, where a final evaluation has them.
_PLACES = {
    "nll": ("calibration.nll", "nll"),
    "accuracy": ("accuracy.value", "overall.accuracy", "figures.accuracy.value", "accuracy"),
    "rank correlation": ("spearman.value",),
}
_FREE = ("parallel", "device", "track", "preset")  #: as in `TrainingConfig.identity`
LOWER_IS_BETTER = ("nll",)


@dataclass(frozen=True)
class GroupMember:
    """One training of a group. `settings`: the swept ones, as text."""

    settings: Mapping[str, str]
    plan: TrainingPlan

    @property
    def label(self) -> str:
        return ", ".join([*(f"{name} {value}" for name, value in self.settings.items()), f"seed {self.seed}"])

    @property
    def seed(self) -> int:
        return self.plan.config.seed


@dataclass(frozen=True)
class GroupRun:
    """What became of it. `chosen_by`: figures on the data that settings are chosen by; `final`: on `--final-data`.
    `error`: why there are none. `warnings`: what must stand beside them. `trained`: by this command, not before."""

    member: GroupMember
    run_id: str | None
    chosen_by: Mapping[str, float]
    final: Mapping[str, float]
    model: str | None = None  #: its name; -v2 where one that was killed at its end had left the name taken
    error: str | None = None
    warnings: tuple[str, ...] = ()
    trained: bool = False

    def to_dict(self) -> dict[str, Any]:
        return {
            "model": self.model or self.member.plan.name,
            "run_id": self.run_id,
            "settings": dict(self.member.settings),
            "seed": self.member.seed,
            "figures": dict(self.chosen_by),
            "final_figures": dict(self.final),
            "error": self.error,
            "warnings": list(self.warnings),
            "trained": self.trained,
        }


@dataclass(frozen=True)
class SeedMean:
    """Mean of a figure over seeds; the interval is of the seeds alone, not of the held-out items."""

    mean: float
    interval: Interval | None

    @classmethod
    def of(cls, values: Sequence[float]) -> "SeedMean":
        return cls(float(np.mean(values)), seed_interval(values))

    def to_dict(self) -> dict[str, Any]:
        low, high = bounds(self.interval)
        return {"mean": self.mean, "low": low, "high": high}


@dataclass(frozen=True)
class SettingResult:
    """The runs of one combination of settings."""

    settings: Mapping[str, str]
    runs: tuple[GroupRun, ...]

    @property
    def done(self) -> list[GroupRun]:
        return [run for run in self.runs if run.error is None]

    def figures(self, *, final: bool = False) -> dict[str, SeedMean]:
        """Of the figures that all its finished runs have."""
        each = [run.final if final else run.chosen_by for run in self.done]
        names = [name for name in _PLACES if each and all(name in values for values in each)]
        return {name: SeedMean.of([values[name] for values in each]) for name in names}


@dataclass(frozen=True)
class GroupResult:
    """`metric`: of the rule, None where nothing was measured on held-out data. `best`: None without it, and where only
    one combination was trained. `ahead`: of the best less the second by the seeds that both have."""

    group: str
    data: str
    settings: tuple[SettingResult, ...]
    metric: str | None
    best: SettingResult | None
    second: SettingResult | None
    ahead: SeedMean | None
    final_data: str | None

    @property
    def rule(self) -> str:
        """How the best was chosen, and what that does to its figures."""
        if self.metric is None:
            return "no figure on held-out data: nothing to choose by"
        end = "lowest" if self.metric in LOWER_IS_BETTER else "highest"
        text = f"the {end} mean {self.metric} over seeds on {Path(self.data).name}"
        if self.final_data is None:
            return text + ", which the figures are also on: the best's are too good (--final-data is for others)"
        return text + f"; figures on {Path(self.final_data).name} were not chosen by"

    def to_dict(self) -> dict[str, Any]:
        return {
            "group": self.group,
            "rule": self.rule,
            "metric": self.metric,
            "settings": [
                {
                    "settings": dict(one.settings),
                    "runs": len(one.done),
                    "failed": len(one.runs) - len(one.done),
                    "figures": {name: mean.to_dict() for name, mean in one.figures().items()},
                    "final_figures": {name: mean.to_dict() for name, mean in one.figures(final=True).items()},
                }
                for one in self.settings
            ],
            "best": None if self.best is None else dict(self.best.settings),
            "ahead_of_second": None if self.ahead is None else self.ahead.to_dict(),
            "runs": [run.to_dict() for one in self.settings for run in one.runs],
        }


def data_content(workspace: Workspace, plan: TrainingPlan) -> str:
    """Identity of what the plan's data hold: a group's runs must not be compared over a file that has changed."""
    digest = hashlib.sha256()
    for name in (plan.data, plan.eval_data, plan.final_data):
        part = None if name is None else snapshot_id(workspace, name)
        if name is not None and part is None and Path(name).is_file():
            with Path(name).open("rb") as stream:
                part = hashlib.file_digest(stream, "sha256").hexdigest()
        digest.update(f"{part}\n".encode())
    return digest.hexdigest()[:16]


def train_group(
    workspace: Workspace,
    members: Sequence[GroupMember],
    *,
    announce: Callable[[GroupMember, int, int], None] = lambda member, number, of: None,
) -> list[GroupRun]:
    """Train those that no finished run of the group is, from their saved state where one was interrupted.

    A failed run costs the others nothing. Raises BadInputError, before anything is trained, for a name in use by
    another model and for a finished or interrupted run of the group with other settings; and as `train_model` for the
    first run. `announce`: before a training, with its number among those due.
    """
    mark_dead_runs(workspace)
    finished, begun = _runs_of(workspace, members[0].plan.group or "")
    for member in members:
        plan = member.plan
        if plan.name in finished:
            _require_same(plan, finished[plan.name])
        elif plan.name not in begun:
            model_folder(workspace, plan.name, force=plan.force)
        else:
            last_interrupted(workspace, plan)
    due = [member for member in members if member.plan.name not in finished]
    rows: _Rows = {}
    errors: dict[str, str] = {}
    for number, member in enumerate(due, start=1):
        announce(member, number, len(due))
        plan = member.plan
        # A run that was killed as it ended may have left its model, and no record that it is done.
        orphaned = plan.name in begun and (workspace.models / plan.name).exists()
        try:
            resume = last_interrupted(workspace, plan)
            data, eval_data, final_data = _read(workspace, plan, rows)
            forced = TrainingPlan(**{**plan.__dict__, "force": plan.force or orphaned})
            train_model(workspace, forced, data or (), eval_data, resume=resume, final_rows=final_data)
        except AssayError as error:
            if isinstance(error, BadInputError) and number == 1 and not finished:
                raise  # most likely all of them have it
            errors[plan.name] = str(error)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            errors[plan.name] = f"out of memory: {error}".splitlines()[0]
    finished, _ = _runs_of(workspace, members[0].plan.group or "")
    # A loss is a figure to compare by only where it is the same function in all of them.
    one_loss = len({json.dumps(method_payload(m.plan.method), sort_keys=True, default=str) for m in members}) == 1
    runs = (_run(workspace, member, finished, errors, one_loss=one_loss) for member in members)
    return [replace(run, trained=run.member in due) for run in runs]


def compare_group(runs: Sequence[GroupRun], *, prefer: str) -> GroupResult:
    """`prefer`: the metric to choose by, where every finished run has it; else the first that every one has."""
    plan = runs[0].member.plan
    by_settings: dict[tuple[str, ...], list[GroupRun]] = {}
    for run in runs:
        by_settings.setdefault(tuple(run.member.settings.values()), []).append(run)
    results = [SettingResult(of[0].member.settings, tuple(of)) for of in by_settings.values()]
    measured = [result for result in results if result.done]
    metric = next(
        (name for name in (prefer, *_PLACES) if measured and all(name in one.figures() for one in measured)), None
    )
    best = second = ahead = None
    if metric is not None:
        sign = -1.0 if metric in LOWER_IS_BETTER else 1.0
        ranked = sorted(measured, key=lambda one: sign * one.figures()[metric].mean, reverse=True)
        if len(ranked) > 1:
            best, second = ranked[:2]
            each = [{run.member.seed: run.chosen_by[metric] for run in one.done} for one in (best, second)]
            shared = [each[0][seed] - each[1][seed] for seed in each[0] if seed in each[1]]
            ahead = SeedMean.of(shared) if shared else None
    data = plan.eval_data or f"what was held out of {Path(plan.data).name}"
    return GroupResult(plan.group or "", data, tuple(results), metric, best, second, ahead, plan.final_data)


_Rows = dict[str, tuple[Collection[Any] | None, ...]]


def _read(workspace: Workspace, plan: TrainingPlan, cache: _Rows) -> tuple[Collection[Any] | None, ...]:
    """Rows of the plan's data, read once for each way of reading."""
    key = json.dumps(method_payload(plan.method), sort_keys=True, default=str)
    if key not in cache:
        cache.clear()
        names = (plan.data, plan.eval_data, plan.final_data)
        cache[key] = tuple(plan.method.read(workspace, name) if name else None for name in names)
    return cache[key]


class _Finished(NamedTuple):
    run: str
    model: str
    settings: dict[str, Any]
    metrics: dict[str, Any]


def _runs_of(workspace: Workspace, group: str) -> tuple[dict[str, _Finished], set[str]]:
    """The finished runs of the group by the name in their plan; the names of all its runs."""
    with workspace.store.unit() as db:
        rows = db.execute(
            """SELECT config ->> 'name', status, run_id, (SELECT max(name) FROM artifacts a WHERE a.run_id = r.run_id),
                      config, metrics
               FROM runs r WHERE kind = 'train' AND config ->> 'group' = ? ORDER BY started_at""",
            [group],
        ).fetchall()
    finished = {
        name: _Finished(run, model or name, json.loads(config), json.loads(metrics or "{}"))
        for name, status, run, model, config, metrics in rows
        if status == "done"
    }
    return finished, {row[0] for row in rows}


def _require_same(plan: TrainingPlan, done: _Finished) -> None:
    """Raises BadInputError where the finished run's settings are others than the plan's."""
    old, new = (_compared(each) for each in (done.settings, json.loads(json.dumps(plan.record()))))
    if changed := sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key)):
        raise BadInputError(
            f"{plan.name} was trained with other settings ({', '.join(changed)}; {done.run}): give those or another "
            "--name"
        )


def _compared(record: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: record.get(name) for name in ("data", "eval_data", "final_data", "data_content", "method")}
    settings = {**kept, **record["config"], **record["objective"]}
    return {name: value for name, value in settings.items() if name not in _FREE}


def _run(
    workspace: Workspace,
    member: GroupMember,
    finished: Mapping[str, _Finished],
    errors: Mapping[str, str],
    *,
    one_loss: bool,
) -> GroupRun:
    plan = member.plan
    if plan.name not in finished:
        return GroupRun(member, None, {}, {}, error=errors.get(plan.name, "not trained"))
    run, model, _, metrics = finished[plan.name]
    final, warnings = _figures(metrics.get("evaluation") or {}), tuple(metrics.get("warnings") or ())
    if seen := metrics.get("evaluated_seen"):
        warnings += (f"{seen} of the evaluated rows have a prompt that was trained on",)
    if plan.final_data is None and final:
        return GroupRun(member, run, final, {}, model, warnings=warnings)
    step = metrics.get("training", {}).get("kept_step")
    rows = read_metrics(workspace.runs / run) if (workspace.runs / run).is_dir() else []
    row = next((row for row in rows if row["kind"] == "eval" and row["step"] == step), {})
    during = {"nll": row.get("nll", row.get("loss") if one_loss else None), "accuracy": row.get("accuracy")}
    chosen_by = {name: float(value) for name, value in during.items() if value is not None}
    return GroupRun(member, run, chosen_by, final, model, warnings=warnings)


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
