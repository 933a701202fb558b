"""From a matrix of token losses to one number, with denominators that no batching can change.

Covers: token-mean (DAPO), seq-mean-token-mean (GRPO), seq-mean-token-sum (REINFORCE), seq-mean-token-sum-norm
(Dr. GRPO), by-total-N (Trust Region Masking: rejected rows stay in the denominator). A micro-batch contributes its
share of the whole: denominators are counted over the full optimiser batch before the first backward (`count`), so the
sum over micro-batches is the loss of the undivided batch, however it is split or padded. But for by-total-N, rows
without a loss token count nowhere. Leaves out: ranks (multiply by their number where gradients are averaged).

Oracle: [[1,1],[2,2,2,2]] -> 1.666667 / 1.5 / 5.0 / 1.25 (norm 4).
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from assay.errors import BadInputError

TOTAL = "by-total-N"
MODES = ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm", TOTAL)


@dataclass(frozen=True)
class LossCounts:
    """Of one whole optimiser batch: rows with at least one loss token, and loss tokens."""

    rows: int
    tokens: int
    sampled: int = 0  #: all rows of the batch, rejected ones included


def count(loss_mask: Tensor) -> LossCounts:
    """Counts of a whole batch; `loss_mask` [B,T]."""
    return LossCounts(rows=int(loss_mask.any(1).sum()), tokens=int(loss_mask.sum()), sampled=len(loss_mask))


def aggregate(
    loss: Tensor, loss_mask: Tensor, counts: LossCounts, mode: str, *, max_length: int | None = None
) -> Tensor:
    """A micro-batch's share of the batch's loss, a scalar. `loss` and `loss_mask` [b,T].

    `max_length`: the configured maximum of tokens of a response (never the padded width), for `-norm` only.
    """
    if loss.shape != loss_mask.shape:
        raise ValueError(f"loss {tuple(loss.shape)} and mask {tuple(loss_mask.shape)} differ")
    masked = loss.masked_fill(~loss_mask, 0.0)
    if mode == "token-mean":
        return masked.sum() / max(1, counts.tokens)
    rows = masked.sum(1)
    if mode == "seq-mean-token-mean":
        return (rows / loss_mask.sum(1).clamp(min=1)).sum() / max(1, counts.rows)
    if mode == "seq-mean-token-sum":
        return rows.sum() / max(1, counts.rows)
    if mode == TOTAL:
        return rows.sum() / max(1, counts.sampled)
    if mode == "seq-mean-token-sum-norm":
        if not max_length:
            raise BadInputError("seq-mean-token-sum-norm needs the maximal length", field="aggregation")
        return rows.sum() / max(1, counts.rows) / max_length
    raise BadInputError(f"unknown aggregation {mode!r}; one of {', '.join(MODES)}", field="aggregation.mode")


@dataclass(frozen=True)
class LossAggregation:
    """S10. `max_length`: constant of `-norm`; None = the sampler's max_new_tokens (the recipe fills it in)."""

    mode: str = "seq-mean-token-mean"
    max_length: int | None = None
    needs: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise BadInputError(
                f"unknown aggregation {self.mode!r}; one of {', '.join(MODES)}", field="aggregation.mode"
            )

    def __call__(self, loss: Tensor, loss_mask: Tensor, counts: LossCounts) -> Tensor:
        return aggregate(loss, loss_mask, counts, self.mode, max_length=self.max_length)
