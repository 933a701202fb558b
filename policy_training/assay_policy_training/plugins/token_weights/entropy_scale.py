"""HAPO's measure of a token: how far the logarithm of its entropy is from the batch's pivot, in [-1, 1].

e = ln max(H, 1e-8); the pivot is the .8-quantile (nearest) of e over the policy's tokens; h = (e - pivot) / root mean
square of e - pivot, divided by the largest h where it is positive and by the size of the smallest where it is negative,
so that the sign stays: the released code divides negative h by a negative number, which makes every token's value
positive and the branch for low entropy dead. Read by HAPO's objective and by its sampler.

Source: HAPO arXiv 2509.16591.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from assay_policy_training.plugins.token_weights.quantile import quantile

LEAST_ENTROPY = 1e-8
PIVOT = 0.8


@dataclass(frozen=True)
class EntropyScale:
    """Pivot, root mean square, and the ends of h over a batch; all of ln H."""

    pivot: float
    deviation: float
    highest: float  #: largest h, 0 where none is positive
    lowest: float  #: smallest h, 0 where none is negative

    @classmethod
    def of(cls, entropy: Tensor, mask: Tensor) -> EntropyScale | None:
        """Of the tokens of `mask`; None where there are none."""
        values = entropy[mask].double().clamp(min=LEAST_ENTROPY).log()
        if not len(values):
            return None
        pivot = quantile(values, PIVOT, nearest=True)
        deviation = float(((values - pivot) ** 2).mean().sqrt())
        if deviation == 0:
            return cls(pivot, 0.0, 0.0, 0.0)
        h = (values - pivot) / deviation
        return cls(pivot, deviation, max(0.0, float(h.max())), min(0.0, float(h.min())))

    def normalised(self, entropy: Tensor) -> Tensor:
        """h in [-1, 1], float32; values outside the batch's range are cut."""
        if self.deviation == 0:
            return torch.zeros(entropy.shape, device=entropy.device)
        h = (entropy.detach().double().clamp(min=LEAST_ENTROPY).log() - self.pivot) / self.deviation
        up = h / self.highest if self.highest > 0 else h
        down = h / -self.lowest if self.lowest < 0 else h
        return torch.where(h > 0, up, down).clamp(-1.0, 1.0).float()
