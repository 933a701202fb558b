"""Metrics of the mismatch between the sampler (mu) and the trainer (old), and of its correction.

Covers: one function, so that every correction reports the same. Over tokens of the policy's own rows:

    mismatch_kl                 mean of log mu - log old: KL(mu || old), may be negative
    mismatch_k3                 mean of c - 1 - log c with c = old / mu: the same KL, never negative
    mismatch_perplexity_ratio   mean over rows of exp(mean_t (log mu - log old))
    mismatch_chi2               mean of c^2 - 1
    mismatch_worst              largest |log c|
    mismatch_ess                1 / mean((c / mean c)^2): share of tokens that would count under c itself
    NAME_ess                    1 / mean((w / mean w)^2): share of tokens that effectively count
    NAME_clipped_share          tokens whose weight was truncated
    NAME_rejected_tokens, NAME_rejected_rows    shares that lost their gradient; a row: all of it
    NAME_kept_short, NAME_kept_long             shares of rows kept, up to and above the median length

Leaves out: the corrections themselves.
"""

from __future__ import annotations

import torch
from torch import Tensor

from assay_policy_training.core.ratios import log_ratio, row_mean


def mismatch_metrics(logp_old: Tensor, logp_mu: Tensor, mask: Tensor) -> dict[str, float]:
    """The metrics that need no correction, and `mismatch_ess`, the effective share under c. All [B,T]; `mask`: the
    tokens to look at. Empty where there are none."""
    if not mask.any():
        return {}
    ratio = log_ratio(logp_old, logp_mu).double()
    tokens = ratio[mask]
    return {
        "mismatch_kl": float(-tokens.mean()),
        "mismatch_k3": float((torch.expm1(tokens) - tokens).mean()),
        "mismatch_perplexity_ratio": float((-row_mean(ratio, mask)[mask.any(1)]).exp().mean()),
        "mismatch_chi2": float((2 * tokens).exp().mean() - 1),
        "mismatch_worst": float(tokens.abs().max()),
        "mismatch_ess": float(effective_share(tokens.exp())),
    }


def correction_metrics(
    name: str,
    logp_old: Tensor,
    logp_mu: Tensor,
    mask: Tensor,
    weight: Tensor,
    keep: Tensor,
    *,
    clipped: Tensor | None = None,
) -> dict[str, float]:
    """See above. All [B,T]; `mask`: the tokens to look at. Empty where there are none."""
    if not mask.any():
        return {}
    metrics: dict[str, Tensor | float] = {
        **mismatch_metrics(logp_old, logp_mu, mask),
        f"{name}_rejected_tokens": (~keep[mask]).double().mean(),
    }
    used = weight.double()[mask & keep]
    if len(used) and float(used.sum()) > 0:
        metrics[f"{name}_ess"] = effective_share(used)
    if clipped is not None:
        metrics[f"{name}_clipped_share"] = clipped[mask].double().mean()
    rows = mask.any(1)
    kept_rows = (mask & keep).any(1)[rows].double()
    metrics[f"{name}_rejected_rows"] = 1 - kept_rows.mean()
    lengths = mask.sum(1)[rows]
    long = lengths > lengths.median()
    metrics[f"{name}_kept_short"] = kept_rows[~long].mean()
    if long.any():
        metrics[f"{name}_kept_long"] = kept_rows[long].mean()
    return {key: float(value) for key, value in metrics.items()}


def effective_share(weight: Tensor) -> Tensor:
    """1 / mean((w / mean w)^2) of weights [N] >= 0 that are not all 0: effective sample size / N."""
    return 1 / ((weight / weight.mean()) ** 2).mean()
