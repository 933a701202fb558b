"""The mismatch between the sampler (mu) and the trainer (old): known before a run, and measured in it.

Metrics of the mismatch between the sampler (mu) and the trainer (old), and of its correction. Covers: one function, so
that every correction reports the same. Over tokens of the policy's own rows:

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

Recipes whose sampler (mu) is known not to sample from the trainer's distribution (old). Covers: the reasons that are
known before a run starts, whether anything corrects for them, what is refused and what is only warned of. Rounding and
wrong weights show in the metrics of each step (`mismatch`). Refused: an objective without any ratio on rows of older
weights, since its gradient cannot account for their age. All else gives one warning, and `mismatch_*` in every step: a
ratio theta / old does not contain mu, but the difference is bounded (`top_p`, a temperature's spread) or is commonly
trained on as it is (PPO's ratio on rows one step old).
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.ratios import log_ratio, row_mean
from assay_policy_training.plugins.protocols import RecipeView


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


def known_mismatches(recipe: RecipeView) -> dict[str, str]:
    """Key of the recipe -> why mu is not old. Read: a sampler's `generates` (default: yes) and `draws_otherwise`."""
    if not getattr(recipe.sampler, "generates", True):
        return {}
    reasons = {}
    if recipe.sampling.top_p < 1:
        reasons["sampling.top_p"] = "below 1 the sampler never draws tokens that the trainer's log-probs count in"
    if otherwise := getattr(recipe.sampler, "draws_otherwise", ""):
        reasons["sampler.kind"] = otherwise
    if recipe.asynchrony.ahead:
        reasons[recipe.asynchrony.key] = "above 0 rows are drawn by older weights"
    return reasons


def reweights(objective: object, corrections: Sequence[object]) -> bool:
    """Whether mu's probabilities are divided by: by a correction that weighs, or by the objective itself."""
    return getattr(objective, "corrects_behaviour", False) or any(getattr(c, "weighs", True) for c in corrections)


def check_mismatch(recipe: RecipeView) -> None:
    """Raises BadInputError for rows of older weights under an objective that has no ratio and is given none."""
    ratio = getattr(recipe.objective, "has_ratio", True) or reweights(recipe.objective, recipe.corrections)
    if recipe.asynchrony.ahead and not ratio:
        raise BadInputError(
            f"{type(recipe.objective).__name__} has no ratio, so nothing would know that rows are of older weights; "
            "give a correction that weighs (corrections: [{kind: token_tis}]), or take ppo_clip",
            field=recipe.asynchrony.key,
        )


def mismatch_warnings(recipe: RecipeView) -> list[str]:
    """Warnings for the start of a run: known mismatches that no correction and no objective accounts for."""
    if reweights(recipe.objective, recipe.corrections) or recipe.corrections:  # a rejection bounds it
        return []
    return [
        f"{key}: {why}, and nothing corrects for it (corrections: [{{kind: token_tis}}] would); see mismatch_*"
        for key, why in known_mismatches(recipe).items()
    ]


def check_single_correction(objective: object, corrections: Sequence[object]) -> None:
    """Raises BadInputError for a mismatch that is corrected twice: by two sets of weights, or by weights under an
    objective that divides by mu itself (AIPO, PPO in bypass mode). Read: an objective's `corrects_behaviour`, a
    correction's `weighs` (a correction that does not say is taken to weigh)."""
    weighing = [type(plugin).__name__ for plugin in corrections if getattr(plugin, "weighs", True)]
    if weighing and getattr(objective, "corrects_behaviour", False):
        raise BadInputError(
            f"{type(objective).__name__} already divides by the sampler's probabilities; with {weighing[0]} the "
            "mismatch would be corrected twice",
            field="corrections",
        )
    if len(weighing) > 1:
        raise BadInputError(
            f"{' and '.join(weighing)} would correct the mismatch more than once; keep one", field="corrections"
        )
