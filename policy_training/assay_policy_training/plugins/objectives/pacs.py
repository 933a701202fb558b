"""PACS: the policy's log-ratio as the score of a classifier that separates right rollouts from wrong ones.

Covers: s_i = beta sum_t (logp - logp_old) over the row's own loss tokens (the released code sums without a mask, which
is right only if padding has equal log-probs on both sides), psi_i = s_i less a baseline of the group, binary
cross-entropy against the verifier's result. Leaves out: rewards that are not right or wrong. At the first optimiser
step s is 0 for all rows, and a group that is all right or all wrong gives no gradient under the leave-one-out baseline;
once its scores differ it does.

Source: arXiv 2509.02522, code ritzz-ai/PACS read. Oracle s 1 -1 0 -.5, y 1 0 0 1: psi 1.5 -1.166667 .166667 -.5, mean
.556634, dL/dpsi -.045606 .059365 .135393 -.155615.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Gt
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.ratios import row_sum
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.objectives.row_scores import group_mean, group_sum
from assay_policy_training.plugins.protocols import Scope, UpdateContext


def against_group(scores: Tensor, group: Tensor, kind: str) -> Tensor:
    """psi [n] from scores [n]: less the mean of the group's others (`rloo`; a row alone keeps its score), z-scored
    (`grpo`, ddof 1, eps 1e-6), or as they are (`none`). Differentiable."""
    if kind == "none":
        return scores
    count = group_sum(torch.ones_like(scores), group)[group]
    mean = group_mean(scores, group)
    centred = scores - mean
    if kind == "rloo":
        return torch.where(count > 1, centred * count / (count - 1).clamp(min=1), scores)
    variance = group_sum(centred**2, group)[group] / (count - 1).clamp(min=1)
    return centred / ((variance + 1e-24).sqrt() + 1e-6)


def class_weights(label: Tensor, group: Tensor) -> Tensor:
    """[n] G / (2 n_class) of each row's own class in its group: 2 and 2/3 for one right row of four; 1 in a group of
    one class, as in the released code."""
    size = group_sum(torch.ones_like(label), group)[group]
    right = group_sum(label, group)[group]
    class_size = torch.where(label > 0, right, size - right)
    return torch.where(class_size == size, 1.0, size / (2 * class_size.clamp(min=1)))


@dataclass(frozen=True)
class Pacs(RecipeSettings, section="objective"):
    """S9, group scope. `label`: the verifier's result (`acc`), or whether the reward is above `threshold`. Rows without
    a label take no part."""

    beta: Annotated[float, Gt(0)] = 1.0
    baseline: Literal["rloo", "grpo", "none"] = "rloo"
    balanced: bool = False
    label: Literal["acc", "reward"] = "acc"
    threshold: float = 0.5
    scope: ClassVar[Scope] = "group"
    needs: ClassVar[frozenset[str]] = frozenset({"logp_old"})

    def row_scores(self, logp: Tensor, context: UpdateContext) -> Tensor:
        return self.beta * row_sum(logp - context.logp_old, context.loss_mask)

    def batch_loss(self, scores: Tensor, rows: RolloutBatch) -> tuple[Tensor, dict[str, float]]:
        label = self._labels(rows).to(scores)
        labelled = ~label.isnan()
        if not labelled.any():
            return scores.sum() * 0, {}
        psi = against_group(scores[labelled], rows.group[labelled], self.baseline)
        target = label[labelled]
        weight = class_weights(target, rows.group[labelled]) if self.balanced else None
        loss = binary_cross_entropy_with_logits(psi, target, weight=weight)
        return loss, {"pacs_accuracy": float(((psi > 0) == (target > 0)).double().mean())}

    def _labels(self, rows: RolloutBatch) -> Tensor:
        if self.label == "reward":
            reward = rows.outcome
            return torch.where(reward.isnan(), reward, (reward > self.threshold).double())
        return torch.full((len(rows),), torch.nan) if rows.acc is None else rows.acc
