"""Ratios and divergences of two policies, from the log-probs of sampled tokens.

Covers: the clamped log-ratio; the truncated importance weight that TIS, CISPO and AIPO share (they differ only in whose
log-probs are the numerator and the denominator); means and sums over a row's tokens; estimators of KL(theta || ref)
from one sampled token; the losses of pairs of log-ratios that online and offline methods share. With d = logp -
logp_ref on tokens sampled from theta:

    as a value    E[k1] = E[k3] = KL; E[k2] is biased
    as a loss     E[grad k1] = 0; E[grad k2] = grad KL(theta || ref); E[grad k3] = grad KL(ref || theta), the forward KL

so k1 and k3 are for reports and in-reward penalties, k2 for a reverse-KL loss; the GRPO paper uses k3 as a loss.
Leaves out: the full KL over the vocabulary (`logprobs.full_kl`), the plug-ins that use them.

Source of the estimators: J. Schulman, "Approximating KL divergence"; gradients checked numerically in tests/oracles.
"""

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from assay.errors import BadInputError

CLAMP_LOG_RATIO = 20.0
CLAMP_K3 = 10.0
KL_ESTIMATORS = ("k1", "k2", "k3", "abs", "k3_straight_through")


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


def dpo_loss(margin: Tensor, beta: float, label_smoothing: float = 0.0) -> Tensor:
    """-(1-e) log sigmoid(beta m) - e log sigmoid(-beta m) of each pair, e the believed share of flipped labels;
    m = (log pi/ref)(chosen) - (log pi/ref)(rejected), sums over tokens (arXiv 2305.18290)."""
    d = beta * margin
    loss = -logsigmoid(d)
    return (1 - label_smoothing) * loss - label_smoothing * logsigmoid(-d) if label_smoothing else loss


def ipo_loss(margin: Tensor, beta: float) -> Tensor:
    """(m - 1/(2 beta))^2 of each pair; m as for `dpo_loss`, or INPO's h with its eta for beta (arXiv 2310.12036)."""
    return (margin - 1 / (2 * beta)) ** 2


def kl_estimate(kind: str, logp: Tensor, logp_ref: Tensor) -> Tensor:
    """Per-token estimate, same shape as `logp`. d is clamped to +-20 and k3 to at most 10 against overflow."""
    d = (logp - logp_ref).clamp(-CLAMP_LOG_RATIO, CLAMP_LOG_RATIO)
    if kind == "k1":
        return d
    if kind == "abs":
        return d.abs()
    k2 = d * d / 2
    if kind == "k2":
        return k2
    k3 = (torch.expm1(-d) + d).clamp(max=CLAMP_K3)
    if kind == "k3":
        return k3
    if kind == "k3_straight_through":
        return k2 - k2.detach() + k3.detach()
    raise BadInputError(f"unknown KL estimator {kind!r}; one of {', '.join(KL_ESTIMATORS)}", field="kl.estimator")
