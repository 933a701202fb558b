"""Tokens whose advantage and log-prob rise together drive the entropy down: which they are, and Clip-Cov.

Covers: cov_t = (A_t - mean A)(log old_t - mean log old) over the policy's tokens of the whole batch; the random tokens
of high covariance that Clip-Cov takes out; the top share that KL-Cov pulls back (`objectives.kl_cov`). The selection is
made once a step with the old policy's log-probs, so it depends neither on micro-batches nor on minibatches, and tokens
are drawn by a hash of seed, row and place, so neither on the order of the rows nor on padding.

Source: "The Entropy Mechanism of RL for reasoning language models" arXiv 2505.22617, as in verl.
"""

import hashlib
from typing import Annotated, ClassVar

import torch
from annotated_types import Gt, Le
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.protocols import UpdateContext

CLIPPED = "clip_cov"  #: name in `extras`: 1 where the loss is taken out


def covariance(advantage: Tensor, logp: Tensor, mask: Tensor) -> Tensor:
    """[B,T] float64 products of the centred values over the tokens of `mask`, 0 elsewhere."""
    if not mask.any():
        return torch.zeros(mask.shape, dtype=torch.float64, device=mask.device)
    advantage, logp = advantage.double(), logp.double()
    product = (advantage - advantage[mask].mean()) * (logp - logp[mask].mean())
    return torch.where(mask, product, 0.0)


def top_tokens(values: Tensor, mask: Tensor, share: float) -> Tensor:
    """[B,T] bool: the `share` of the tokens of `mask` with the largest values, at least one, and those equal to the
    last of them."""
    inside = values[mask]
    if not len(inside):
        return torch.zeros_like(mask)
    number = max(1, int(share * len(inside)))
    return mask & (values >= inside.topk(number).values[-1])


def random_tokens(candidates: Tensor, number: int, batch: RolloutBatch, seed: int) -> Tensor:
    """[B,T] bool: `number` of the tokens that `candidates` [B,T] names, by a hash of seed, group, row and place."""
    chosen = torch.zeros_like(candidates)
    keys: dict[int, bytes] = {}
    drawn = []
    for row, position in candidates.nonzero().tolist():
        if row not in keys:
            generated = batch.tokens[row][batch.mask[row]].to("cpu", torch.int64)
            keys[row] = f"{seed}/{batch.uid[row]}/".encode() + generated.numpy().tobytes()
        order = int(batch.mask[row, :position].sum())
        drawn.append((hashlib.sha256(keys[row] + b"/%d" % order).digest(), row, position))
    for _, row, position in sorted(drawn)[:number]:
        chosen[row, position] = True
    return chosen


def covariance_inputs(batch: RolloutBatch) -> tuple[Tensor, Tensor, Tensor]:
    """(adv, logp_old, the tokens whose statistics count). Raises ValueError before the estimator and the scorer ran."""
    return batch.estimated_adv, batch.scored_logp_old, batch.mask


class ClipCov(RecipeSettings, section="token_weights"):
    """S8: the loss of `share` of all tokens, drawn among those with a covariance in (low, high), is 0.

    They stay in the denominators. `share` of the tokens is at least one token, where there is a candidate.
    """

    share: Annotated[float, Gt(0), Le(1)] = 2e-4
    low: float = 1.0
    high: float = 5.0
    seed: int = 0
    needs: ClassVar[frozenset[str]] = frozenset({"logp_old"})

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.low < self.high:
            raise BadInputError(f"low {self.low} must be below high {self.high}", field="token_weights.low")

    def prepare(self, batch: RolloutBatch) -> RolloutBatch:
        advantage, logp, mask = covariance_inputs(batch)
        products = covariance(advantage, logp, mask)
        candidates = mask & (products > self.low) & (products < self.high)
        number = max(1, int(self.share * int(mask.sum())))
        chosen = random_tokens(candidates, number, batch, self.seed)
        return batch.with_(extras={**batch.extras, CLIPPED: chosen.float()})

    def weight(self, logp: Tensor, context: UpdateContext) -> Tensor:
        return 1 - context.given_rows.extras[CLIPPED].to(logp.device)
