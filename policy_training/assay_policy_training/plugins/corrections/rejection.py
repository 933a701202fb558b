"""Rows on which the sampler (mu) and the trainer (old) disagree too much are not trained on.

Covers: geometric rejection, by the mean log-ratio of a row; Trust Region Masking, by the largest and the mean token
divergence of a row. Both narrow `loss_mask` and set no weight, so they go with a weighing correction, with PPO's bypass
mode or with AIPO. Trust Region Masking is defined with KL(mu || theta) over the whole vocabulary; here it is estimated
from the sampled tokens, because the sampler's logits are not stored: the largest k2 = l^2/2 and the mean k3 = c - 1 -
l. That is a weaker test than the exact KL (mu [.9,.05,.05], theta [.7,.2,.1]: exact .122, on the first token k2 .032).
It is evaluated once a step with old, before the first update. Leaves out: weights (`importance`).

Sources: geometric rejection as in verl's rollout correction; Trust Region Masking arXiv 2512.23075.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Gt, Lt
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.aggregation import TOTAL
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.ratios import log_ratio, row_mean
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.corrections.importance import BOTH, Level, masked_correction, old_and_mu
from assay_policy_training.plugins.protocols import Correction, RecipeView


def geometric_keep(ratio: Tensor, mask: Tensor, low: float, high: float) -> Tensor:
    """[B] bool: low <= exp(mean_t l_t) <= high; `ratio` [B,T] holds l."""
    mean = row_mean(ratio, mask).exp()
    return (mean >= low) & (mean <= high)


def divergences(ratio: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """([B] largest k2, [B] mean k3) of each row's tokens; `ratio` [B,T] holds l."""
    largest = torch.where(mask, ratio**2 / 2, 0.0).amax(1)
    return largest, row_mean(torch.expm1(ratio) - ratio, mask)


@dataclass(frozen=True)
class GeometricRejection(RecipeSettings, section="corrections"):
    """S5. The bounds are tight because they are of a mean over the row."""

    low: Annotated[float, Ge(0), Lt(1)] = 0.999
    high: Annotated[float, Gt(1)] = 1.001
    weighs: ClassVar[bool] = False
    level: ClassVar[Level] = "sequence"
    needs: ClassVar[frozenset[str]] = BOTH

    def correct(self, batch: RolloutBatch) -> Correction:
        keep = geometric_keep(log_ratio(*old_and_mu(batch)), batch.mask, self.low, self.high)
        return _rejected("geometric", batch, keep)


@dataclass(frozen=True)
class TrustRegionMask(RecipeSettings, section="corrections"):
    """S5: sample-based Trust Region Masking. A row stays where every given criterion holds; None = not used.

    With the exact KL the paper takes .05 for the largest or .001 for the mean.
    """

    max_k2: Annotated[float | None, Gt(0)] = 0.05
    mean_k3: Annotated[float | None, Gt(0)] = None
    weighs: ClassVar[bool] = False
    level: ClassVar[Level] = "sequence"
    needs: ClassVar[frozenset[str]] = BOTH

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_k2 is None and self.mean_k3 is None:
            raise BadInputError("give max_k2, mean_k3 or both", field="corrections.max_k2")

    def check_recipe(self, recipe: RecipeView) -> None:
        """A rejected row adds nothing to the sum and 1 to the number of rows it is divided by."""
        if getattr(recipe.aggregation, "mode", TOTAL) != TOTAL:
            raise BadInputError(f"trust-region masking divides by all rows sampled: {TOTAL}", field="aggregation.mode")

    def correct(self, batch: RolloutBatch) -> Correction:
        largest, mean = divergences(log_ratio(*old_and_mu(batch)), batch.mask)
        keep = torch.ones(len(batch), dtype=torch.bool)
        if self.max_k2 is not None:
            keep &= largest <= self.max_k2
        if self.mean_k3 is not None:
            keep &= mean <= self.mean_k3
        return _rejected("trust_region", batch, keep)


def _rejected(name: str, batch: RolloutBatch, keep: Tensor) -> Correction:
    shape = batch.mask.shape
    return masked_correction(name, batch, torch.ones(shape), keep[:, None].expand(shape))
