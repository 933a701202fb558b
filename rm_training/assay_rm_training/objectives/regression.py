"""Regression on several named ratings, and their aggregation into one reward.

Covers: the masked squared error, aggregation by weights, mean, minimum and gate (`assay.models.readings`), the folding
of a linear aggregation into one head. Leaves out: reading ratings (`assay_rm_training.data.ratings`), standardising
them, saving.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from assay.models.readings import Aggregation

__all__ = ["Aggregation", "fold", "masked_mse"]


def masked_mse(predicted: torch.Tensor, target: torch.Tensor, present: torch.Tensor) -> torch.Tensor:
    """Mean over a row's present ratings of (predicted - target)^2, per row [B]; all arguments are [B, K], `present`
    1 or 0. Missing ratings are ignored, whatever their `target`; a row without any has loss 0."""
    error = torch.where(present > 0, predicted - target, torch.zeros_like(predicted)) ** 2
    return error.sum(dim=-1) / present.sum(dim=-1).clamp_min(1)


def fold(weight: torch.Tensor, weights: Sequence[float], scales: Sequence[float]) -> torch.Tensor:
    """The one-output head [1, H] that gives sum_k w_k scale_k (head_k . h), from a head [K, H] trained on ratings
    divided by `scales`. The reward is the aggregate of the ratings minus that of their means."""
    factors = torch.tensor([w * s for w, s in zip(weights, scales, strict=True)], dtype=torch.float64)
    return (factors[None] @ weight.double().cpu()).to(weight.dtype)
