"""Losses of single responses: ratings by regression, labels of steps.

Regression on several named ratings, and their aggregation into one reward. Covers: the masked squared error,
aggregation by weights, mean, minimum and gate (`assay.models.readings`), the folding of a linear aggregation into one
head. Leaves out: reading ratings (`assay_rm_training.data.response_labels`), standardising them, saving.

Process rewards: the loss of labelled steps. Covers: binary cross-entropy on step logits (Math-Shepherd, arXiv
2312.08935). Leaves out: where a step's logit is read (`assay.models.chat.step_reader`), one reward from several steps
(`assay.models.readings`), labels (`assay_rm_training.data.response_labels`).
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F

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


def step_loss(logits: torch.Tensor, labels: torch.Tensor, labelled: torch.Tensor) -> torch.Tensor:
    """-y log s(z) - (1-y) log s(-z) for each step [n], 0 where `labelled` is 0 whatever its label; y in [0, 1] may be a
    soft label."""
    labels = torch.where(labelled > 0, labels, torch.zeros_like(labels))  # nan there would reach the gradient
    loss = -labels * F.logsigmoid(logits) - (1 - labels) * F.logsigmoid(-logits)
    return torch.where(labelled > 0, loss, torch.zeros_like(loss))
