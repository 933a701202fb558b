"""Process rewards: the loss of labelled steps.

Covers: binary cross-entropy on step logits (Math-Shepherd, arXiv 2312.08935). Leaves out: where a step's logit is read
(`assay.models.chat.step_reader`), one reward from several steps (`assay.models.readings`), labels
(`assay_rm_training.data.step_labels`).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F


def step_loss(logits: torch.Tensor, labels: torch.Tensor, labelled: torch.Tensor) -> torch.Tensor:
    """-y log s(z) - (1-y) log s(-z) for each step [n], 0 where `labelled` is 0 whatever its label; y in [0, 1] may be a
    soft label."""
    labels = torch.where(labelled > 0, labels, torch.zeros_like(labels))  # nan there would reach the gradient
    loss = -labels * F.logsigmoid(logits) - (1 - labels) * F.logsigmoid(-logits)
    return torch.where(labelled > 0, loss, torch.zeros_like(loss))
