"""The training loop: rollouts, rewards, advantages, updates. It reads like the paper; what varies is plugged in.

Covers: one step from prompts to new weights, minibatches and micro-batches with denominators fixed before the first
backward, metrics and rollouts as JSON lines, checkpoints from which a run goes on bit for bit (on a CPU). Leaves
out: every method's own mathematics (the plug-ins of a `Recipe`), the final save (`run`), evaluation.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from assay.errors import BackendError, BadInputError
from assay.models.packing import can_pack
from assay_policy_training.aggregation import count
from assay_policy_training.batch import RolloutBatch, on_last_token
from assay_policy_training.checkpoint import Checkpoint, JsonLog, newest_checkpoint, save_checkpoint
from assay_policy_training.logprobs import SUPPLIED
from assay_policy_training.measures import Stopwatch, TokenMeans, reward_versions, rollout_measures, rollout_records
from assay_policy_training.policy import Policy
from assay_policy_training.recipe import Recipe
from assay_policy_training.rewards import gather, verifier_accuracy
from assay_policy_training.sampler import TransformersSampler
from assay_policy_training.slots import (
    Metrics,
    PromptItem,
    PromptSource,
    RewardSource,
    Sampler,
    Stateful,
    StepReport,
    UpdateContext,
    negotiate,
)

METRICS_FILE, ROLLOUTS_FILE = "metrics.jsonl", "rollouts.jsonl"


class PolicyTrainer:
    """Trains `policy` in place by `recipe`. Logs and checkpoints go to `folder`.

    `extra`: plug-ins that only measure (S16). Raises BadInputError at once when a plug-in needs what the set-up
    does not supply.
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
        supplied = {"logp_old", "logp_mu", *SUPPLIED} | ({"logp_ref"} if policy.has_reference else set())
        used = [recipe.estimator, recipe.objective, recipe.aggregator, *([recipe.kl] if recipe.kl.coefficient else [])]
        negotiate([*used, *extra], supplied)
        if recipe.objective.scope != "token":
            raise BadInputError(f"this loop runs objectives of scope token, not {recipe.objective.scope}")
        self.recipe, self.policy, self.prompts, self.rewards = recipe, policy, prompts, list(rewards)
        self.sampler: Sampler = sampler or TransformersSampler(policy, recipe.sampling)
        self.extra = list(extra)
        self.folder = folder
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

    def train(
        self, steps: int | None = None, on_step: Callable[[Mapping[str, Any]], None] = lambda _: None
    ) -> list[dict[str, Any]]:
        """Go on until `steps` steps (default: the recipe's) are done in all; returns the metrics of each new step.

        Raises BackendError when no rollout of a step got a reward, and what the reward sources raise.
        """
        rows = []
        while self.step < (self.recipe.steps if steps is None else steps):
            row = self._step(self.step + 1)
            self.step += 1
            rows.append(row)
            on_step(row)
            if self.recipe.checkpoint_every and self.step % self.recipe.checkpoint_every == 0:
                self.save_checkpoint()
        return rows

    def _step(self, step: int) -> dict[str, Any]:
        clock, recipe = Stopwatch(), self.recipe
        with clock("sample"):
            items = self.prompts.next(recipe.sampling.prompts_per_step)
            batch = self.sampler.rollout(
                items, recipe.sampling.group_size, seed=derived_seed(recipe.seed, step, "rollout"), version=self.updates
            )
        with clock("reward"):
            batch = self._reward(batch, [item for item in items for _ in range(recipe.sampling.group_size)])
        keep = recipe.filter.keep(batch)
        # Rows that are not trained on take no part in their group's statistics either.
        reward = batch.scored_reward.masked_fill(~keep, math.nan)
        adv, returns = recipe.estimator(
            reward, on_last_token(reward, batch.mask), batch.values, batch.mask, batch.group
        )
        batch = batch.with_(loss_mask=batch.mask & keep[:, None], adv=adv, returns=returns)
        means: dict[str, float] = {}
        if keep.any():
            trained = batch.select(keep.nonzero().squeeze(1))
            with clock("score"):
                trained = self._score(trained)
            with clock("update"):
                means = self._update(trained, step)
        metrics = {**rollout_measures(batch, keep), **means, **clock.to_dict()}
        metrics["seconds"] = sum(clock.seconds.values())
        metrics["tokens_per_second"] = float(batch.lengths.sum()) / max(metrics["seconds"], 1e-9)
        report = StepReport(step, metrics, batch)
        for plugin in self.extra:
            metrics |= plugin.measure(report)
        self.prompts.observe(report)
        row: dict[str, Any] = {"step": step, **metrics, "reward_versions": reward_versions(batch)}
        self.rollouts_log.append(rollout_records(batch, keep, step=step, policy=self.policy_version))
        self.metrics_log.append([{k: v for k, v in row.items() if not isinstance(v, float) or math.isfinite(v)}])
        if not batch.valid.any():
            reason = next((f.message for row in batch.failures for f in row), "no reason given")
            raise BackendError(f"step {step}: none of {len(batch)} rollouts got a reward ({reason})")
        return row

    def _reward(self, batch: RolloutBatch, items: Sequence[PromptItem]) -> RolloutBatch:
        found = gather(self.rewards, items, batch.responses)
        return batch.with_(
            r_parts=found.parts,
            reward=self.recipe.reward(found.parts),
            acc=verifier_accuracy(items, batch.responses),
            failures=tuple(found.failures),
            scores=tuple(found.scores),
        )

    @torch.no_grad()
    def _score(self, batch: RolloutBatch) -> RolloutBatch:
        """Log-probs under the reference, and under the old weights where the batch gets more than one update.

        With a single update theta = old while the gradient is taken, so its own log-probs are used, detached.
        """
        temperature = self.recipe.sampling.temperature
        several = self.recipe.optimisation.updates_per_batch > 1
        old, ref = torch.zeros_like(batch.logp_mu), torch.zeros_like(batch.logp_mu)
        for rows in self._micro_batches(batch, torch.arange(len(batch))):
            part = batch.select(rows)
            if several:
                old[rows] = self.policy.scores(part, temperature=temperature).logp.cpu()
            if self.policy.has_reference:
                ref[rows] = self.policy.reference_logp(part, temperature=temperature).cpu()
        return batch.with_(logp_old=old if several else None, logp_ref=ref if self.policy.has_reference else None)

    def _update(self, batch: RolloutBatch, step: int) -> dict[str, float]:
        """The optimiser steps on one batch of rollouts; returns means over tokens and over updates."""
        settings, means = self.recipe.optimisation, TokenMeans()
        losses: list[float] = []
        norms: list[float] = []
        skipped = 0
        learning_rate = settings.value("lr", step)
        for group in self.optimiser.param_groups:
            group["lr"] = learning_rate
        generator = torch.Generator().manual_seed(derived_seed(self.recipe.seed, step, "minibatches"))
        for _ in range(settings.epochs):
            order = torch.randperm(len(batch), generator=generator)
            for rows in order.tensor_split(min(settings.minibatches, len(batch))):
                losses.append(self._backward(batch, rows, means, first=not losses))
                norm = float(torch.nn.utils.clip_grad_norm_(self.parameters.values(), settings.max_grad_norm))
                norms.append(norm)
                if math.isfinite(norm):
                    self.optimiser.step()
                    self.updates += 1
                else:
                    skipped += 1
                self.optimiser.zero_grad(set_to_none=True)
        return {
            "loss": sum(losses) / len(losses),
            "grad_norm": sum(norms) / len(norms),
            "lr": learning_rate,
            "updates_skipped": skipped,
            **means.to_dict(),
        }

    def _backward(self, batch: RolloutBatch, rows: Tensor, means: TokenMeans, *, first: bool) -> float:
        """Gradient of one minibatch, micro-batch by micro-batch; returns its loss."""
        recipe, total = self.recipe, 0.0
        counts = count(batch.loss_mask[rows])
        for micro in self._micro_batches(batch, rows):
            part = batch.select(micro)
            scores = self.policy.scores(part, temperature=recipe.sampling.temperature)
            context = self._context(part, scores.logp, scores.entropy)
            matrix, reports = recipe.objective.loss(scores.logp, context)
            loss = recipe.aggregator(matrix, context.loss_mask, counts)
            if recipe.kl.coefficient:
                loss = loss + recipe.kl.coefficient * recipe.aggregator(
                    recipe.kl.loss(scores.logp, context), context.loss_mask, counts
                )
            loss.backward()  # type: ignore[no-untyped-call]
            total += float(loss.detach())
            for name, values in reports.items():
                means.add(name, values, context.loss_mask)
            means.add("approx_kl_old", context.logp_old - scores.logp, context.loss_mask)
            if first:  # theta is still old: statistics of the policy that made the rollouts
                means.add("entropy", scores.entropy, context.mask)
                means.add_largest("sampler_gap_max", scores.logp - context.logp_mu, context.mask)
                if context.logp_ref is not None:
                    means.add_kl(scores.logp, context.logp_ref, context.mask)
        return total

    def _context(self, part: RolloutBatch, logp: Tensor, entropy: Tensor) -> UpdateContext:
        device = logp.device
        assert part.adv is not None  # set before any update
        return UpdateContext(
            adv=part.adv.to(device),
            mask=part.mask.to(device),
            loss_mask=part.loss_mask.to(device),
            logp_old=logp.detach() if part.logp_old is None else part.logp_old.to(device),
            logp_mu=part.logp_mu.to(device),
            logp_ref=None if part.logp_ref is None else part.logp_ref.to(device),
            entropy=entropy,
        )

    def _micro_batches(self, batch: RolloutBatch, rows: Tensor) -> Iterator[Tensor]:
        """Split `rows` into pieces of similar length, longest first; the rows of one group side by side where the model
        computes what they share once."""
        width = batch.train_mask[rows].sum(1) + batch.lengths[rows]
        ordered = rows[torch.argsort(width, descending=True, stable=True)]
        if can_pack(self.policy.model):
            ordered = ordered[torch.argsort(batch.group[ordered], stable=True)]
        yield from ordered.split(self.recipe.optimisation.micro_batch_rows)  # type: ignore[no-untyped-call]

    def _stateful(self) -> dict[str, Stateful]:
        """Every plug-in with memory, by a name that is the same in the next process."""
        plugins = {"prompts": self.prompts, "sampler": self.sampler, "estimator": self.recipe.estimator}
        plugins |= {"objective": self.recipe.objective, "kl": self.recipe.kl, "filter": self.recipe.filter}
        plugins |= {f"reward_{i}": source for i, source in enumerate(self.rewards)}
        plugins |= {f"metrics_{i}": plugin for i, plugin in enumerate(self.extra)}
        return {name: plugin for name, plugin in plugins.items() if isinstance(plugin, Stateful)}

    def save_checkpoint(self) -> Path:
        """Everything needed to go on as if nothing had happened."""
        cuda = self.policy.device.type == "cuda"
        tensors = {
            "parameters": {name: p.detach().cpu() for name, p in self.parameters.items()},
            "optimiser": self.optimiser.state_dict(),
            "rng": torch.get_rng_state(),
            "rng_cuda": torch.cuda.get_rng_state(self.policy.device) if cuda else None,
        }
        state = {
            "updates": self.updates,
            "policy_version": self.policy_version,
            "plugins": {name: plugin.state_dict() for name, plugin in self._stateful().items()},
            "logs": {log.path.name: log.sync() for log in (self.metrics_log, self.rollouts_log)},
        }
        return save_checkpoint(self.folder, Checkpoint(self.step, tensors, state))

    def resume(self, folder: Path | None = None) -> int:
        """Go back to the newest checkpoint in `folder` (default: own); returns its step, 0 where there is none.

        The logs in the trainer's own folder are cut to the checkpoint. Raises BadInputError when the checkpoint is
        of another base model, other prompts or other plug-ins.
        """
        if (found := newest_checkpoint(folder or self.folder)) is None:
            return 0
        if found.state["policy_version"] != self.policy_version:
            raise BadInputError(
                f"the checkpoint continues from base {found.state['policy_version']}, not {self.policy_version}"
            )
        plugins, states = self._stateful(), found.state["plugins"]
        if plugins.keys() != states.keys() or self.parameters.keys() != found.tensors["parameters"].keys():
            raise BadInputError("the checkpoint was made with other plug-ins or other trainable weights")
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                parameter.copy_(found.tensors["parameters"][name])
        self.optimiser.load_state_dict(found.tensors["optimiser"])
        for name, plugin in plugins.items():
            plugin.load_state_dict(states[name])
        torch.set_rng_state(found.tensors["rng"])
        if found.tensors["rng_cuda"] is not None and self.policy.device.type == "cuda":
            torch.cuda.set_rng_state(found.tensors["rng_cuda"], self.policy.device)
        for log in (self.metrics_log, self.rollouts_log):
            log.cut(int(found.state["logs"][log.path.name]))
        self.step, self.updates = found.step, int(found.state["updates"])
        return self.step


def derived_seed(seed: int, step: int, purpose: str) -> int:
    """A seed per step and purpose, so that no draw depends on how many draws went before."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{step}/{purpose}".encode()).digest()[:7], "big")
