"""Corrections of the sampler's distribution (mu) to the trainer's (old): importance weights, and rejected rows.

Corrections of the sampler's distribution (mu) to the trainer's (old) by importance weights. Covers: truncated weights
by token and by row (TIS), masked ones by token (IcePop, token MIS) and by row (sequence MIS), self-normalisation. With
l = log old - log mu, clamped to +-20, and c = exp(l):

    token TIS       w_t = min(c_t, cap)
    sequence TIS    w   = min(exp(sum_t l_t), cap), on every token of the row
    token MIS       w_t = c_t, tokens with c_t outside [low, high] lose their gradient
    sequence MIS    w   = exp(sum_t l_t), rows where it exceeds the cap lose theirs

The objective stays PPO's with r = theta / old ("decoupled"). Rejection narrows `loss_mask`, so rejected tokens count in
no denominator but stay in every statistic. Rows drawn from another context than they are trained on, and recorded ones
without log-probs, are left as they are. Leaves out: objectives that take theta / mu
themselves. Source: formulas and defaults as in verl's rollout correction, TRL and OpenRLHF.

Rows on which the sampler (mu) and the trainer (old) disagree too much are not trained on. Covers: geometric rejection,
by the mean log-ratio of a row; Trust Region Masking, by the largest and the mean token divergence of a row. Both narrow
`loss_mask` and set no weight, so they go with a weighing correction, with PPO's bypass mode or with AIPO. Trust Region
Masking is defined with KL(mu || theta) over the whole vocabulary; here it is estimated from the sampled tokens, because
the sampler's logits are not stored: the largest k2 = l^2/2 and the mean k3 = c - 1 - l. That is a weaker test than the
exact KL (mu [.9,.05,.05], theta [.7,.2,.1]: exact .122, on the first token k2 .032). It is evaluated once a step with
old, before the first update. Sources: geometric rejection as in verl's rollout
correction; Trust Region Masking arXiv 2512.23075.
"""

from typing import Annotated, ClassVar, Literal, TypeAlias

import torch
from annotated_types import Ge, Gt, Lt
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.aggregation import TOTAL
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.prompt import POLICY, PromptItem, record_of
from assay_policy_training.core.ratios import CLAMP_LOG_RATIO, log_ratio, row_mean, row_sum, truncated_is
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.corrections.mismatch import correction_metrics
from assay_policy_training.plugins.protocols import Correction, RecipeView

Level: TypeAlias = Literal["token", "sequence"]
BOTH: frozenset[str] = frozenset({"logp_old", "logp_mu"})


def row_ratio(ratio: Tensor, mask: Tensor) -> Tensor:
    """[B] exp(sum_t l_t), the sum within +-20; `ratio` [B,T] holds l."""
    return row_sum(ratio, mask).clamp(-CLAMP_LOG_RATIO, CLAMP_LOG_RATIO).exp()


def token_mis(ratio: Tensor, low: float, high: float) -> tuple[Tensor, Tensor]:
    """(c where it is in [low, high], else 0; bool: where it is), from l; any shape."""
    weight = ratio.exp()
    inside = (weight >= low) & (weight <= high)
    return torch.where(inside, weight, 0.0), inside


def policy_tokens(batch: RolloutBatch) -> Tensor:
    """[B,T] bool: tokens of the rows whose mu is of the context that they are trained on: drawn by the policy, with a
    hint too where it is trained with it, or recorded with the log-probs they were drawn with."""
    rows = batch.of_source(POLICY)
    if batch.items:
        rows = rows | torch.tensor([_in_context(item) for item in batch.items])
    return batch.mask & rows[:, None]


def _in_context(item: PromptItem) -> bool:
    if record := record_of(item):
        return bool(record.get("logprobs"))
    return item.generation_context == item.training_context


def old_and_mu(batch: RolloutBatch) -> tuple[Tensor, Tensor]:
    """(logp_old, logp_mu). Raises ValueError before the scorer's pass."""
    return batch.scored_logp_old, batch.logp_mu


def masked_correction(
    name: str, batch: RolloutBatch, weight: Tensor, keep: Tensor, clipped: Tensor | None = None
) -> Correction:
    """Of `weight` and `keep` [B,T] or [B,1], on the policy's own rows only."""
    tokens = policy_tokens(batch)
    weight = torch.where(tokens, weight, 1.0).float()
    keep = keep | ~tokens
    old, mu = old_and_mu(batch)
    clipped = None if clipped is None else clipped.expand(tokens.shape)
    return Correction(weight, keep, correction_metrics(name, old, mu, tokens, weight, keep, clipped=clipped))


class TokenTis(RecipeSettings, section="corrections"):
    """S5: token TIS. `normalise`: divide by the mean over the batch's tokens after truncation."""

    cap: Annotated[float, Gt(0)] = 2.0  #: usual 1.5 to 5
    normalise: bool = False
    weighs: ClassVar[bool] = True
    level: ClassVar[Level] = "token"
    needs: ClassVar[frozenset[str]] = BOTH

    def correct(self, batch: RolloutBatch) -> Correction:
        old, mu = old_and_mu(batch)
        weight = truncated_is(old, mu, self.cap)
        clipped = log_ratio(old, mu).exp() > self.cap
        if self.normalise and (tokens := policy_tokens(batch)).any():
            weight = weight / weight[tokens].mean()
        return masked_correction("tis", batch, weight, torch.ones_like(batch.mask), clipped)


class SequenceTis(RecipeSettings, section="corrections"):
    """S5: sequence TIS. `normalise`: divide by the mean over the batch's rows after truncation."""

    cap: Annotated[float, Gt(0)] = 2.0  #: usual 2 to 10
    normalise: bool = False
    weighs: ClassVar[bool] = True
    level: ClassVar[Level] = "sequence"
    needs: ClassVar[frozenset[str]] = BOTH

    def correct(self, batch: RolloutBatch) -> Correction:
        tokens = policy_tokens(batch)
        ratio = row_ratio(log_ratio(*old_and_mu(batch)), batch.mask)
        weight = ratio.clamp(max=self.cap)
        if self.normalise and tokens.any():
            weight = weight / weight[tokens.any(1)].mean()
        return masked_correction(
            "sequence_tis", batch, weight[:, None], torch.ones_like(batch.mask), (ratio > self.cap)[:, None]
        )


class TokenMis(RecipeSettings, section="corrections"):
    """S5: IcePop, also called token MIS."""

    low: Annotated[float, Ge(0), Lt(1)] = 0.5
    high: Annotated[float, Gt(1)] = 5.0
    weighs: ClassVar[bool] = True
    level: ClassVar[Level] = "token"
    needs: ClassVar[frozenset[str]] = BOTH

    def correct(self, batch: RolloutBatch) -> Correction:
        weight, inside = token_mis(log_ratio(*old_and_mu(batch)), self.low, self.high)
        return masked_correction("icepop", batch, weight, inside)


class SequenceMis(RecipeSettings, section="corrections"):
    """S5: sequence MIS: a row whose weight exceeds the cap is rejected."""

    cap: Annotated[float, Gt(0)] = 3.0
    weighs: ClassVar[bool] = True
    level: ClassVar[Level] = "sequence"
    needs: ClassVar[frozenset[str]] = BOTH

    def correct(self, batch: RolloutBatch) -> Correction:
        ratio = row_ratio(log_ratio(*old_and_mu(batch)), batch.mask)
        keep = ratio <= self.cap
        weight = torch.where(keep, ratio, 0.0)
        return masked_correction("mis", batch, weight[:, None], keep[:, None].expand(batch.mask.shape))


def geometric_keep(ratio: Tensor, mask: Tensor, low: float, high: float) -> Tensor:
    """[B] bool: low <= exp(mean_t l_t) <= high; `ratio` [B,T] holds l."""
    mean = row_mean(ratio, mask).exp()
    return (mean >= low) & (mean <= high)


def divergences(ratio: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """([B] largest k2, [B] mean k3) of each row's tokens; `ratio` [B,T] holds l."""
    largest = torch.where(mask, ratio**2 / 2, 0.0).amax(1)
    return largest, row_mean(torch.expm1(ratio) - ratio, mask)


class GeometricRejection(RecipeSettings, section="corrections"):
    """S5. The bounds are tight because they are of a mean over the row."""

    low: Annotated[float, Ge(0), Lt(1)] = 0.999
    high: Annotated[float, Gt(1)] = 1.001
    weighs: ClassVar[bool] = False
    level: ClassVar[Level] = "sequence"
    needs: ClassVar[frozenset[str]] = BOTH

    def correct(self, batch: RolloutBatch) -> Correction:
        keep = geometric_keep(log_ratio(*old_and_mu(batch)), batch.mask, self.low, self.high)
        return _rejected("geometric", batch, keep)


class TrustRegionMask(RecipeSettings, section="corrections"):
    """S5: sample-based Trust Region Masking. A row stays where every given criterion holds; None = not used.

    With the exact KL the paper takes .05 for the largest or .001 for the mean.
    """

    max_k2: Annotated[float | None, Gt(0)] = 0.05
    mean_k3: Annotated[float | None, Gt(0)] = None
    weighs: ClassVar[bool] = False
    level: ClassVar[Level] = "sequence"
    needs: ClassVar[frozenset[str]] = BOTH

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_k2 is None and self.mean_k3 is None:
            raise BadInputError("give max_k2, mean_k3 or both", field="corrections.max_k2")

    def check_recipe(self, recipe: RecipeView) -> None:
        """A rejected row adds nothing to the sum and 1 to the number of rows it is divided by."""
        if getattr(recipe.aggregation, "mode", TOTAL) != TOTAL:
            raise BadInputError(f"trust-region masking divides by all rows sampled: {TOTAL}", field="aggregation.mode")

    def correct(self, batch: RolloutBatch) -> Correction:
        largest, mean = divergences(log_ratio(*old_and_mu(batch)), batch.mask)
        keep = torch.ones(len(batch), dtype=torch.bool)
        if self.max_k2 is not None:
            keep &= largest <= self.max_k2
        if self.mean_k3 is not None:
            keep &= mean <= self.mean_k3
        return _rejected("trust_region", batch, keep)


def _rejected(name: str, batch: RolloutBatch, keep: Tensor) -> Correction:
    shape = batch.mask.shape
    return masked_correction(name, batch, torch.ones(shape), keep[:, None].expand(shape))
