"""Groups of trainings that differ in swept settings and in their seed: each an ordinary run, compared on held-out data.

Covers: what of a group is trained already, training the rest, figures by settings with intervals over the seeds, the
best settings and the rule. Leaves out: reading `--sweep` (`assay.cli.sweep`), one training and its figures, which a
`GroupTraining` gives.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from assay.data.snapshots import get_snapshot
from assay.errors import AssayError, BadInputError, NotFoundError
from assay.models.devices import is_out_of_memory
from assay.runs.model_run import model_folder
from assay.runs.record import mark_dead_runs, recorded
from assay.statistics.intervals import Interval, bounds
from assay.statistics.seeds import seed_interval
from assay.workspace import Workspace


class GroupPlan(Protocol):
    """The plan of one training of a group. `force`: a name in use becomes NAME-v2."""

    @property
    def name(self) -> str: ...
    @property
    def group(self) -> str | None: ...
    @property
    def force(self) -> bool: ...


P = TypeVar("P", bound=GroupPlan)


class FinishedRun(NamedTuple):
    """As the store has it."""

    run: str
    model: str
    settings: dict[str, Any]
    metrics: dict[str, Any]


class GroupTraining(Protocol[P]):
    """How the trainings of a group are run. `kind`: of their run records."""

    kind: str

    def last_interrupted(self, plan: P) -> str | None:
        """The newest run of this name that left a state. Raises BadInputError where its settings are others."""

    def train(self, plan: P, *, resume: str | None, force: bool) -> None:
        """`force`: under another version of the name, where it is in use."""

    def compared(self, plan: P | Mapping[str, Any]) -> dict[str, Any]:
        """The settings of a plan, or of a run's record, in which a finished run must be as the plan."""

    def measured(self, member: "GroupMember[P]", finished: FinishedRun) -> "GroupRun":
        """With the figures of a finished run."""


@dataclass(frozen=True)
class GroupMember(Generic[P]):
    """One training of a group. `settings`: the swept ones, as text."""

    settings: Mapping[str, str]
    seed: int
    plan: P

    @property
    def label(self) -> str:
        return ", ".join([*(f"{name} {value}" for name, value in self.settings.items()), f"seed {self.seed}"])


@dataclass(frozen=True)
class GroupRun:
    """What became of it. `chosen_by`: figures on the data that settings are chosen by; `final`: on other data.
    `error`: why there are none. `warnings`: what must stand beside them. `trained`: by this command, not before."""

    member: GroupMember[Any]
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
        names = [name for name in each[0] if all(name in values for values in each)] if each else []
        return {name: SeedMean.of([values[name] for values in each]) for name in names}


@dataclass(frozen=True)
class GroupResult:
    """`metric`: of the rule, None where nothing was measured on held-out data; `lowest`: less of it is better. `best`:
    None without a metric, and where only one combination was trained. `ahead`: of the best less the second by the
    seeds that both have."""

    group: str
    data: str
    settings: tuple[SettingResult, ...]
    metric: str | None
    lowest: bool
    best: SettingResult | None
    second: SettingResult | None
    ahead: SeedMean | None
    final_data: str | None
    other_data: str  #: what gives figures on other data

    @property
    def rule(self) -> str:
        """How the best was chosen, and what that does to its figures."""
        if self.metric is None:
            return "no figure on held-out data that says which is better: nothing to choose by"
        end = "lowest" if self.lowest else "highest"
        text = f"the {end} mean {self.metric} over seeds on {Path(self.data).name}"
        if self.final_data is None:
            return text + f", which the figures are also on: the best's are too good ({self.other_data})"
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


def data_content(workspace: Workspace, names: Iterable[str | None]) -> str:
    """Identity of what snapshots and files hold: a group's runs must not be compared over a file that has changed."""
    digest = hashlib.sha256()
    for name in names:
        part = None
        if name is not None:
            try:
                part = get_snapshot(workspace, name).id
            except NotFoundError:
                if Path(name).is_file():
                    with Path(name).open("rb") as stream:
                        part = hashlib.file_digest(stream, "sha256").hexdigest()
        digest.update(f"{part}\n".encode())
    return digest.hexdigest()[:16]


def train_group(
    workspace: Workspace,
    training: GroupTraining[P],
    members: Sequence[GroupMember[P]],
    *,
    announce: Callable[[GroupMember[P], int, int], None] = lambda member, number, of: None,
) -> list[GroupRun]:
    """Train those that no finished run of the group is, from their saved state where one was interrupted.

    A failed run costs the others nothing. Raises BadInputError, before anything is trained, for a name in use by
    another model and for a finished or interrupted run of the group with other settings; and as the training does for
    the first run. `announce`: before a training, with its number among those due.
    """
    mark_dead_runs(workspace)
    group = members[0].plan.group or ""
    finished, begun = _runs_of(workspace, training.kind, group)
    for member in members:
        plan = member.plan
        if plan.name in finished:
            _require_same(training, plan, finished[plan.name])
        elif plan.name not in begun:
            model_folder(workspace, plan.name, force=plan.force)
        else:
            training.last_interrupted(plan)
    due = [member for member in members if member.plan.name not in finished]
    errors: dict[str, str] = {}
    for number, member in enumerate(due, start=1):
        announce(member, number, len(due))
        plan = member.plan
        # A run that was killed as it ended may have left its model, and no record that it is done.
        orphaned = plan.name in begun and (workspace.models / plan.name).exists()
        try:
            training.train(plan, resume=training.last_interrupted(plan), force=plan.force or orphaned)
        except AssayError as error:
            if isinstance(error, BadInputError) and number == 1 and not finished:
                raise  # most likely all of them have it
            errors[plan.name] = str(error)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            errors[plan.name] = f"out of memory: {error}".splitlines()[0]
    finished, _ = _runs_of(workspace, training.kind, group)
    runs = []
    for member in members:
        name = member.plan.name
        if name in finished:
            run = training.measured(member, finished[name])
        else:
            run = GroupRun(member, None, {}, {}, error=errors.get(name, "not trained"))
        runs.append(replace(run, trained=member in due))
    return runs


def compare_group(
    runs: Sequence[GroupRun],
    *,
    prefer: str,
    lower: Collection[str],
    neither: Collection[str] = (),
    data: str,
    final_data: str | None,
    other_data: str,
) -> GroupResult:
    """`prefer`: the metric to choose by, where every finished run has it; else the first that every one has. `lower`:
    metrics of which less is better; `neither`: of which neither is, which are chosen by only if preferred. `data`,
    `final_data`: names of what the figures are on; `other_data`: what gives figures on other data."""
    by_settings: dict[tuple[str, ...], list[GroupRun]] = {}
    for run in runs:
        by_settings.setdefault(tuple(run.member.settings.values()), []).append(run)
    results = [SettingResult(of[0].member.settings, tuple(of)) for of in by_settings.values()]
    measured = [result for result in results if result.done]
    common = (
        [name for name in measured[0].figures() if all(name in one.figures() for one in measured)] if measured else []
    )
    metric = prefer if prefer in common else next((name for name in common if name not in neither), None)
    best = second = ahead = None
    if metric is not None:
        sign = -1.0 if metric in lower else 1.0
        ranked = sorted(measured, key=lambda one: sign * one.figures()[metric].mean, reverse=True)
        if len(ranked) > 1:
            best, second = ranked[:2]
            each = [{run.member.seed: run.chosen_by[metric] for run in one.done} for one in (best, second)]
            shared = [each[0][seed] - each[1][seed] for seed in each[0] if seed in each[1]]
            ahead = SeedMean.of(shared) if shared else None
    group, lowest = runs[0].member.plan.group or "", metric in lower
    return GroupResult(group, data, tuple(results), metric, lowest, best, second, ahead, final_data, other_data)


def _runs_of(workspace: Workspace, kind: str, group: str) -> tuple[dict[str, FinishedRun], set[str]]:
    """The finished runs of the group by the name in their plan; the names of all its runs."""
    with workspace.store.unit() as db:
        rows = db.execute(
            """SELECT config ->> 'name', status, run_id, config, metrics,
                      (SELECT max(name) FROM artifacts a WHERE a.run_id = r.run_id AND a.kind <> 'rollouts')
               FROM runs r WHERE kind = ? AND config ->> 'group' = ? ORDER BY started_at""",
            [kind, group],
        ).fetchall()
    finished = {
        name: FinishedRun(run, model or name, json.loads(config), json.loads(metrics or "{}"))
        for name, status, run, config, metrics, model in rows
        if status == "done"
    }
    return finished, {row[0] for row in rows}


def _require_same(training: GroupTraining[P], plan: P, done: FinishedRun) -> None:
    """Raises BadInputError where the finished run's settings are others than the plan's."""
    old, new = (recorded(training.compared(each)) for each in (done.settings, plan))
    if changed := sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key)):
        raise BadInputError(
            f"{plan.name} was trained with other settings ({', '.join(changed)}; {done.run}): give those or another "
            "--name"
        )
