"""Process rewards: labels of single steps and their loss.

Covers: binary cross-entropy on step logits, Monte-Carlo labels and the search for the first wrong step (Math-Shepherd,
arXiv 2312.08935; OmegaPRM-style search; card C21, from memory). Leaves out: where a step's logit is read
(`assay.models.step_reader`), one reward from several steps (`assay.models.readings`), sampling continuations.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F


def step_loss(logits: torch.Tensor, labels: torch.Tensor, labelled: torch.Tensor) -> torch.Tensor:
    """-y log s(z) - (1-y) log s(-z) for each step [n], 0 where `labelled` is 0 whatever its label; y in [0, 1] may be a
    soft label."""
    labels = torch.where(labelled > 0, labels, torch.zeros_like(labels))  # nan there would reach the gradient
    loss = -labels * F.logsigmoid(logits) - (1 - labels) * F.logsigmoid(-logits)
    return torch.where(labelled > 0, loss, torch.zeros_like(loss))


def monte_carlo_label(correct: int, tried: int) -> tuple[float, int]:
    """(soft, hard) label of a step from `tried` continuations of its prefix: the share that ends right, and whether
    any does. Hard labels are optimistic for strong samplers."""
    if not (tried > 0 and 0 <= correct <= tried):
        raise ValueError(f"{correct} of {tried} continuations")
    return correct / tried, int(correct > 0)


def standard_error(soft: float, tried: int) -> float:
    """Of a soft label: sqrt(p (1-p) / n)."""
    return math.sqrt(soft * (1 - soft) / tried)


def first_error(steps: int, still_right: Callable[[int], bool]) -> int:
    """Index of the first wrong step of a response known to end wrong, by at most ceil(log2 steps) questions.

    `still_right(k)`: whether some continuation of the first k steps ends right. Assumes that it holds up to the error
    and not after, which fails where a model corrects itself.
    """
    low, high = 0, steps  # the prefix of `low` steps is right, that of `high` is not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if still_right(middle) else (low, middle)
    return low
