"""Objectives on recorded responses and their steps: A-LoL, Direct Advantage Policy Optimization.

A-LoL: offline policy gradient whose only action is the whole response. Covers: the loss -A clip(pi/ref) log pi with the
ratio of whole responses as a constant weight, and the variants without it or with the ratio of single tokens. Leaves
out: the advantage (estimator `step_values` on rows of one step, negative ones dropped), drawing rows by their advantage
(replay `priority`: then the weight is the same for all). Source: arXiv 2305.14718, code abaheti95/LoL-RL read. Oracle
log-ratios .3 -.2: ratio e^.1 = 1.105171 inside the clip.

Direct Advantage Policy Optimization: each step's log-ratio is regressed on its advantage. Covers: 1/2 (sum over the
step's tokens of (logp - logp_old) - A / beta)^2 for every step of a row (`segment`; a row without steps is one), as a
matrix with a step's loss on its last token, so that summing tokens sums steps. Leaves out: the steps' advantages
(estimator `step_values`), values trained from rollouts. Not ByteDance's DAPO. Source: arXiv 2412.18279 (abstract and
summaries: the quadratic loss is confirmed, scaling and centring are ours). Oracle log-ratios .2 -.1, A .3, beta 2:
.00125.
"""

from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Gt, Le
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.ratios import CLAMP_LOG_RATIO, row_sum
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.protocols import RecipeView, Scope, UpdateContext


def response_ratio(log_ratio: Tensor, mask: Tensor, clip: float) -> Tensor:
    """[b] pi/ref of whole responses, in [1 - clip, 1 + clip]; a constant."""
    total = row_sum(log_ratio.detach(), mask).clamp(-CLAMP_LOG_RATIO, CLAMP_LOG_RATIO)
    return total.exp().clamp(1 - clip, 1 + clip)


class Alol(RecipeSettings, section="objective"):
    """S9, sequence scope. `ratio`: of whole responses, of tokens, or none."""

    clip: Annotated[float, Gt(0), Le(1)] = 0.9
    ratio: Literal["sequence", "token", "none"] = "sequence"
    scope: ClassVar[Scope] = "sequence"

    @property
    def needs(self) -> frozenset[str]:
        return frozenset() if self.ratio == "none" else frozenset({"logp_ref"})

    def loss(self, logp: Tensor, context: UpdateContext) -> tuple[Tensor, dict[str, Tensor]]:
        weight = torch.ones_like(logp)
        if self.ratio != "none":
            gap = logp.detach() - context.scored_logp_ref
            if self.ratio == "sequence":
                weight = response_ratio(gap, context.mask, self.clip)[:, None].expand_as(logp)
            else:
                weight = gap.clamp(-CLAMP_LOG_RATIO, CLAMP_LOG_RATIO).exp().clamp(1 - self.clip, 1 + self.clip)
        return -context.adv * weight * logp, {"response_ratio": weight}


def over_segments(values: Tensor, segment: Tensor, mask: Tensor) -> Tensor:
    """[b,T]: at each masked token, the sum of `values` over the masked tokens of its segment. Differentiable."""
    width = int(segment.max()) + 1 if segment.numel() else 1
    totals = values.new_zeros(len(values), width).scatter_add(1, segment, values.masked_fill(~mask, 0.0))
    return totals.gather(1, segment).masked_fill(~mask, 0.0)


def last_of_segment(segment: Tensor, mask: Tensor) -> Tensor:
    """[b,T] bool: the last masked token of each segment."""
    width = int(segment.max()) + 1 if segment.numel() else 1
    places = torch.arange(segment.shape[1], device=segment.device).expand_as(segment)
    last = torch.full((len(segment), width), -1, device=segment.device)
    last = last.scatter_reduce(1, segment, torch.where(mask, places, -1), "amax")
    return mask & (last.gather(1, segment) == places)


class DirectAdvantage(RecipeSettings, section="objective"):
    """S9, sequence scope."""

    beta: Annotated[float, Gt(0)] = 1.0
    scope: ClassVar[Scope] = "sequence"
    needs: ClassVar[frozenset[str]] = frozenset({"logp_old"})

    def check_recipe(self, recipe: RecipeView) -> None:
        """Raises BadInputError for means over tokens: only the last of a step carries its loss."""
        mode = getattr(recipe.aggregation, "mode", "")
        if mode.endswith("token-mean"):
            raise BadInputError(f"{mode} divides steps by tokens: use seq-mean-token-sum", field="aggregation.mode")

    def loss(self, logp: Tensor, context: UpdateContext) -> tuple[Tensor, dict[str, Tensor]]:
        steps = None if context.rows is None else context.rows.segment
        segment = torch.zeros_like(context.mask, dtype=torch.long) if steps is None else steps.to(logp.device)
        ratio = over_segments(logp - context.logp_old, segment, context.loss_mask)
        last = last_of_segment(segment, context.loss_mask)
        loss = 0.5 * (ratio - context.adv / self.beta) ** 2
        return torch.where(last, loss, 0.0), {"step_log_ratio": ratio.detach()}
