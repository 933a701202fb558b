"""An online loop as one recorded policy training: `assay loop`, and the same in Python.

    run_loop(Workspace.find(), load_loop(Path("LOOP.yaml")))

Covers: opening what the configuration names, the first reward model, going on with an unfinished run. Leaves out: the
training itself (`assay_policy_training.training.run`), what happens between its steps (`labelling`).

A loop is a run of kind `rl`, whose folder also holds `loop.json`: its configuration and its beginning. Killed at any
moment it goes on from its newest checkpoint, in a new run that takes over the old one's files.
"""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import typer

from assay.domain import Pool
from assay.errors import BadInputError
from assay.models.parallelism.distributed import world_size
from assay.registry import absolute_name, settings_of
from assay.runs.callbacks import Callback
from assay.runs.json_log import read_metrics
from assay.runs.model_run import model_folder
from assay.runs.record import Run, locate_model, mark_dead_runs, start_run
from assay.system.atomic_files import replacing
from assay.workspace import Workspace
from assay_pipelines.online.config import LoopConfig, loop_of, named_field
from assay_pipelines.online.journal import LOOP_FILE, Journal, LabelRow
from assay_pipelines.online.label_sources.kind import LABEL_SOURCES, LabelSource
from assay_pipelines.online.labelling import OnlineLabelling
from assay_pipelines.online.purchase import LabelPurchase
from assay_pipelines.online.record import LoopRecord
from assay_pipelines.online.refit import HeadsRefit, Refit
from assay_pipelines.online.reward_host import InProcessReward, RewardHost, ServedReward
from assay_pipelines.online.selectors.candidates import Candidates
from assay_pipelines.online.selectors.kind import SELECTORS, Selector, require
from assay_pipelines.online.start import LoopStart, first_version, initial_pairs, start_folder
from assay_pipelines.online.whole_model import WholeModelRefit
from assay_policy_training.plugins.protocols import StepMetrics
from assay_policy_training.recipe.loading import load_recipe
from assay_policy_training.rollouts.open_rewards import open_rewards
from assay_policy_training.rollouts.reward_uri import recorded_reward
from assay_policy_training.rollouts.rewards import ModelReward
from assay_policy_training.trainer import PolicyTrainer, new_plan
from assay_policy_training.training.checkpoint import checkpoints
from assay_policy_training.training.config import PolicyRunConfig
from assay_policy_training.training.run import Plan, TrainedPolicy
from assay_serving.engines.heads import Posterior

#: What may be changed when an unfinished loop goes on.
CHANGEABLE = frozenset({"budget", "alarm", "swap"})


@dataclass(frozen=True)
class _Unfinished:
    """The newest run of the loop, which did not end. `resume`: whether it has a checkpoint."""

    folder: Path
    config: Mapping[str, Any]
    record: str
    model: str
    rows: tuple[LabelRow, ...]

    @property
    def resume(self) -> str | None:
        return self.folder.name if checkpoints(self.folder) else None


def run_loop(
    workspace: Workspace,
    config: LoopConfig,
    *,
    fresh: bool = False,
    folder: Path | None = None,
    on_start: Callable[[Path], None] = lambda folder: None,
    callbacks: Sequence[Callback] = (),
) -> TrainedPolicy:
    """Train the policy, buying labels and refitting the reward as configured; go on with an unfinished run of the same
    loop unless `fresh`. `folder`: where files that the configuration names are looked for.

    Raises BadInputError for a configuration that cannot run or differs from the unfinished run's, and what
    `train_policy` raises.
    """
    if world_size() > 1:
        raise BadInputError("a loop trains in one process; rollouts may have their own (asynchrony.actors)")
    plan, selector = _plan(workspace, config, folder), selector_of(config, folder)
    trainer = PolicyTrainer(workspace, plan, callbacks)
    mark_dead_runs(workspace)
    unfinished = None if fresh else _unfinished(workspace, config)
    if unfinished is not None:
        _remove_unfinished_policy(workspace, config.name)
    elif (workspace.models / config.name).exists():
        raise BadInputError(_name_in_use(workspace, config.name), field="name")
    model_folder(workspace, config.name)  # before labels are bought for it
    second = config.labels.other
    references = [] if second is None else [recorded_reward(second, None, "labels.other", workspace)]
    if config.reward.start is not None:
        start_folder(workspace, config.reward.start)
    with named_field("labels.source"):
        source = label_source(workspace, config, folder)
    make = HeadsRefit if config.reward.refit == "heads" else WholeModelRefit
    with named_field("policy" if config.reward.backbone is None else "reward.backbone"):
        base = locate_model(workspace, config.reward.backbone or config.policy)[0]
        refit: Refit = make(workspace, f"{config.name}-reward", config.reward, base, plan.device, plan.recipe.seed)
    pool: Pool = "gold" if config.labels.source["kind"] in ("verifier", "people") else "silver"
    if unfinished is None:
        with start_run(workspace, "loop", config.to_dict()) as run:
            record = LoopRecord(workspace, f"loop {config.name} {run.id}", pool)
            start = first_version(run, config, plan, trainer.prompts, refit, record, source)
            logs = run.folder
    else:
        record = LoopRecord(workspace, unfinished.record, pool)
        version = refit.load(workspace.models / unfinished.model)
        start, logs = LoopStart(version, initial_pairs(workspace, config), unfinished.rows), unfinished.folder
    with ExitStack() as stack:
        host: RewardHost
        if config.reward.host == "serve":
            host = ServedReward(start.version, logs, workspace.models, device=plan.device, port=config.reward.port)
            typer.echo(f"the reward is served at {host.url}", err=True)
        else:
            host = InProcessReward(start.version)
        stack.enter_context(closing(host))
        trainer.rewards = [ModelReward(host)]
        opening: dict[str, Any] = {"wait": None, "deadline": 600.0, "option": "labels.other", "device": plan.device}
        other = next(iter(open_rewards(stack, references, [None] * len(references), **opening)), None)

        def plugins(run: Run) -> list[StepMetrics]:
            journal = Journal(run.folder)
            purchase = LabelPurchase(record, source, journal, run, plan.recipe.seed, config.labels.held_out)
            if unfinished is not None:
                journal.begin_from(unfinished.folder)
                purchase.lived = max((int(row["step"]) for row in read_metrics(unfinished.folder)), default=0)
            if unfinished is None or unfinished.resume is None:
                journal.cut(dict.fromkeys(journal.sizes(), 0))
                journal.add_labels(start.rows)
                purchase.load(start.rows)
            _write_start(run.folder, config, record, start)
            parts = (config, purchase, selector, refit, host, start.version)
            return [OnlineLabelling(*parts, initial=start.initial, other=other)]

        trainer.extra = plugins
        return trainer.train(resume=None if unfinished is None else unfinished.resume, on_start=on_start)


def selector_of(config: LoopConfig, folder: Path | None = None) -> Selector:
    """Raises BadInputError for an unknown one, a wrong setting of it, and one that needs what the loop has not."""
    settings = dict(config.labels.selector)
    if "selector" in settings:  # that of `diversity`
        settings["selector"] = absolute_name(settings["selector"], folder or Path())
    selector: Selector = SELECTORS.create(str(settings.pop("kind")), settings, folder=folder, field="labels.selector")
    rows, none = np.zeros(0, dtype=np.int64), np.zeros((0, 1))
    other = None if config.labels.other is None else none[:, 0]
    members, features, belief = none, none, Posterior(none[:, 0], none)
    if config.reward.refit != "heads":
        members = features = belief = None  # type: ignore[assignment]
    require(
        selector, Candidates(rows, rows, rows, none[:, 0], members, other, features, none[:, 0], none[:, 0], belief)
    )
    return selector


def label_source(workspace: Workspace, config: LoopConfig, folder: Path | None = None) -> LabelSource:
    """Raises BadInputError for an unknown one, or a wrong setting of it."""
    settings = dict(config.labels.source)
    kind = str(settings.pop("kind"))
    takes = {setting.name for setting in settings_of(LABEL_SOURCES.find(kind, folder=folder, field="labels.source"))}
    supplied = {"workspace": workspace, "loop": config.name}
    if reserved := sorted(supplied.keys() & settings.keys()):
        raise BadInputError("is no setting of a label source", field=f"labels.source.{reserved[0]}")
    settings |= {name: value for name, value in supplied.items() if name in takes}
    for name in takes & {"judge", "truth"}:
        if isinstance(judge := settings.get(name), Mapping):
            settings[name] = {**judge, "kind": absolute_name(judge.get("kind"), folder or Path())}
    source: LabelSource = LABEL_SOURCES.create(kind, settings, folder=folder, field="labels.source")
    return source


def _plan(workspace: Workspace, config: LoopConfig, folder: Path | None) -> Plan:
    options: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in config.training.items()
    }
    options_of_runs = set(PolicyRunConfig.__dataclass_fields__) - {"rewards", "policy"}
    if wrong := sorted(options.keys() - options_of_runs):
        raise BadInputError(
            f"no option of a policy's training; one of {', '.join(sorted(options_of_runs))}", field=wrong[0]
        )
    with named_field("policy"):
        locate_model(workspace, config.policy)
    watch = tuple(recorded_reward(text, None, "training.watch", workspace) for text in options.pop("watch", ()))
    run_config = PolicyRunConfig(policy=config.policy, rewards=(f"loop:{config.name}",), watch=watch, **options)
    beside = None if folder is None else folder / config.recipe
    recipe = str(beside) if beside is not None and beside.is_file() else config.recipe
    keys = [f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in config.set.items()]
    plan = new_plan(run_config, load_recipe(recipe, keys), config.name)
    if config.alarm.action == "return" and not (plan.recipe.checkpoint_every or plan.recipe.checkpoint_minutes):
        raise BadInputError("return needs checkpoints (checkpoint_every)", field="alarm.action")
    return plan


def _unfinished(workspace: Workspace, config: LoopConfig) -> _Unfinished | None:
    """Raises BadInputError for one that is still going on, or was configured otherwise."""
    with workspace.store.unit() as db:
        rows = db.execute(
            """SELECT run_id, status FROM runs WHERE kind = 'rl' AND config ->> 'name' = ?
               ORDER BY started_at DESC, run_id DESC""",
            [config.name],
        ).fetchall()
    for run_id, status in rows:
        path = workspace.runs / run_id / LOOP_FILE
        if status == "done":
            return None
        if not path.is_file():
            continue
        if status == "running":
            raise BadInputError(f"the loop {config.name} is going on: {run_id}")
        payload = json.loads(path.read_text(encoding="utf-8"))
        _check_same(config, payload["config"], run_id)
        labels = tuple(LabelRow(**{**row, "judgments": tuple(row["judgments"])}) for row in payload["rows"])
        return _Unfinished(path.parent, payload["config"], payload["record"], payload["model"], labels)
    return None


def _name_in_use(workspace: Workspace, name: str) -> str:
    """Why a loop of this name cannot begin, and what to do."""
    with workspace.store.unit() as db:
        row = db.execute(
            """SELECT run_id FROM runs WHERE kind = 'rl' AND status = 'done' AND config ->> 'name' = ?
               ORDER BY started_at DESC LIMIT 1""",
            [name],
        ).fetchone()
    anew = f"give another name, or remove it: assay models remove {name}"
    if row is not None and (workspace.runs / row[0] / LOOP_FILE).is_file():
        return f"the loop {name} has ended ({row[0]}) and its policy is the model {name!r}; for another loop {anew}"
    return f"a model {name!r} exists, which is not of this loop; {anew}"


def _remove_unfinished_policy(workspace: Workspace, name: str) -> None:
    """That of a run which was killed while it saved or evaluated it: it is saved again. That of a run which ended, and
    what is no policy, stays."""
    folder = workspace.models / name
    with workspace.store.unit() as db:
        others = db.execute(
            """SELECT 1 FROM artifacts LEFT JOIN runs USING (run_id)
               WHERE path = ? AND (runs.kind IS DISTINCT FROM 'rl' OR runs.status = 'done')""",
            [workspace.stored_path(folder)],
        ).fetchall()
    if not others:
        shutil.rmtree(folder, ignore_errors=True)


def _check_same(config: LoopConfig, before: Mapping[str, Any], run_id: str) -> None:
    now, then = config.to_dict(), loop_of(before).to_dict()
    for key in now.keys() - CHANGEABLE:
        if now[key] != then[key]:
            raise BadInputError(
                f"{key} is not as in the unfinished run {run_id}: begin anew (--fresh), or set it back", field=key
            )


def _write_start(folder: Path, config: LoopConfig, record: LoopRecord, start: LoopStart) -> None:
    payload = {
        "config": config.to_dict(),
        "record": record.name,
        "model": start.version.reference(record.workspace),
        "rows": [asdict(row) for row in start.rows],
    }
    with replacing(folder / LOOP_FILE) as temporary:
        temporary.write_text(json.dumps(payload, ensure_ascii=False) + "\n", encoding="utf-8")
