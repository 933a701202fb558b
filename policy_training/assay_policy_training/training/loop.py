"""The training loop: rollouts, rewards, advantages, updates. Everything that varies between methods is a plug-in.

Covers: one step from prompts to new weights, its metrics and rollouts as JSON lines, checkpoints that resume bit for
bit (on a CPU). Leaves out: collecting rollouts (`rollouts.collector`), the gradient of a minibatch (`gradients`), the
mathematics of each method (the plug-ins of a `Recipe`), the final save (`run`), evaluation.
"""

import logging
import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from assay.compute.executor import LOCAL
from assay.errors import AssayError, BackendError, BadInputError
from assay.models import config_only
from assay.models.devices import float32_products
from assay.models.memory_options import check_optimiser
from assay.models.optimisers import finish, optimised
from assay.runs.callbacks import Callback
from assay.runs.json_log import METRICS_FILE, JsonLog
from assay.score import ScoreFailure
from assay.system import tracing
from assay.system.graceful_stop import stop_on_signal
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.logprobs import EXTRAS, SUPPLIED
from assay_policy_training.core.metrics import Stopwatch, TokenMeans
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.sampling import Sampling, derived_seed
from assay_policy_training.plugins.corrections.importance import policy_tokens
from assay_policy_training.plugins.corrections.mismatch import known_mismatches, mismatch_metrics, mismatch_warnings
from assay_policy_training.plugins.protocols import (
    AdaptiveLoss,
    Observer,
    PreparesBatch,
    PromptSource,
    ReportsMetrics,
    RewardSource,
    Sampler,
    ShapesRewards,
    SteersRun,
    StepMetrics,
    StepReport,
    UsesPolicy,
    negotiate,
)
from assay_policy_training.plugins.watch.stop_rules import OutOfBounds, missing_metrics
from assay_policy_training.recipe.inactive import inactive_parts
from assay_policy_training.recipe.schema import Recipe
from assay_policy_training.rollouts.collector import CollectedRollouts, RolloutCollector, without_reward
from assay_policy_training.rollouts.generate import completed_rows
from assay_policy_training.training.checkpoint import CheckpointSchedule, checkpoint_folder, checkpoints, step_of
from assay_policy_training.training.checkpoint_choice import STEERED, CheckpointChoice
from assay_policy_training.training.gradients import Gradients
from assay_policy_training.training.metrics import reward_versions, rollout_measures, rollout_records
from assay_policy_training.training.optimiser import policy_optimiser
from assay_policy_training.training.parallel_checks import check_parallel
from assay_policy_training.training.resume import StepStart, restore, return_to, save, take_up

log = logging.getLogger(__name__)
ROLLOUTS_FILE = "rollouts.jsonl"


class PolicyLoop:
    """Trains `policy` in place by `recipe`. Logs and checkpoints go to `folder`.

    Of several processes (`policy.parallel`) each has a trainer and makes every call: it generates and computes its
    share, sees the whole batch, and decides the same. Only the first process measures and writes.

    `sampler`: instead of the recipe's. `extra`: more plug-ins of S16: they measure, and may steer the run or shape
    rewards. `on`: where rollout actors are (`assay.compute.executor.OnOption`). `choice`: which checkpoints are kept,
    and whose weights the policy has in the end; default: the newest, and where a bound was broken the last good one.
    The recipe's plug-ins are copied, so their state belongs to this trainer.
    Raises BadInputError at once when a plug-in needs what the set-up does not supply.
    """

    def __init__(
        self,
        recipe: Recipe,
        policy: Policy,
        prompts: PromptSource,
        rewards: Sequence[RewardSource],
        folder: Path,
        *,
        sampler: Sampler | None = None,
        extra: Sequence[StepMetrics] = (),
        on: str = LOCAL,
        choice: CheckpointChoice | None = None,
    ) -> None:
        self.recipe = recipe = deepcopy(recipe)
        self.policy, self.prompts, self.rewards = policy, prompts, list(rewards)
        self.collector = RolloutCollector(recipe, policy, prompts, rewards, sampler, on=on, folder=folder)
        self.sampler = self.collector.sampler
        self.critic = None if recipe.critic is None else recipe.critic.open(policy)
        self.extra = [*recipe.metrics, *extra]
        self.folder = folder
        self._check_needs()
        check_parallel(policy.parallel, self.sampler, self.plugins())
        check_optimiser(recipe.optimisation.optimizer, policy.parallel.name, "optimisation.optimizer")
        for plugin in (*recipe.plugins().values(), *extra):
            if isinstance(plugin, UsesPolicy):
                plugin.attach(policy)
        self.metrics_log, self.rollouts_log = JsonLog(folder / METRICS_FILE), JsonLog(folder / ROLLOUTS_FILE)
        self.optimiser = policy_optimiser(policy, recipe.optimisation)
        self.parameters = optimised(self.optimiser, policy.trainable())  #: what the optimiser changes
        self.gradients = Gradients(recipe, policy, list(self.parameters.values()))
        self.policy_version = policy.version
        self.step = 0  #: steps done
        self.updates = 0  #: optimiser steps done: the version of the weights
        self._updating = False  #: whether the step under way may have changed a weight
        self.stopped: str | None = None  #: why a stop rule ended the run
        self.choice = choice or CheckpointChoice()
        self.returned_to: int | None = None  #: the step whose weights the policy has in the end; None: the last
        #: Settings that are accepted but may not be intended.
        self.warnings = mismatch_warnings(recipe)
        self.warnings += [f"{part}: cannot act: {why}" for part, why in inactive_parts(recipe).items()]
        for warning in self.warnings if policy.parallel.main else ():
            log.warning(warning)

    def train(self, steps: int | None = None, callbacks: Sequence[Callback] = ()) -> list[dict[str, Any]]:
        """Train until `steps` steps (default: the recipe's) are done in all, or a stop rule ends the run; returns the
        metrics of each new step. Where a bound was broken the policy has the weights of the last good checkpoint.

        Raises BackendError when no rollout of a step got a reward, and what the reward sources raise. In a single
        process, Ctrl-C ends the training after the step, with a checkpoint; a step or callback that fails leaves one.
        """
        rows = []
        last_step = self.recipe.steps if steps is None else steps
        broken: int | None = None
        schedule = CheckpointSchedule(self.recipe.checkpoint_every, self.recipe.checkpoint_minutes)
        parallel = self.policy.parallel
        with stop_on_signal(held=parallel.world == 1) as end, float32_products(self.policy.device, "high"):
            while self.step < last_step and self.stopped is None:
                try:
                    with self._checkpoint_on_failure(), tracing.span("rl step", step=self.step + 1):
                        row = self._step(self.step + 1)
                except BackendError as error:
                    if end.requested:  # the step could not be finished
                        raise KeyboardInterrupt from error
                    raise
                self.step += 1
                rows.append(row)
                if len(rows) == 1 and self.policy.parallel.main:
                    for warning in missing_metrics(self.recipe.stop, row):
                        log.warning(warning)
                best = self.choice.note(row, self.recipe.stop)
                reasons = [rule.reason(row) for rule in self.recipe.stop]  # each has its memory
                broken = next((position for position, reason in enumerate(reasons) if reason), None)
                self.stopped = None if broken is None else reasons[broken]
                broken = self._steered(broken)
                try:
                    _call(callbacks, row)
                except Exception:
                    if parallel.world == 1:
                        self.save_checkpoint()
                    raise
                due = parallel.share(schedule.due(self.step) or best if parallel.main else None)
                if end.requested or due:
                    path = self.save_checkpoint()
                    schedule.saved()
                    for callback in callbacks:
                        callback.on_checkpoint(self.step, path)
                if end.requested:
                    raise KeyboardInterrupt
            self._choose_weights(broken)
        return rows

    def _steered(self, broken: int | None) -> int | None:
        """Follow what plug-ins of the run, which the first process alone has, say of its course; the rule that ends the
        run, where one does."""
        steering = [plugin.course() for plugin in self.extra if isinstance(plugin, SteersRun)]
        for course in self.policy.parallel.share(steering if self.policy.parallel.main else None):
            if course.good is not None:
                self.choice.good[STEERED] = course.good
            if course.stop is not None and self.stopped is None:
                self.stopped, broken = course.stop, STEERED if course.good is not None else None
            if course.take_up is not None and self.stopped is None:
                step = take_up(self, course.take_up)
                self.collector.generator.published = None
                if step is None:
                    log.warning("no checkpoint as early as step %d: the weights stay", course.take_up)
        return broken

    def _choose_weights(self, broken: int | None) -> None:
        """At the end of training. After a broken bound the checkpoints behind the last good one go: the run would
        resume from there."""
        main = self.policy.parallel.main
        saved = [step_of(path) for path in checkpoints(self.folder)] if main else []
        step = self.policy.parallel.share([self.choice.final(saved, broken)] if main else None)[0]
        bounded = broken == STEERED or (broken is not None and isinstance(self.recipe.stop[broken], OutOfBounds))
        if bounded and step is None and main:
            log.warning("no checkpoint of a step within the bound: the policy is that of step %d", self.step)
        if step is None or step == self.step:
            return
        return_to(self, step)
        self.returned_to, self.collector.generator.published = step, None
        if self.stopped is not None and main:
            for later in [later for later in saved if later > step]:
                shutil.rmtree(checkpoint_folder(self.folder, later))
        if main:
            log.warning("the policy is that of step %d of %d", step, self.step)

    @contextmanager
    def _checkpoint_on_failure(self) -> Iterator[None]:
        """Around a step: if it fails before a weight has changed, there is a checkpoint of the steps before, with the
        prompts of this one still to come. Of several processes one fails and cannot collect the others' weights."""
        self._updating = False
        start = StepStart.of(self) if self.step and self.policy.parallel.world == 1 else None
        try:
            yield
        except Exception:
            if start is not None and not self._updating:
                try:
                    save(self, start)
                except AssayError as error:
                    log.warning("no checkpoint: %s", error)
            raise

    def _step(self, step: int) -> dict[str, Any]:
        clock = Stopwatch()
        rollouts = self.collector.collect(step, version=self.updates, clock=clock)
        trained: RolloutBatch | None = None
        means: dict[str, float] = {}
        if rollouts.keep.any():
            trained = without_reward(rollouts.batch, rollouts.keep).select(rollouts.keep.nonzero().squeeze(1))
            trained, means = self.learn(trained, step, rollouts.sampling, clock)
        return self._report(step, rollouts, trained, means, clock)

    def learn(
        self, batch: RolloutBatch, step: int, sampling: Sampling, clock: Stopwatch
    ) -> tuple[RolloutBatch, dict[str, float]]:
        """All that a step does with rollouts that have rewards; returns them with what was added, and its metrics."""
        with clock("score"):
            batch = self._score(batch, sampling)
        with clock("advantage"):
            batch, means = self._advantages(batch)
        self._updating = True
        if self.critic is None or not self.critic.warming(step):
            with clock("update"):
                means |= self._update(batch, step, sampling)
        if self.critic is not None:
            with clock("critic"):
                seed = derived_seed(self.recipe.seed, step, "critic")
                means |= self.critic.update(batch, step=step, seed=seed)
        return batch, means

    @torch.no_grad()
    def _score(self, batch: RolloutBatch, sampling: Sampling) -> RolloutBatch:
        """Add log-probs of the reference, what plug-ins need of the old policy, and the critic's values.

        With a single update theta = old while the gradient is taken, so its own log-probs are used, detached, and this
        pass is skipped unless a plug-in reads them earlier.
        """
        options: dict[str, Any] = {"temperature": sampling.temperature, "prune_log_ratio": sampling.prune_log_ratio}
        scored: list[tuple[Tensor, dict[str, Tensor]]] = []
        for micro_batch in self.gradients.micro_batches(batch, torch.arange(len(batch))):
            part, columns = batch.select(micro_batch.rows), {}
            if self._scores_old:
                scores = self.policy.scores(part, extras=self._batch_extras, **options)
                columns = {"logp_old": scores.logp, "entropy": scores.entropy, **scores.extras}
            if self.policy.has_reference:
                columns["logp_ref"] = self.policy.reference_logp(part, **options)
            if micro_batch.counts:
                large = {name: values.cpu() for name, values in columns.items() if values.dim() > 2}
                scored.append((micro_batch.rows, {**columns, **large}))
        parts = [part for process in self.policy.parallel.gather(_on_host(scored)) for part in process]
        order = torch.cat([rows for rows, _ in parts])
        # In a plan the other processes have what this one has.
        if config_only.active() is None and (missing := len(batch) - len(set(order.tolist()))):
            raise BackendError(f"no process scored {missing} of {len(batch)} rows")
        columns_of = {name: torch.cat([columns[name] for _, columns in parts]) for name in parts[0][1]}
        joined = {n: c.new_zeros(len(batch), *c.shape[1:]).index_copy(0, order, c) for n, c in columns_of.items()}
        fields: dict[str, Tensor] = {}
        for name in {"logp_old", "entropy", "logp_ref"} & joined.keys():
            fields[name] = joined.pop(name)
        if self.critic is not None:
            fields["values"] = self.critic.values(batch).cpu()
        if (action_values := getattr(self.critic, "action_values", None)) is not None:
            joined["action_values"] = action_values(batch)
        return batch.with_(**fields, extras={**batch.extras, **joined})

    def _advantages(self, batch: RolloutBatch) -> tuple[RolloutBatch, dict[str, float]]:
        """Shape, correct, estimate, modulate, replay, select; also the metrics of corrections and losses."""
        recipe = self.recipe
        metrics: dict[str, float] = {}
        if batch.logp_old is not None:
            metrics |= mismatch_metrics(batch.logp_old, batch.logp_mu, policy_tokens(batch))
        for shaper in (*recipe.shaping, *(plugin for plugin in self.extra if isinstance(plugin, ShapesRewards))):
            batch = shaper.shape(batch)
        for correction in recipe.corrections:  # they narrow `loss_mask` only: no statistic of an estimator changes
            corrected = correction.correct(batch)
            weight = corrected.weight if batch.is_weight is None else batch.is_weight * corrected.weight
            batch = batch.with_(is_weight=weight, loss_mask=batch.loss_mask & corrected.keep)
            metrics |= dict(corrected.metrics)
        adv, returns = recipe.estimator(batch)
        batch = batch.with_(adv=adv, returns=returns)
        for modulator in recipe.modulators:
            batch = batch.with_(adv=modulator.modulate(batch))
        if recipe.replay is not None:
            batch = recipe.replay.mix(batch)
        for selector in (*recipe.token_weights, recipe.objective):
            if isinstance(selector, PreparesBatch):
                batch = selector.prepare(batch)
        for loss in recipe.losses:
            if isinstance(loss, AdaptiveLoss):
                metrics |= loss.steer(batch)
        return batch, metrics

    def _update(self, batch: RolloutBatch, step: int, sampling: Sampling) -> dict[str, float]:
        """All optimiser steps on one batch of rollouts; returns means over tokens and over updates."""
        settings, means, parallel = self.recipe.optimisation, TokenMeans(), self.policy.parallel
        losses: list[float] = []
        norms: list[float] = []
        learning_rate = settings.learning_rate(step)
        for schedule in self.recipe.schedules:
            learning_rate = schedule.value("lr", learning_rate, step)
        for group in self.optimiser.param_groups:
            group["lr"] = learning_rate
        generator = torch.Generator().manual_seed(derived_seed(self.recipe.seed, step, "minibatches"))
        for _ in range(settings.epochs):
            for rows in self._minibatches(batch, generator):
                losses.append(self.gradients.accumulate(batch, rows, sampling, means, first=not losses))
                norm = parallel.clip(list(self.parameters.values()), settings.max_grad_norm)
                norms.append(norm)
                if math.isfinite(norm):
                    self.optimiser.step()
                    self.updates += 1
                self.optimiser.zero_grad(set_to_none=True)
        means = TokenMeans.joined(parallel.gather(means.read()))
        losses = [sum(parts) for parts in zip(*parallel.gather(losses), strict=True)]
        return {
            "loss": sum(losses) / len(losses),
            "grad_norm": sum(norms) / len(norms),
            "lr": learning_rate,
            "updates_skipped": sum(not math.isfinite(norm) for norm in norms),
            **means.to_dict(),
        }

    def _minibatches(self, batch: RolloutBatch, generator: torch.Generator) -> list[Tensor]:
        """Rows of each optimiser step in random order; whole groups where the objective compares within a group."""
        number = self.recipe.optimisation.minibatches
        if self.recipe.objective.scope != "group":
            order = torch.randperm(len(batch), generator=generator)
            return list(order.tensor_split(min(number, len(batch))))
        groups = int(batch.group.max()) + 1
        splits = torch.randperm(groups, generator=generator).tensor_split(min(number, groups))
        return [torch.isin(batch.group, split).nonzero().squeeze(1) for split in splits]

    def _report(
        self,
        step: int,
        rollouts: CollectedRollouts,
        trained: RolloutBatch | None,
        means: dict[str, float],
        clock: Stopwatch,
    ) -> dict[str, Any]:
        """Compute the step's metrics, pass them to every plug-in and write them to the logs."""
        batch, parallel = rollouts.batch, self.policy.parallel
        for metric in self.extra if not parallel.main else ():
            if getattr(metric, "joined", False):
                metric.measure(StepReport(step, {}, batch, trained))
        metrics = parallel.share(self._metrics(step, rollouts, trained, means, clock) if parallel.main else None)
        report = StepReport(step, metrics, batch, trained)
        for observer in self._observers():
            observer.observe(report)
        row: dict[str, Any] = {"step": step, **metrics, "reward_versions": reward_versions(batch)}
        if parallel.main:
            records = rollout_records(batch, rollouts.keep, trained, step=step, policy=self.policy_version)
            self.rollouts_log.append(records)
            self.metrics_log.append([{k: v for k, v in row.items() if not isinstance(v, float) or math.isfinite(v)}])
        if (completed := len(completed_rows(batch))) and not batch.valid.any():
            first = next((f for failures in batch.failures for f in failures), ScoreFailure("", "no reason given"))
            reason = f"{first.model}: {first.message}" if first.model else first.message
            raise BackendError(f"step {step}: none of {completed} rollouts got a reward ({reason})")
        return row

    def _metrics(
        self,
        step: int,
        rollouts: CollectedRollouts,
        trained: RolloutBatch | None,
        means: dict[str, float],
        clock: Stopwatch,
    ) -> dict[str, float]:
        batch = rollouts.batch
        metrics: dict[str, float] = {**rollout_measures(batch, rollouts.keep), **means, **clock.to_dict()}
        metrics |= {"prompts_drawn": rollouts.prompts_drawn, "rounds": rollouts.rounds}
        if not bool(rollouts.first_acc.isnan().all()):
            metrics["verifier_pass_rate"] = float(rollouts.first_acc.nanmean())
        metrics |= {
            "staleness_mean": float(rollouts.staleness.double().mean()),
            "staleness_max": int(rollouts.staleness.max()),
        }
        metrics |= {f"seconds_beside_{stage}": seconds for stage, seconds in rollouts.seconds_beside.items()}
        metrics["seconds"] = sum(clock.seconds.values())
        new_tokens = float(batch.loss_mask.sum())  # a window's earlier tokens belong to another step
        metrics["tokens_per_second"] = new_tokens / max(metrics["seconds"], 1e-9)
        report = StepReport(step, metrics, batch, trained)
        for metric in sorted(self.extra, key=lambda plugin: getattr(plugin, "reads_metrics", False)):
            metrics |= metric.measure(report)
        for plugin in self.plugins().values():
            if isinstance(plugin, ReportsMetrics):
                metrics |= plugin.numbers()
        return metrics

    def _check_needs(self) -> None:
        """Check that every tensor that a plug-in needs can be supplied; decide what the pass over old must compute."""
        recipe = self.recipe
        if recipe.needs_teacher and not self.policy.has_teacher:
            raise BadInputError("name a teacher model with the same vocabulary", field="teacher")
        lacks: Mapping[str, str] = getattr(self.sampler, "lacks", {})
        supplied = {"logp_old", "logp_mu", *SUPPLIED} - lacks.keys()
        supplied |= {"logp_ref"} if self.policy.has_reference else set()
        supplied |= {"values"} if self.critic is not None else set()
        supplied |= {"action_values"} if hasattr(self.critic, "action_values") else set()
        negotiate([*recipe.plugins().values(), *self.extra], supplied, lacks)
        chains = (recipe.shaping, recipe.modulators, recipe.corrections, recipe.token_weights)
        before_update: list[object] = [
            recipe.estimator,
            self.sampler,
            *(plugin for chain in chains for plugin in chain),
        ]
        before_update += [loss for loss in recipe.losses if isinstance(loss, AdaptiveLoss)]
        before_update += [recipe.objective] if isinstance(recipe.objective, PreparesBatch) else []
        before_update += [recipe.replay] if recipe.replay is not None else []
        needs = negotiate([*before_update, *self.extra], supplied)
        self._batch_extras = needs & EXTRAS
        read_early = bool(needs & {"logp_old", "entropy", *EXTRAS})
        mismatch = bool(known_mismatches(recipe))  # mu is not old: measured, whatever reads it
        self._scores_old = recipe.optimisation.updates_per_batch > 1 or read_early or mismatch

    def plugins(self) -> dict[str, Any]:
        """Every plug-in of this run, by the name under which a checkpoint holds its state."""
        plugins = {"prompts": self.prompts, "sampler": self.sampler, **self.recipe.plugins()}
        plugins |= {"critic": self.critic} if self.critic is not None else {}
        plugins |= {"rollouts": self.collector.pool} if self.collector.pool is not None else {}
        plugins |= {f"reward_{i}": source for i, source in enumerate(self.rewards)}
        extra = self.extra[len(self.recipe.metrics) :]
        return plugins | {f"extra_{i}": plugin for i, plugin in enumerate(extra)}

    def _observers(self) -> list[Observer]:
        return [plugin for plugin in self.plugins().values() if isinstance(plugin, Observer)]

    def close(self) -> None:
        """End training, and what generates beside it; what is in flight is lost."""
        finish(self.optimiser)
        if self.collector.pool is not None:
            self.collector.pool.close()

    def save_checkpoint(self) -> Path:
        """Write a checkpoint from which a run resumes as if it had never stopped. Where the weights are those of an
        earlier step again, that step's is there."""
        return save(self) if self.returned_to is None else checkpoint_folder(self.folder, self.returned_to)

    def resume(self, folder: Path | None = None) -> int:
        """Restore the newest checkpoint in `folder` (default: the trainer's); returns its step, 0 where there is none.

        The logs in the trainer's folder are cut to the checkpoint. Raises BadInputError when the checkpoint is of
        another base model, other prompts or other plug-ins.
        """
        step = restore(self, folder or self.folder)
        for row in self.metrics_log.rows() if step else ():
            self.choice.note(row, self.recipe.stop)
        self.collector.generator.published = None
        return step


def _on_host(scored: Sequence[tuple[Tensor, dict[str, Tensor]]]) -> list[tuple[Tensor, dict[str, Tensor]]]:
    """The same, all columns [b,T] read at once."""
    names = [name for name, values in scored[0][1].items() if values.dim() == 2] if scored else []
    if not names:
        return list(scored)
    read = torch.cat([torch.stack([columns[name] for name in names]) for _, columns in scored], 1).cpu()
    parts = torch.split(read, [len(rows) for rows, _ in scored], 1)
    return [
        (rows, {**columns, **dict(zip(names, part.unbind(), strict=True))})
        for (rows, columns), part in zip(scored, parts, strict=True)
    ]


def _call(callbacks: Sequence[Callback], row: Mapping[str, Any]) -> None:
    figures = {name: value for name, value in row.items() if name.startswith("eval_")}
    for callback in callbacks:
        callback.on_step(row)
        if figures:
            callback.on_evaluation({"step": row["step"], **figures})
