"""Losses that train a policy on preferences, each a plain function of log-probabilities to one loss an item.

Covers: robust DPO, the log odds ratio of ORPO, KTO. Leaves out: DPO and IPO, which online methods use too
(`assay_policy_training.core.ratios`), log-probabilities (`methods/response_logprobs.py`), the methods (`preference/`).
"""

import math

import torch
import torch.nn.functional as F


def robust(d: torch.Tensor, *, label_smoothing: float = 0.0) -> torch.Tensor:
    """(-(1-e) log s(d) + e log s(-d)) / (1-2e), per pair [B]: unbiased where a share e of the labels is flipped
    (arXiv 2403.00409, equation 11); may be negative."""
    e = label_smoothing
    return (-(1 - e) * F.logsigmoid(d) + e * F.logsigmoid(-d)) / (1 - 2 * e)


def log_odds_ratio(chosen: torch.Tensor, rejected: torch.Tensor) -> torch.Tensor:
    """log(odds(chosen) / odds(rejected)), per pair [B], of mean log-probabilities a token; odds p / (1-p) (ORPO, arXiv
    2403.07691, equation 4)."""
    return (chosen - rejected) - (_log_complement(chosen) - _log_complement(rejected))


def _log_complement(log_p: torch.Tensor) -> torch.Tensor:
    """log(1 - p), with a finite gradient also where p rounds to 1."""
    below = log_p.clamp_max(-torch.finfo(log_p.dtype).eps)
    small = below < -math.log(2)
    # Each form with an argument at which its gradient is finite, so that the branch not taken adds no NaN.
    far = torch.log1p(-torch.exp(torch.where(small, below, -1.0)))
    near = torch.log(-torch.expm1(torch.where(small, -0.5, below)))
    return torch.where(small, far, near)


def kto(
    ratio: torch.Tensor,
    kl: torch.Tensor,
    desirable: torch.Tensor,
    *,
    beta: float,
    desirable_weight: float = 1.0,
    undesirable_weight: float = 1.0,
) -> torch.Tensor:
    """w * (1 - s(beta * (ratio - kl))) of a desirable response, w * (1 - s(beta * (kl - ratio))) of another, per
    response [B] (arXiv 2402.01306, equation 7). `ratio`: log pi(y|x) - log pi_ref(y|x). `kl`: a scalar, at least 0."""
    gap = beta * (ratio - kl)
    weight = torch.where(desirable, desirable_weight, undesirable_weight).to(ratio.dtype)
    return weight * torch.sigmoid(torch.where(desirable, -gap, gap))
