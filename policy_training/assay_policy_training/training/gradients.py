"""The gradient of one minibatch, micro-batch by micro-batch, with denominators that were fixed before.

Covers: token weights (S8), objectives of every scope (S9), aggregation (S10), auxiliary losses (S11), the statistics
of the policy being updated. A group-scope objective runs in two passes (see `slots.GroupObjective`). Of several
processes each takes some of the micro-batches, and the gradients are added up. Leaves out: the optimiser's step
(`loop`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor

from assay.models.attention.packing import can_pack
from assay_policy_training.core.aggregation import count
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.logprobs import SUPPLIED, TokenScores
from assay_policy_training.core.metrics import TokenMeans
from assay_policy_training.core.micro_batches import Piece, own_pieces
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import POLICY
from assay_policy_training.core.sampling import Sampling
from assay_policy_training.plugins.protocols import GroupObjective, PolicyObjective, UpdateContext
from assay_policy_training.recipe.schema import Recipe


class Gradients:
    """Accumulates the gradient of the recipe's loss in the policy's parameters."""

    def __init__(self, recipe: Recipe, policy: Policy) -> None:
        self.recipe, self.policy = recipe, policy
        used = [recipe.objective, *recipe.token_weights, *recipe.losses]
        needs: frozenset[str] = frozenset().union(*(getattr(plugin, "needs", frozenset()) for plugin in used))
        self.wanted = needs & SUPPLIED

    def accumulate(
        self, batch: RolloutBatch, rows: Tensor, sampling: Sampling, means: TokenMeans, *, first: bool
    ) -> float:
        """Add the gradient of the minibatch `rows`, all processes' parts of it; returns this one's part of its loss.

        `first`: theta is still old.
        """
        recipe, parallel, total = self.recipe, self.policy.parallel, 0.0
        counts = count(batch.loss_mask[rows])
        owned = [extra.own_mask(batch) if hasattr(extra, "own_mask") else None for extra in recipe.losses]
        masks = [(own, counts if own is None else count(own[rows])) for own in owned]
        coefficients: Tensor | None = None
        if recipe.objective.scope == "group":
            coefficients, total = self._row_coefficients(batch, rows, sampling, means)
        for piece in self.pieces(batch, rows):
            micro = piece.rows
            scores, context = self._forward(batch.select(micro), sampling)
            if not piece.counts:
                parallel.backward(0.0 * scores.logp.sum())
                continue
            if coefficients is not None:
                objective = cast(GroupObjective, recipe.objective)
                loss = (coefficients[micro].to(scores.logp) * objective.row_scores(scores.logp, context)).sum()
            else:
                matrix, reports = cast(PolicyObjective, recipe.objective).loss(scores.logp, context)
                loss = recipe.aggregator(self._weighted(matrix, scores.logp, context), context.loss_mask, counts)
                total += float(loss.detach())
                for name, values in reports.items():
                    means.add(name, values, context.loss_mask)
            for extra, (own, whole) in zip(recipe.losses, masks, strict=True):
                mask = context.loss_mask if own is None else own[micro].to(context.loss_mask.device)
                term = extra.coefficient * recipe.aggregator(extra.loss(scores.logp, context), mask, whole)
                total += float(term.detach())
                loss = loss + term
            parallel.backward(loss)
            self._measure(means, scores, context, first=first)
        parallel.reduce(list(self.policy.trainable().values()))
        return total

    def _row_coefficients(
        self, batch: RolloutBatch, rows: Tensor, sampling: Sampling, means: TokenMeans
    ) -> tuple[Tensor, float]:
        """dL/ds of each row [B] (0 outside the minibatch), and L (0 but in the first process)."""
        objective = cast(GroupObjective, self.recipe.objective)
        found = torch.zeros(len(batch), dtype=torch.float64)
        with torch.no_grad():
            for piece in self.pieces(batch, rows):
                scores, context = self._forward(batch.select(piece.rows), sampling)
                if piece.counts:
                    found[piece.rows] = objective.row_scores(scores.logp, context).double().cpu()
        found = torch.stack(self.policy.parallel.gather(found)).sum(0)
        leaf = found[rows].requires_grad_()
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
            weights.append(context.rows.is_weight.to(matrix.device))
        for weight in weights:
            if weight is not None:
                matrix = matrix * weight
        return matrix

    def _forward(self, part: RolloutBatch, sampling: Sampling) -> tuple[TokenScores, UpdateContext]:
        scores = self.policy.scores(
            part, temperature=sampling.temperature, prune_log_ratio=sampling.prune_log_ratio, wanted=self.wanted
        )
        return scores, context_of(part, scores)

    def _measure(self, means: TokenMeans, scores: TokenScores, context: UpdateContext, *, first: bool) -> None:
        means.add("approx_kl_old", context.logp_old - scores.logp, context.loss_mask)
        if "outside" in scores.extras:  # of the trainer's pruned vocabulary: these tokens get no gradient
            means.add("outside_share", scores.extras["outside"], context.mask)
        if first:  # theta is still old: statistics of the policy that made the rollouts, on rows of its own
            own = context.mask
            if context.rows is not None:
                own = own & context.rows.of_source(POLICY).to(own.device)[:, None]
            means.add("entropy", scores.entropy, own)
            means.add_largest("sampler_gap_max", scores.logp - context.logp_mu, own & _newest(context))
            if context.logp_ref is not None:
                means.add_kl(scores.logp, context.logp_ref, own)

    def pieces(self, batch: RolloutBatch, rows: Tensor) -> list[Piece]:
        """This process's part of `rows`, in pieces of at most the recipe's size."""
        size, shared = self.recipe.optimisation.micro_batch_rows, can_pack(self.policy.model)
        return own_pieces(batch, rows, size=size, shared=shared, parallel=self.policy.parallel)


def context_of(part: RolloutBatch, scores: TokenScores) -> UpdateContext:
    """What plug-ins see of a micro-batch. Without `logp_old` theta is old, so its own log-probs stand, detached.

    A token that the trainer's pruned vocabulary does not hold gets no gradient.
    """
    device = scores.logp.device

    def there(values: Tensor | None) -> Tensor | None:
        return None if values is None else values.to(device)

    loss_mask = part.loss_mask.to(device)
    if (outside := scores.extras.get("outside")) is not None:
        loss_mask = loss_mask & (outside == 0)
    return UpdateContext(
        adv=part.estimated_adv.to(device),
        mask=part.mask.to(device),
        loss_mask=loss_mask,
        logp_old=scores.logp.detach() if part.logp_old is None else part.logp_old.to(device),
        logp_mu=part.logp_mu.to(device),
        logp_ref=there(part.logp_ref),
        entropy=scores.entropy,
        extras=_detached(scores.extras),
        rows=part,
    )


def _newest(context: UpdateContext) -> Tensor:
    """[b,T] bool: the tokens that the row's newest weights drew; those of earlier windows differ for another reason."""
    if context.rows is None:
        return context.mask
    rows = context.rows
    return context.mask & (rows.token_version == rows.version[:, None]).to(context.mask.device)


def _detached(extras: Mapping[str, Any]) -> dict[str, Tensor]:
    """What is not meant to be differentiated is not."""
    return {name: values if name == "teacher_kl" else values.detach() for name, values in extras.items()}
