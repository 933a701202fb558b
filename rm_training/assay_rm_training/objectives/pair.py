"""Losses of one preference pair, each a plain function of rewards to one loss a pair.

Covers: Bradley-Terry with margin, temperature, label smoothing and soft labels, and the variants of
Skywork-Reward's ablation (arXiv 2410.18451). Leaves out: ties (`ties.py`), what is added to a loss
(`regularisers.py`), the choice among them (`objective.py`).

Notation: c, r rewards [B] of chosen and rejected, d = c - r, s the logistic function, p = s(d). Logarithms of s are
computed in the stable form log s(z) = min(z, 0) - log(1 + exp(-|z|)). A margin m and a temperature tau enter as
d -> (d - m) / tau (margin: Llama 2, arXiv 2307.09288; its tables of margins from memory).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F


def bradley_terry(d: torch.Tensor, *, label_smoothing: float = 0.0) -> torch.Tensor:
    """-(1-e) log s(d) - e log s(-d), per pair [B].

    Bradley-Terry as in InstructGPT (arXiv 2203.02155); smoothing as in conservative DPO: with a share e of labels
    flipped the minimum lies at the finite d = ln((1-e)/e).
    """
    loss = -F.logsigmoid(d)
    if label_smoothing:
        loss = (1 - label_smoothing) * loss - label_smoothing * F.logsigmoid(-d)
    return loss


def bradley_terry_soft(d: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """-t log s(d) - (1-t) log s(-d), per pair [B]: cross-entropy against t = P(chosen wins) in [0, 1].

    Its minimum is the entropy of t, at d = ln(t / (1-t)); t = 1 is Bradley-Terry, t = 1-e label smoothing.
    """
    return -target * F.logsigmoid(d) - (1 - target) * F.logsigmoid(-d)


def focal(d: torch.Tensor, *, gamma: float = 2.0) -> torch.Tensor:
    """-(1-p)^gamma log p, per pair [B]: the usual focal form."""
    return -(torch.sigmoid(-d) ** gamma) * F.logsigmoid(d)


def focal_internlm(d: torch.Tensor, *, gamma: float = 2.0) -> torch.Tensor:
    """-(1 - 2 max(0, p - 1/2))^gamma log p, per pair [B] (InternLM2, arXiv 2403.17297): full weight where wrong."""
    return -(focal_weight(d, gamma=gamma)) * F.logsigmoid(d)


def focal_weight(d: torch.Tensor, *, gamma: float = 2.0) -> torch.Tensor:
    """(1 - 2 max(0, p - 1/2))^gamma, per pair [B]: 1 for every pair ranked wrong, towards 0 for sure ones."""
    return (1 - 2 * F.relu(torch.sigmoid(d) - 0.5)) ** gamma


def hinge(d: torch.Tensor, *, margin: float = 1.0) -> torch.Tensor:
    """max(0, margin - d), per pair [B]."""
    return F.relu(margin - d)


def margin_mse(d: torch.Tensor, *, margin: float = 1.0) -> torch.Tensor:
    """(d - margin)^2, per pair [B]."""
    return (d - margin) ** 2


def tempered_log(d: torch.Tensor, *, tempering: float = 0.5) -> torch.Tensor:
    """-(p^(1-t) - 1) / (1-t), per pair [B]: bounded by 1/(1-t), so one wrong label cannot dominate; t -> 1 is
    Bradley-Terry. The ablation that names it (Skywork-Reward, arXiv 2410.18451) gives no formula: the standard one."""
    return -torch.expm1((1 - tempering) * F.logsigmoid(d)) / (1 - tempering)


def pointwise(chosen: torch.Tensor, rejected: torch.Tensor) -> torch.Tensor:
    """-log s(c) - log s(-r), per pair [B]: each side is classified by itself.

    Needs absolute labels: on pairs it penalises prompts where both answers are good, and was the worst of the published
    ablation (87.6 against 93.8).
    """
    return -F.logsigmoid(chosen) - F.logsigmoid(-rejected)
