"""Ratios of two policies on sampled tokens, and what rows make of them.

Covers: the clamped log-ratio, the truncated importance weight that TIS, CISPO and AIPO share (they differ only in whose
log-probs are the numerator and the denominator), means and sums over a row's tokens. Leaves out: who uses them
(`objectives`, `corrections`).
"""

from __future__ import annotations

import torch
from torch import Tensor

CLAMP_LOG_RATIO = 20.0


def log_ratio(num: Tensor, den: Tensor) -> Tensor:
    """log(num / den) of two log-prob tensors, within +-20 against overflow."""
    return (num - den).clamp(-CLAMP_LOG_RATIO, CLAMP_LOG_RATIO)


def truncated_is(num: Tensor, den: Tensor, cap: float | None) -> Tensor:
    """min(num / den, cap) of two log-prob tensors, detached; cap None = not truncated.

    old / mu is TIS, theta / old is CISPO, theta / mu is AIPO.
    """
    ratio = log_ratio(num, den).detach().exp()
    return ratio if cap is None else ratio.clamp(max=cap)


def row_sum(values: Tensor, mask: Tensor) -> Tensor:
    """[B] sum over the tokens of `mask`; both [B,T]."""
    return torch.where(mask, values, 0.0).sum(1)


def row_mean(values: Tensor, mask: Tensor) -> Tensor:
    """[B] mean over the tokens of `mask`, 0 for a row without any; both [B,T]."""
    return row_sum(values, mask) / mask.sum(1).clamp(min=1)
