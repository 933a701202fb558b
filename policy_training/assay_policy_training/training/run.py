"""A recorded policy training: from a plan to a saved policy with its lineage.

Covers: loading the policy, held-out evaluation before and after, training with resume, the saved checkpoint and the
rollouts as artifacts, scored rollouts in the store. Leaves out: the loop (`loop`), the command line (`commands`),
opening reward sources (the caller does, so that any `RewardSource` works).
"""

import gc
import hashlib
import json
import logging
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch

from assay.data.json_lines import Lines, parse_object
from assay.domain import prompt_of
from assay.errors import BackendError, BadInputError
from assay.models.attention.packing import unwrapped
from assay.models.chat.options import ChatOptions
from assay.models.contamination import KEY, BenchmarkUse, read_uses, union, write_uses
from assay.models.parallelism.distributed import Parallel, is_follower, local_device, world_size
from assay.models.parallelism.process_group import process_group
from assay.models.parallelism.strategy import resolve
from assay.models.spec import RewardModelSpec, weights_digest
from assay.planning.known_plans import prompts_of, show_plan_line
from assay.planning.least_memory import require_memory
from assay.registry import unknown
from assay.runs.callbacks import Callback, StepCallback
from assay.runs.json_log import METRICS_FILE
from assay.runs.model_run import RunPlan, copy_run_files, model_run
from assay.runs.progress_bar import progress_bar
from assay.runs.record import Run, find_artifact, folder_digest, locate_model, mark_dead_runs, model_of_version
from assay.runs.trackers import open_trackers, require_trackers
from assay.score import Score
from assay.system.atomic_files import replacing
from assay.workspace import Workspace
from assay_policy_training.core.metrics import is_kl
from assay_policy_training.core.policy import RELOAD_TOLERANCE, Policy, policy_renderer, reload_difference
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.plugins.prompts.mixtures import split_weight
from assay_policy_training.plugins.protocols import PublishesWeights, RewardSource, StepMetrics
from assay_policy_training.plugins.samplers.transformers import Transformers
from assay_policy_training.recipe.loading import recipe_from_dict, recipe_to_dict
from assay_policy_training.recipe.schema import Recipe
from assay_policy_training.rollouts.functions.source import CallSettings
from assay_policy_training.rollouts.prompt_length import select_prompts
from assay_policy_training.rollouts.rewards import ModelReward, ProcessReward
from assay_policy_training.training.checkpoint import checkpoints
from assay_policy_training.training.checkpoint_choice import CheckpointChoice
from assay_policy_training.training.config import PolicyRunConfig
from assay_policy_training.training.distributed import WorkerConfig, save_divided
from assay_policy_training.training.evaluation import (
    PolicyChange,
    PolicyEvaluation,
    ScheduledEvaluation,
    evaluate_policy,
    step_figures,
)
from assay_policy_training.training.held_out_reward import SUSPECTS_FILE, HeldOutReward, WatchSettings
from assay_policy_training.training.loop import ROLLOUTS_FILE, PolicyLoop
from assay_policy_training.training.optimiser import less_memory, policy_optimiser
from assay_policy_training.training.parallel_checks import check_parts
from assay_serving.score_records import save_scores
from assay_serving.scorer import ModelInfo, ScoreItem

log = logging.getLogger(__name__)
EVALUATION_FILE = "evaluation.json"
ROWS_PER_UNIT = 5000
_LISTS = ("rewards", "watch", "prompts", "columns", "evaluation_prompts")  #: of a plan; one text in older ones
#: Sections of a recipe that do not decide the memory of a step.
# fmt: off
_NO_MEMORY = frozenset((
    "name", "paper", "seed", "steps", "checkpoint_every", "checkpoint_minutes", "source", "reward", "filters", "stop",
))
# fmt: on


@dataclass(frozen=True, kw_only=True)
class Plan(RunPlan, PolicyRunConfig):
    """The configuration of a run, sufficient to resume it. `force`: a name in use becomes NAME-v2. `group`: common name
    of runs that are compared (`assay.runs.sweep`), all with prompts of this `data_content`."""

    run_name: ClassVar[str] = "policy training"

    recipe: Recipe
    name: str  #: of the new policy
    evaluation_samples: int = 4
    parallel: Parallel = "auto"  #: how several processes divide the work
    force: bool = False
    group: str | None = None
    data_content: str | None = None

    @property
    def calls(self) -> CallSettings:
        """Of reward functions."""
        return CallSettings(self.reward_timeout, self.on_reward_error)

    @property
    def memory_settings(self) -> dict[str, Any]:
        """What decides its memory, beside its model and prompts."""
        return {name: value for name, value in recipe_to_dict(self.recipe).items() if name not in _NO_MEMORY}

    def to_dict(self) -> dict[str, Any]:
        return {
            **self.__dict__,
            "recipe": recipe_to_dict(self.recipe),
            **{name: list(getattr(self, name)) for name in _LISTS},
        }

    @classmethod
    def read(cls, workspace: Workspace, run_id: str) -> "Plan":
        """Raises NotFoundError for a run that is not a policy training."""
        payload = cls.read_payload(workspace, run_id)
        recipe = recipe_from_dict(payload.pop("recipe"))
        lists = {name: payload.get(name) or () for name in _LISTS}
        tuples = {name: (value,) if isinstance(value, str) else tuple(value) for name, value in lists.items()}
        return cls(**{**payload, **tuples, "recipe": recipe})


@dataclass(frozen=True)
class TrainedPolicy:
    """The outcome of a policy training."""

    run_id: str
    folder: Path  #: of the run: metrics.jsonl, rollouts.jsonl, evaluation.json
    policy: Path  #: stock checkpoint
    policy_artifact: str
    rollouts_artifact: str
    metrics: dict[str, Any]
    steps: list[dict[str, Any]]  #: metrics of every step, those before a resume included
    before: PolicyEvaluation | None  #: on the first held-out set
    after: PolicyEvaluation | None
    #: Of several held-out sets, by name: before and after.
    by_set: Mapping[str, tuple[PolicyEvaluation, PolicyEvaluation]] = field(default_factory=dict)

    @property
    def change(self) -> PolicyChange | None:
        """On the held-out prompts, each compared with itself."""
        return PolicyChange.between(self.before, self.after) if self.before and self.after else None


def train_policy(
    workspace: Workspace,
    plan: Plan,
    prompts: Sequence[PromptItem],
    rewards: Sequence[RewardSource],
    *,
    held_out: Sequence[PromptItem] | Mapping[str, Sequence[PromptItem]] = (),
    watched: Sequence[RewardSource] = (),
    resume: str | None = None,
    on_start: Callable[[Path], None] = lambda folder: None,
    callbacks: Sequence[Callback] = (),
    extra: Callable[[Run], Sequence[StepMetrics]] = lambda run: (),
) -> TrainedPolicy:
    """Train, evaluate and save `workspace.models / plan.name`, with progress on standard error.

    `held_out`: prompts to evaluate on, of several sets by name. `watched`: rewards that are not trained on
    (`held_out_reward`).
    `resume`: id of the interrupted run whose plan this is; training continues from its newest checkpoint, in a new run.
    `on_start` is called with the run's folder. `extra`: given the run, plug-ins of S16 for it alone. Raises
    BadInputError for a name that exists or that another run is about to give, for resuming a run that has not ended,
    and all that the parts raise.
    """
    mark_dead_runs(workspace)
    if resume is not None:
        _require_ended(workspace, resume)
    require_trackers(plan.track)
    if resume is not None and not checkpoints(workspace.runs / resume):
        raise BadInputError(
            f"{resume} has no checkpoint; one was due every {plan.recipe.checkpoint_every} steps",
            field="--resume",
        )
    sets = held_out if isinstance(held_out, Mapping) else {"": held_out} if held_out else {}
    prepared = _prepared(workspace, plan, prompts, rewards, sets, watched)
    inputs = _inputs(workspace, plan, rewards, resume)
    settings = plan.to_dict() | {"processes": world_size(), "division": resolve(plan.parallel)}
    # Refuses a name in use, after all that is wrong with the run itself.
    with model_run(workspace, "rl", plan.name, settings, force=plan.force or None, inputs=inputs) as (run, target):
        plan.write(run.folder)
        if resume is not None:
            copy_checkpoint(workspace.runs / resume, run.folder)
        on_start(run.folder)
        return _train(run, plan, prepared, rewards, watched, target, callbacks, extra(run))


def _require_ended(workspace: Workspace, run_id: str) -> None:
    """Raises BadInputError for a run that is still going on this machine: its checkpoint is about to be replaced."""
    with workspace.store.unit() as db:
        query = "SELECT pid FROM runs WHERE run_id = ? AND status = 'running' AND host = ?"
        row = db.execute(query, [run_id, socket.gethostname()]).fetchone()
    if row is not None:
        raise BadInputError(f"{run_id} is still running, as process {row[0]}", field="--resume")


@dataclass(frozen=True)
class _Prepared:
    """What is read and checked before there is a run. `held_out`: by set; `left_out`: prompts that are too long."""

    config: WorkerConfig
    held_out: Mapping[str, Sequence[PromptItem]]
    left_out: Mapping[str, Any]
    carried: tuple[BenchmarkUse, ...]
    longest: int  #: tokens of the longest prompt that is trained on


def _prepared(
    workspace: Workspace,
    plan: Plan,
    prompts: Sequence[PromptItem],
    rewards: Sequence[RewardSource],
    held_out: Mapping[str, Sequence[PromptItem]],
    watched: Sequence[RewardSource],
) -> _Prepared:
    """Raises what can be known of model, prompts, sampler, libraries and memory without loading a weight."""
    recipe = plan.recipe
    base = locate_model(workspace, plan.policy)[0]
    media = workspace.media.root
    teacher = None if recipe.teacher is None else locate_model(workspace, recipe.teacher)[0]
    on = plan.on or recipe.asynchrony.run_on
    check_parts(replace(recipe, teacher=teacher), resolve(plan.parallel), on)
    renderer = policy_renderer(base, recipe.sampling.max_prompt_tokens, recipe.chat, media)
    left_out = {}
    selected: dict[str | None, list[PromptItem]] = {}
    longest = 0
    for name, items in ((None, prompts), *held_out.items()):
        selection = select_prompts(items, renderer, recipe.sampling)
        selected[name] = selection.items
        longest = selection.longest if name is None else longest
        if selection.too_long:
            what = "prompts" if name is None else f"evaluation prompts {name}".strip()
            log.warning("%s: %s; left out", what, selection)
            left_out[what] = {"too_long": len(selection.too_long), "of": len(items)}
    prompts = selected.pop(None)
    if is_kl(plan.best_by):
        recipe = replace(recipe, report_kl=recipe.report_kl is not False)
    config = WorkerConfig(
        recipe=recipe_to_dict(recipe),
        policy=base,
        teacher=teacher,
        prompts=tuple(prompts),
        rewards=plan.rewards,
        device=plan.device,
        parallel=plan.parallel,
        on=on,
        calls=plan.calls,
        media=media,
        evaluations=len(selected),
        eval_every=plan.eval_every,
    )
    _require_memory(config, recipe, local_device(plan.device))
    carried = carried_uses([base, *([teacher] if teacher else [])], [*rewards, *watched])
    return _Prepared(config, {str(name): items for name, items in selected.items()}, left_out, carried, longest)


def _train(
    run: Run,
    plan: Plan,
    prepared: _Prepared,
    rewards: Sequence[RewardSource],
    watched: Sequence[RewardSource],
    target: Path,
    callbacks: Sequence[Callback],
    more: Sequence[StepMetrics],
) -> TrainedPolicy:
    config, selected, carried = prepared.config, prepared.held_out, prepared.carried
    prompts, recipe = config.prompts, recipe_from_dict(config.recipe)
    if any("logp_ref" in getattr(plugin, "needs", ()) for plugin in more):
        recipe = replace(recipe, report_kl=recipe.report_kl is not False)
        config = replace(config, recipe=recipe_to_dict(recipe))
    run.metrics["prompts_left_out"] = prepared.left_out
    run.metrics[KEY] = [asdict(use) for use in carried]
    write_uses(run.folder, carried)  # for a policy that is exported while the run continues
    if not is_follower():
        ranks = world_size() if plan.parallel == "fsdp" else 1
        place = (local_device(plan.device), ranks, prompts_of(prepared.longest))
        show_plan_line(config.policy, plan.memory_settings, *place)
    settings = WatchSettings(share=plan.watch_share, seed=recipe.seed)

    def evaluate(when: str, policy: Policy) -> dict[str, PolicyEvaluation]:
        evaluations: dict[str, PolicyEvaluation] = {}
        for name, items in selected.items():
            with progress_bar(f"evaluating {when} {name or ''}".rstrip(), len(items), unit="prompts") as advance:
                evaluations[name] = evaluate_policy(
                    policy,
                    items,
                    rewards,
                    sampling=recipe.sampling,
                    samples=plan.evaluation_samples,
                    seed=recipe.seed,
                    composition=recipe.reward,
                    contexts=recipe.contexts,
                    sampler=recipe.opened_sampler(policy, Transformers()),
                )
                advance(len(items))
        return evaluations

    extra: list[StepMetrics] = [HeldOutReward(watched, run.folder, settings)] if watched else []
    if plan.eval_every and selected:
        extra.append(ScheduledEvaluation(plan.eval_every, evaluate))
    extra += more  # last: they read what the others measured
    choice = CheckpointChoice(plan.keep_checkpoints, plan.best_by, plan.keep)
    with process_group(plan.parallel, plan.device, config) as (parallel, device):
        trainer = config.begin(parallel, device, rewards, run.folder, extra, choice)
        before: dict[str, PolicyEvaluation] = {}
        if selected:
            before = evaluate("before", trainer.policy)
        best_by, figures = plan.best_by.removeprefix("-"), step_figures(before)
        if plan.keep == "best" and best_by.startswith("eval_") and best_by not in figures:
            raise unknown("metric of the evaluations", best_by, figures, field="--best-by")
        done = trainer.resume()
        with ExitStack() as stack, progress_bar("training the policy", recipe.steps, unit="steps") as advance:
            stack.enter_context(closing(trainer))
            advance(done)
            called = [StepCallback(lambda _: advance(1)), *callbacks]
            tracked = stack.enter_context(open_trackers(plan.track, run.folder, plan.to_dict(), keep_to_step=done))
            trainer.train(callbacks=[*called, *tracked])
        if parallel.world > 1:  # what fails from here on leaves no other process to collect a checkpoint from
            trainer.save_checkpoint()
        policy, compared, after = trainer.policy, None, dict[str, PolicyEvaluation]()
        if parallel.equal_passes:
            compared = save_divided(trainer, prompts, target)
            with _policy_is_saved(target):
                after = evaluate("after", policy)
    with checkpoint_on_failure(trainer):
        if compared is None:
            policy.save(target)  # before anything else that may fail
        write_uses(target, carried)
        spec: dict[str, Any] = {"base": plan.policy, "base_version": trainer.policy_version, "recipe": recipe.name}
        spec |= {"updates": str(trainer.updates), "version": weights_digest(target)}
        spec |= {"chat": asdict(recipe.chat)} if recipe.chat != ChatOptions() else {}
        policy_artifact = run.add_artifact("policy", target.name, target, content_hash=folder_digest(target), spec=spec)
    with _policy_is_saved(target):
        rollouts_artifact = _record_rollouts(run, target.name, rewards)
        steps = [parse_object(line) for _, line in Lines(run.folder / METRICS_FILE)] if recipe.steps else []
        rollouts, missing = (sum(step.get(name, 0) for step in steps) for name in ("rollouts", "rewards_missing"))
        without = [f"{missing} of {rollouts} rollouts have no reward, and are not trained on"] if missing else []
        run.metrics.update(
            {
                "steps": trainer.step,
                "updates": trainer.updates,
                "stopped_early": trainer.stopped,
                "saved_step": trainer.step if trainer.returned_to is None else trainer.returned_to,
                "best": dict(zip(("step", plan.best_by), choice.best, strict=True)) if choice.best else None,
                "warnings": [*without, *trainer.warnings],
                "resumed_at": done,
                "device": str(device),
                "attention": str(getattr(unwrapped(policy.model).config, "_attn_implementation", "") or ""),
                "processes": world_size(),
                "division": parallel.name,
                "first_step": steps[0] if steps else None,
                "last_step": steps[-1] if steps else None,
                "rollouts": rollouts,
                "rewards_missing": missing,
            }
        )
        after = after or evaluate("after", policy)
        by_set = {name: (evaluation, after[name]) for name, evaluation in before.items()}
        main = next(iter(by_set.values()), (None, None))
        run.metrics["before"], run.metrics["after"] = (None if one is None else one.to_dict() for one in main)
        if compared is None:
            # One short rollout, to compare the saved log-probs with the trainer's; an engine may be asleep.
            in_process = not isinstance(trainer.sampler, PublishesWeights)
            sampler = trainer.sampler if in_process else recipe.opened_sampler(policy, Transformers())
            probe = sampler.rollout(prompts[:1], 1, seed=recipe.seed, version=trainer.updates)
            compared = probe, policy.float32_logp(probe)
            del sampler
        del trainer, extra, policy, parallel  # the optimiser and the weights: the saved ones are loaded alone
        gc.collect()
        difference = run.metrics["reload_difference"] = reload_difference(target, *compared, device, config.media)
        if by_set:
            sets = {name: _compared(*pair) for name, pair in by_set.items()}
            run.metrics.update(next(iter(sets.values())) | ({"sets": sets} if len(sets) > 1 else {}))
            with replacing(run.folder / EVALUATION_FILE) as temporary:
                payload = {
                    name: run.metrics[name] for name in ("before", "after", "change", "sets") if name in run.metrics
                }
                temporary.write_text(json.dumps(payload, indent=2) + "\n", encoding="utf-8")
        if not difference <= RELOAD_TOLERANCE:
            raise BackendError(
                f"the saved policy differs from the trained one by {difference:.3g} in a log-prob (at most "
                f"{RELOAD_TOLERANCE:g} is rounding); its weights are in {target}: do not use them unexamined"
            )
    return TrainedPolicy(
        run.id,
        run.folder,
        target,
        policy_artifact,
        rollouts_artifact,
        dict(run.metrics),
        steps,
        main[0],
        main[1],
        by_set,
    )


def _require_memory(config: WorkerConfig, recipe: Recipe, device: torch.device) -> None:
    autocast = recipe.optimisation.autocasts(device)
    recipe = replace(recipe, optimisation=replace(recipe.optimisation, autocast=autocast))

    def loaded(recipe: Recipe) -> tuple[list[Any], list[torch.optim.Optimizer]]:
        policy = replace(config, recipe=recipe_to_dict(recipe)).load(torch.device("cpu"))
        return policy.networks, [policy_optimiser(policy, recipe.optimisation)]

    ranks = world_size() if config.parallel == "fsdp" else 1
    less = {words: partial(loaded, other) for words, other in less_memory(recipe, ranks).items()}
    require_memory(config.policy, partial(loaded, recipe), less, device, ranks, "--policy")


def _compared(before: PolicyEvaluation, after: PolicyEvaluation) -> dict[str, Any]:
    change = PolicyChange.between(before, after)
    return {"before": before.to_dict(), "after": after.to_dict(), "change": change.to_dict()}


def carried_uses(models: Sequence[str], rewards: Sequence[RewardSource]) -> tuple[BenchmarkUse, ...]:
    """What a policy inherits of registered benchmarks: from the models that it begins with and learns from, and from
    the reward models that it is trained on or stopped by, as their server states it."""
    folders = [Path(model).expanduser() for model in models]
    specs = [RewardModelSpec.read(folder) if folder.is_dir() else None for folder in folders]
    infos = [source.scorer.info for source in rewards if isinstance(source, ModelReward | ProcessReward)]
    return union(
        *(read_uses(folder) for folder in folders),
        *(spec.contamination for spec in specs if spec is not None),
        *(info.contamination for info in infos),
    )


@contextmanager
def checkpoint_on_failure(trainer: PolicyLoop) -> Iterator[None]:
    """Where the block fails, the trained weights are in a checkpoint, from which the run resumes."""
    try:
        yield
    except (Exception, KeyboardInterrupt):
        if trainer.policy.parallel.world == 1:
            trainer.save_checkpoint()
        raise


@contextmanager
def _policy_is_saved(target: Path) -> Iterator[None]:
    """Around what follows the saving: an error there says that the policy is not lost."""
    try:
        yield
    except (Exception, KeyboardInterrupt):
        log.warning("the trained policy is saved: %s", target)
        raise


def _inputs(workspace: Workspace, plan: Plan, rewards: Sequence[RewardSource], resume: str | None) -> dict[str, str]:
    """The inputs of the run: files, and reward models, policy and interrupted run as far as the workspace has them."""
    inputs = {resume: "run"} if resume is not None else {}
    for source in rewards:
        if isinstance(source, ModelReward | ProcessReward):
            info = source.scorer.info
            inputs |= model_of_version(workspace, info.version.partition("@")[0], info.name)
    for name in (plan.policy, plan.recipe.teacher):
        if name and (policy := find_artifact(workspace, name, ("policy",))):
            inputs[policy[1]] = "artifact"
    read = [split_weight(text)[0] for text in plan.prompts]
    read += [text.rpartition("=")[2] for text in plan.evaluation_prompts]
    read += getattr(plan.recipe.sampler, "files", ())
    return inputs | {str(Path(name).resolve()): "file" for name in read if Path(name).is_file()}


def copy_checkpoint(old: Path, new: Path) -> None:
    """Copy the checkpoints and the logs of an interrupted run; the old run is not changed."""
    names = [folder.name for folder in checkpoints(old)]  # never written to again
    copy_run_files(old, new, linked=names, copied=[METRICS_FILE, ROLLOUTS_FILE, SUSPECTS_FILE])


def _record_rollouts(run: Run, name: str, rewards: Sequence[RewardSource]) -> str:
    """The rollouts as an artifact, and the scored ones in the store, so that lineage walks from score to run."""
    path = run.folder / ROLLOUTS_FILE
    path.touch()
    # A score of less than the whole response is not the response's.
    sources = [source for source in rewards if isinstance(source, ModelReward) and source.answer is None]
    models: Mapping[str, ModelInfo] = {source.name: source.scorer.info for source in sources}
    waiting: dict[tuple[str, str, str], tuple[list[ScoreItem], list[Score]]] = {}
    count = 0

    def flush() -> None:
        for (part, version, template), (items, scores) in waiting.items():
            info = replace(models[part], version=version, template_hash=template)
            save_scores(run, items, scores, info)
        waiting.clear()

    for _, line in Lines(path):
        count += 1
        row = parse_object(line)
        for part, payload in row["scores"].items():
            if part not in models:
                continue
            score = Score(**payload)
            items, scores = waiting.setdefault((part, score.version, score.template_hash), ([], []))
            items.append(ScoreItem(prompt_of(row["prompt"]), row["response"]))
            scores.append(score)
        if count % ROWS_PER_UNIT == 0:
            flush()
    flush()
    return add_rollouts(run, name, {"rollouts": count})


def add_rollouts(run: Run, name: str, spec: Mapping[str, Any] | None = None) -> str:
    """Record the run's rollouts as an artifact of the policy `name`; returns the artifact's id."""
    path = run.folder / ROLLOUTS_FILE
    path.touch()
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()[:32]
    return run.add_artifact("rollouts", f"{name}-rollouts", path, content_hash=digest, spec=spec)
