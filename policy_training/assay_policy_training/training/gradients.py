"""The gradient of one minibatch, accumulated over micro-batches, with denominators that are fixed beforehand.

Covers: token weights (S8), objectives of every scope (S9), aggregation (S10), auxiliary losses (S11), the statistics
of the policy being updated. An objective of scope group runs in two passes (see `protocols.GroupObjective`). Of several
processes each takes some of the micro-batches, and the gradients are summed. Leaves out: the optimiser's step (`loop`).
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from assay.models.attention.packing import can_pack
from assay.models.devices import kept_casts, read_values, to_device
from assay_policy_training.core.aggregation import count
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.logprobs import SUPPLIED, TokenScores
from assay_policy_training.core.metrics import TokenMeans
from assay_policy_training.core.micro_batches import MicroBatch, PassLimits, process_micro_batches
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import POLICY
from assay_policy_training.core.sampling import Sampling
from assay_policy_training.plugins.protocols import GroupObjective, PolicyObjective, UpdateContext
from assay_policy_training.recipe.schema import Recipe


class Gradients:
    """Accumulates the gradient of the recipe's loss in the policy's parameters."""

    def __init__(self, recipe: Recipe, policy: Policy, parameters: Sequence[torch.nn.Parameter] | None = None) -> None:
        """`parameters`: where the gradients are; default: in the policy's own."""
        self.recipe, self.policy = recipe, policy
        self.parameters = list(policy.trainable().values()) if parameters is None else parameters
        used = [recipe.objective, *recipe.token_weights, *recipe.losses]
        needs: frozenset[str] = frozenset().union(*(getattr(plugin, "needs", frozenset()) for plugin in used))
        self.extras = needs & SUPPLIED

    def accumulate(
        self, batch: RolloutBatch, rows: Tensor, sampling: Sampling, means: TokenMeans, *, first: bool
    ) -> float:
        """Add the gradient of the minibatch `rows`, summed over processes; returns this process's part of the loss.

        `first`: theta is still old.
        """
        recipe, parallel, total = self.recipe, self.policy.parallel, 0.0
        losses: list[Tensor] = []
        counts = count(batch.loss_mask[rows])
        own_masks = [extra.own_mask(batch) if hasattr(extra, "own_mask") else None for extra in recipe.losses]
        masks = [(own_mask, counts if own_mask is None else count(own_mask[rows])) for own_mask in own_masks]
        coefficients: Tensor | None = None
        if recipe.objective.scope == "group":
            coefficients, total = self._row_coefficients(batch, rows, sampling, means)
        # Casts of gathered weights, or of weights whose layers are computed again, would be held longer than used.
        with kept_casts(parallel.world == 1 and not recipe.optimisation.gradient_checkpointing):
            for micro_batch in self.micro_batches(batch, rows):
                micro = micro_batch.rows
                scores, context = self._forward(batch.select(micro), sampling)
                if not micro_batch.counts:
                    parallel.backward(0.0 * scores.logp.sum())
                    continue
                if coefficients is not None:
                    objective = cast(GroupObjective, recipe.objective)
                    loss = (coefficients[micro].to(scores.logp) * objective.row_scores(scores.logp, context)).sum()
                else:
                    matrix, reports = cast(PolicyObjective, recipe.objective).loss(scores.logp, context)
                    loss = recipe.aggregator(self._weighted(matrix, scores.logp, context), context.loss_mask, counts)
                    losses.append(loss.detach())
                    for name, values in reports.items():
                        means.add(name, values, context.loss_mask)
                for extra, (own_mask, term_counts) in zip(recipe.losses, masks, strict=True):
                    mask = (
                        context.loss_mask if own_mask is None else to_device(own_mask[micro], context.loss_mask.device)
                    )
                    term = extra.coefficient * recipe.aggregator(extra.loss(scores.logp, context), mask, term_counts)
                    losses.append(term.detach())
                    loss = loss + term
                parallel.backward(loss)
                self._measure(means, scores, context, first=first)
        parallel.reduce(self.parameters)
        return total + sum(value for (value,) in read_values(losses))

    def _row_coefficients(
        self, batch: RolloutBatch, rows: Tensor, sampling: Sampling, means: TokenMeans
    ) -> tuple[Tensor, float]:
        """dL/ds of each row [B] (0 outside the minibatch), and L (0 but in the first process)."""
        objective = cast(GroupObjective, self.recipe.objective)
        row_scores, parts = torch.zeros(len(batch), dtype=torch.float64), list[tuple[Tensor, Tensor]]()
        with torch.no_grad():
            for micro_batch in self.micro_batches(batch, rows):
                scores, context = self._forward(batch.select(micro_batch.rows), sampling)
                if micro_batch.counts:
                    parts.append((micro_batch.rows, objective.row_scores(scores.logp, context).double()))
        if parts:
            row_scores[torch.cat([numbers for numbers, _ in parts])] = torch.cat([values for _, values in parts]).cpu()
        row_scores = torch.stack(self.policy.parallel.gather(row_scores)).sum(0)
        leaf = row_scores[rows].requires_grad_()
        loss, reports = objective.batch_loss(leaf, batch.select(rows))
        coefficients = torch.zeros(len(batch), dtype=torch.float64)
        if loss.requires_grad:
            (coefficients[rows],) = torch.autograd.grad(loss, leaf)
        for name, value in reports.items():
            means.add_number(name, value)
        return coefficients, float(loss.detach()) if self.policy.parallel.main else 0.0

    def _weighted(self, matrix: Tensor, logp: Tensor, context: UpdateContext) -> Tensor:
        """[b,T] token losses times the correction's weight and every token weight."""
        weights = [plugin.weight(logp.detach(), context) for plugin in self.recipe.token_weights]
        if context.rows is not None and context.rows.is_weight is not None:
            weights.append(to_device(context.rows.is_weight, matrix.device))
        for weight in weights:
            if weight is not None:
                matrix = matrix * weight
        return matrix

    def _forward(self, part: RolloutBatch, sampling: Sampling) -> tuple[TokenScores, UpdateContext]:
        scores = self.policy.scores(
            part, temperature=sampling.temperature, prune_log_ratio=sampling.prune_log_ratio, extras=self.extras
        )
        return scores, context_of(part, scores)

    def _measure(self, means: TokenMeans, scores: TokenScores, context: UpdateContext, *, first: bool) -> None:
        means.add("approx_kl_old", context.logp_old - scores.logp, context.loss_mask)
        if "outside" in scores.extras:  # of the trainer's pruned vocabulary: these tokens get no gradient
            means.add("outside_share", scores.extras["outside"], context.mask)
        if first:  # theta is still old: statistics of the policy that generated the rollouts
            generated = context.mask
            if context.rows is not None:
                generated = generated & to_device(context.rows.of_source(POLICY), generated.device)[:, None]
            means.add("entropy", scores.entropy, generated)
            means.add_largest("sampler_gap_max", scores.logp - context.logp_mu, generated & _newest(context))
            if context.logp_ref is not None:
                means.add_kl(scores.logp, context.logp_ref, generated)

    def micro_batches(self, batch: RolloutBatch, rows: Tensor) -> list[MicroBatch]:
        """This process's part of `rows`, in micro-batches within the recipe's limits."""
        limits, shared = PassLimits.of(self.recipe.optimisation, self.policy.device), can_pack(self.policy.model)
        return process_micro_batches(batch, rows, limits=limits, shared=shared, parallel=self.policy.parallel)


def context_of(part: RolloutBatch, scores: TokenScores) -> UpdateContext:
    """What plug-ins see of a micro-batch. Without `logp_old`, theta is old: its log-probs are used, detached.

    A token that the trainer's pruned vocabulary does not hold gets no gradient.
    """
    device = scores.logp.device

    def on_device(values: Tensor | None) -> Tensor | None:
        return None if values is None else to_device(values, device)

    loss_mask = to_device(part.loss_mask, device)
    if (outside := scores.extras.get("outside")) is not None:
        loss_mask = loss_mask & (outside == 0)
    return UpdateContext(
        adv=to_device(part.estimated_adv, device),
        mask=to_device(part.mask, device),
        loss_mask=loss_mask,
        logp_old=scores.logp.detach() if part.logp_old is None else to_device(part.logp_old, device),
        logp_mu=to_device(part.logp_mu, device),
        logp_ref=on_device(part.logp_ref),
        entropy=scores.entropy,
        extras=_detached(scores.extras),
        rows=part,
    )


def _newest(context: UpdateContext) -> Tensor:
    """[b,T] bool: the tokens that the row's newest weights generated, not those of earlier windows."""
    if context.rows is None:
        return context.mask
    rows = context.rows
    return context.mask & to_device(rows.token_version == rows.version[:, None], context.mask.device)


def _detached(extras: Mapping[str, Any]) -> dict[str, Tensor]:
    """All extras detached but `teacher_kl`, which is a loss."""
    return {name: values if name == "teacher_kl" else values.detach() for name, values in extras.items()}
