"""The training loop: rollouts, rewards, advantages, updates. It reads like the paper; what varies is plugged in.

Covers: one step from prompts to new weights, metrics and rollouts as JSON lines, checkpoints from which a run goes on
bit for bit (on a CPU). Leaves out: drawing and rewarding rollouts (`collection`), the gradient of a minibatch
(`gradients`), every method's own mathematics (the plug-ins of a `Recipe`), the final save (`run`), evaluation.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from assay.errors import BackendError, BadInputError
from assay.system.graceful_stop import end_on_request
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.logprobs import EXTRAS, SUPPLIED
from assay_policy_training.core.metrics import Stopwatch, TokenMeans
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.sampling import Sampling
from assay_policy_training.plugins.corrections.importance import own_tokens
from assay_policy_training.plugins.corrections.known_mismatch import known_mismatches, uncorrected
from assay_policy_training.plugins.corrections.mismatch import mismatch_metrics
from assay_policy_training.plugins.protocols import (
    Metrics,
    Observer,
    PreparesBatch,
    PromptSource,
    RewardSource,
    Sampler,
    SeesPolicy,
    Steers,
    StepReport,
    Tells,
    negotiate,
)
from assay_policy_training.plugins.watch.stop_rules import unmeasured
from assay_policy_training.recipe.schema import Recipe
from assay_policy_training.rollouts.collector import Collected, Collector, derived_seed, unrewarded
from assay_policy_training.rollouts.generate import done
from assay_policy_training.training.checkpoint import JsonLog
from assay_policy_training.training.gradients import Gradients
from assay_policy_training.training.metrics import reward_versions, rollout_measures, rollout_records
from assay_policy_training.training.parallel_checks import check_parallel
from assay_policy_training.training.resume import restore, save

log = logging.getLogger(__name__)
METRICS_FILE, ROLLOUTS_FILE = "metrics.jsonl", "rollouts.jsonl"


class PolicyTrainer:
    """Trains `policy` in place by `recipe`. Logs and checkpoints go to `folder`.

    Of several processes (`policy.parallel`) each has a trainer and makes every call: it draws and computes its share,
    sees the whole batch, and decides the same. The first alone measures and writes.

    `sampler`: instead of the recipe's. `extra`: more plug-ins that only measure (S16). The recipe's plug-ins are
    copied: what they remember is this trainer's. Raises BadInputError at once when a plug-in needs what the set-up does
    not supply.
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
        extra: Sequence[Metrics] = (),
    ) -> None:
        self.recipe = recipe = deepcopy(recipe)
        self.policy, self.prompts, self.rewards = policy, prompts, list(rewards)
        self.collector = Collector(recipe, policy, prompts, rewards, sampler)
        self.sampler = self.collector.sampler
        self.critic = None if recipe.critic is None else recipe.critic.open(policy)
        self.extra = [*recipe.metrics, *extra]
        self.folder = folder
        self._check_needs()
        check_parallel(policy.parallel, self.sampler, self.plugins())
        for plugin in recipe.plugins().values():
            if isinstance(plugin, SeesPolicy):
                plugin.attach(policy)
        self.gradients = Gradients(recipe, policy)
        self.metrics_log, self.rollouts_log = JsonLog(folder / METRICS_FILE), JsonLog(folder / ROLLOUTS_FILE)
        self.parameters = policy.trainable()
        settings = recipe.optimisation
        self.optimiser = torch.optim.AdamW(
            list(self.parameters.values()),
            lr=settings.lr,
            betas=(settings.betas[0], settings.betas[1]),
            weight_decay=settings.weight_decay,
            fused=True,  # the same numbers in one pass over the weights
        )
        self.policy_version = policy.version
        self.step = 0  #: steps done
        self.updates = 0  #: optimiser steps done: the version of the weights
        self.stopped: str | None = None  #: why a stop rule ended the run
        self.warnings = uncorrected(recipe)  #: what is accepted and may not be what is meant
        for warning in self.warnings if policy.parallel.main else ():
            log.warning(warning)

    def train(
        self, steps: int | None = None, on_step: Callable[[Mapping[str, Any]], None] = lambda _: None
    ) -> list[dict[str, Any]]:
        """Go on until `steps` steps (default: the recipe's) are done in all, or a stop rule says so; returns the
        metrics of each new step.

        Raises BackendError when no rollout of a step got a reward, and what the reward sources raise. A Ctrl-C in a
        lone process ends the training after the step, with a checkpoint.
        """
        rows = []
        until = self.recipe.steps if steps is None else steps
        with end_on_request(held=self.policy.parallel.world == 1) as end:
            while self.step < until and self.stopped is None:
                row = self._step(self.step + 1)
                self.step += 1
                rows.append(row)
                on_step(row)
                if len(rows) == 1 and self.policy.parallel.main:
                    for warning in unmeasured(self.recipe.stop, row):
                        log.warning(warning)
                self.stopped = next((why for rule in self.recipe.stop if (why := rule.reason(row))), None)
                if end.asked or (self.recipe.checkpoint_every and self.step % self.recipe.checkpoint_every == 0):
                    self.save_checkpoint()
                if end.asked:
                    raise KeyboardInterrupt
        return rows

    def _step(self, step: int) -> dict[str, Any]:
        clock = Stopwatch()
        found = self.collector.collect(step, version=self.updates, clock=clock)
        sampling = found.sampling
        trained: RolloutBatch | None = None
        means: dict[str, float] = {}
        if found.keep.any():
            trained = unrewarded(found.batch, found.keep).select(found.keep.nonzero().squeeze(1))
            with clock("score"):
                trained = self._score(trained, sampling)
            with clock("advantage"):
                trained, means = self._advantages(trained)
            if self.critic is None or not self.critic.warming(step):
                with clock("update"):
                    means |= self._update(trained, step, sampling)
            if self.critic is not None:
                with clock("critic"):
                    seed = derived_seed(self.recipe.seed, step, "critic")
                    means |= self.critic.update(trained, step=step, seed=seed)
        return self._report(step, found, trained, means, clock)

    @torch.no_grad()
    def _score(self, batch: RolloutBatch, sampling: Sampling) -> RolloutBatch:
        """Log-probs under the reference, and what is needed of the old policy; its values where there is a critic.

        With a single update theta = old while the gradient is taken, so its own log-probs are used, detached, and this
        pass is saved unless a plug-in reads them before.
        """
        options: dict[str, Any] = {"temperature": sampling.temperature, "prune_log_ratio": sampling.prune_log_ratio}
        columns: dict[str, list[Tensor]] = {}
        own: list[tuple[Tensor, dict[str, Tensor]]] = []
        for piece in self.gradients.pieces(batch, torch.arange(len(batch))):
            part, found = batch.select(piece.rows), {}
            if self._scores_old:
                scores = self.policy.scores(part, wanted=self._batch_extras, **options)
                found = {"logp_old": scores.logp, "entropy": scores.entropy, **scores.extras}
            if self.policy.has_reference:
                found["logp_ref"] = self.policy.reference_logp(part, **options)
            if piece.counts:
                own.append((piece.rows, {name: values.cpu() for name, values in found.items()}))
        pieces = [piece for share in self.policy.parallel.gather(own) for piece in share]
        for _, found in pieces:
            for name, values in found.items():
                columns.setdefault(name, []).append(values)
        back = torch.argsort(torch.cat([rows for rows, _ in pieces]))
        joined = {name: torch.cat(values)[back] for name, values in columns.items()}
        fields: dict[str, Tensor] = {
            name: joined.pop(name) for name in ("logp_old", "entropy", "logp_ref") if name in joined
        }
        if self.critic is not None:
            fields["values"] = self.critic.values(batch).cpu()
        return batch.with_(**fields, extras={**batch.extras, **joined})

    def _advantages(self, batch: RolloutBatch) -> tuple[RolloutBatch, dict[str, float]]:
        """Shape, correct, kl_estimate, modulate, mix, select; and what the corrections and the losses found."""
        recipe = self.recipe
        found = {} if batch.logp_old is None else mismatch_metrics(batch.logp_old, batch.logp_mu, own_tokens(batch))
        for shaper in recipe.shaping:
            batch = shaper.shape(batch)
        for correction in recipe.corrections:  # they narrow `loss_mask` only: no statistic of an estimator changes
            made = correction.correct(batch)
            weight = made.weight if batch.is_weight is None else batch.is_weight * made.weight
            batch = batch.with_(is_weight=weight, loss_mask=batch.loss_mask & made.keep)
            found |= dict(made.metrics)
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
            if isinstance(loss, Steers):
                found |= loss.steer(batch)
        return batch, found

    def _update(self, batch: RolloutBatch, step: int, sampling: Sampling) -> dict[str, float]:
        """The optimiser steps on one batch of rollouts; returns means over tokens and over updates."""
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
        means = TokenMeans.joined(parallel.gather(means))
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
        chosen = torch.randperm(groups, generator=generator).tensor_split(min(number, groups))
        return [torch.isin(batch.group, wanted).nonzero().squeeze(1) for wanted in chosen]

    def _report(
        self, step: int, found: Collected, trained: RolloutBatch | None, means: dict[str, float], clock: Stopwatch
    ) -> dict[str, Any]:
        """The step's numbers, told to every plug-in and written down."""
        batch, parallel = found.batch, self.policy.parallel
        metrics = parallel.share(self._measured(step, found, trained, means, clock) if parallel.main else None)
        report = StepReport(step, metrics, batch, trained)
        for observer in self._observers():
            observer.observe(report)
        row: dict[str, Any] = {"step": step, **metrics, "reward_versions": reward_versions(batch)}
        if parallel.main:
            records = rollout_records(batch, found.keep, trained, step=step, policy=self.policy_version)
            self.rollouts_log.append(records)
            self.metrics_log.append([{k: v for k, v in row.items() if not isinstance(v, float) or math.isfinite(v)}])
        if len(done(batch)) and not batch.valid.any():
            reason = next((f.message for row in batch.failures for f in row), "no reason given")
            raise BackendError(f"step {step}: none of {len(done(batch))} rollouts got a reward ({reason})")
        return row

    def _measured(
        self, step: int, found: Collected, trained: RolloutBatch | None, means: dict[str, float], clock: Stopwatch
    ) -> dict[str, float]:
        batch = found.batch
        metrics: dict[str, float] = {**rollout_measures(batch, found.keep), **means, **clock.to_dict()}
        metrics |= {"prompts_drawn": found.prompts_drawn, "rounds": found.rounds}
        if not bool(found.first_acc.isnan().all()):
            metrics["verifier_pass_rate"] = float(found.first_acc.nanmean())
        metrics |= {
            "staleness_mean": float(found.staleness.double().mean()),
            "staleness_max": int(found.staleness.max()),
        }
        metrics |= {f"seconds_beside_{stage}": seconds for stage, seconds in found.beside.items()}
        metrics["seconds"] = sum(clock.seconds.values())
        drawn = float(batch.loss_mask.sum())  # a window's earlier tokens were another step's
        metrics["tokens_per_second"] = drawn / max(metrics["seconds"], 1e-9)
        report = StepReport(step, metrics, batch, trained)
        for plugin in self.extra:
            metrics |= plugin.measure(report)
        for shown in self.plugins().values():
            if isinstance(shown, Tells):
                metrics |= shown.numbers()
        return metrics

    def _check_needs(self) -> None:
        """Every tensor that a plug-in needs can be supplied, and which of them a pass over the old policy must give."""
        recipe = self.recipe
        if recipe.needs_teacher and not self.policy.has_teacher:
            raise BadInputError("name a model to learn from, of the same vocabulary", field="teacher")
        lacks: Mapping[str, str] = getattr(self.sampler, "lacks", {})
        supplied = {"logp_old", "logp_mu", *SUPPLIED} - lacks.keys()
        supplied |= {"logp_ref"} if self.policy.has_reference else set()
        supplied |= {"values"} if self.critic is not None else set()
        negotiate([*recipe.plugins().values(), *self.extra], supplied, lacks)
        chains = (recipe.shaping, recipe.modulators, recipe.corrections, recipe.token_weights)
        before: list[object] = [recipe.estimator, self.sampler, *(plugin for chain in chains for plugin in chain)]
        before += [loss for loss in recipe.losses if isinstance(loss, Steers)]
        before += [recipe.objective] if isinstance(recipe.objective, PreparesBatch) else []
        before += [recipe.replay] if recipe.replay is not None else []
        needs = negotiate([*before, *self.extra], supplied)
        self._batch_extras = needs & EXTRAS
        read_early = bool(needs & {"logp_old", "entropy", *EXTRAS})
        apart = bool(known_mismatches(recipe))  # mu is not old: measured, whatever reads it
        self._scores_old = recipe.optimisation.updates_per_batch > 1 or read_early or apart

    def plugins(self) -> dict[str, Any]:
        """Every plug-in of this run, by a name that is the same in the next process."""
        named = {"prompts": self.prompts, "sampler": self.sampler, **self.recipe.plugins()}
        named |= {"critic": self.critic} if self.critic is not None else {}
        named |= {"ahead": self.collector.ahead} if self.collector.ahead is not None else {}
        named |= {f"reward_{i}": source for i, source in enumerate(self.rewards)}
        extra = self.extra[len(self.recipe.metrics) :]
        return named | {f"extra_{i}": plugin for i, plugin in enumerate(extra)}

    def _observers(self) -> list[Observer]:
        return [plugin for plugin in self.plugins().values() if isinstance(plugin, Observer)]

    def save_checkpoint(self) -> Path:
        """Everything needed to go on as if nothing had happened."""
        return save(self)

    def resume(self, folder: Path | None = None) -> int:
        """Go back to the newest checkpoint in `folder` (default: own); returns its step, 0 where there is none.

        The logs in the trainer's own folder are cut to the checkpoint. Raises BadInputError when the checkpoint is
        of another base model, other prompts or other plug-ins.
        """
        step = restore(self, folder or self.folder)
        self.collector.drawer.published = None
        return step
