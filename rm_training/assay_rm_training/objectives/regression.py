"""Regression on several named ratings, and the explicit ways to make one reward of them.

Covers: the masked squared error, aggregation by weights, mean, minimum and gate, the folding of a linear aggregation
into one head. Leaves out: reading ratings (`assay.ratings`), standardising them, saving (the method).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch

from assay.errors import BadInputError

Kind = Literal["weights", "mean", "min", "gate"]


def masked_mse(predicted: torch.Tensor, target: torch.Tensor, present: torch.Tensor) -> torch.Tensor:
    """Mean over a row's present ratings of (predicted - target)^2, per row [B]; all arguments are [B, K], `present`
    1 or 0. A missing rating counts nothing, whatever stands in `target`; a row without any has loss 0."""
    error = torch.where(present > 0, predicted - target, torch.zeros_like(predicted)) ** 2
    return error.sum(dim=-1) / present.sum(dim=-1).clamp_min(1)


@dataclass(frozen=True)
class Aggregation:
    """How ratings become one reward. `weights`, one per rating: of `weights`; `mean` is equal weights.

    `min`: the worst rating. `gate`: ratings in order of priority, R = R_1 + sum over i > 1 of R_i where every R_j
    before it passes its threshold (`thresholds`, one less than ratings; G-RA, arXiv 2508.10548), so that a lower
    criterion cannot buy off a higher one. The first two are linear and fold into one head; the others do not.
    """

    kind: Kind = "mean"
    weights: tuple[float, ...] = ()
    thresholds: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise BadInputError(f"{self.kind!r} is not one of {', '.join(get_args(Kind))}", field="aggregation")
        if (self.kind == "weights") != bool(self.weights):
            raise BadInputError("weights belong to the aggregation 'weights', and it needs them", field="weights")
        if (self.kind == "gate") != bool(self.thresholds):
            raise BadInputError("thresholds belong to the aggregation 'gate', and it needs them", field="thresholds")

    @property
    def is_linear(self) -> bool:
        return self.kind in ("weights", "mean")

    def check(self, ratings: int) -> None:
        """Raises BadInputError where weights or thresholds do not fit the number of ratings."""
        if self.weights and len(self.weights) != ratings:
            raise BadInputError(f"{len(self.weights)} weights for {ratings} ratings", field="weights")
        if self.thresholds and len(self.thresholds) != ratings - 1:
            raise BadInputError(
                f"{len(self.thresholds)} thresholds for {ratings} ratings; one less than ratings", field="thresholds"
            )

    def linear_weights(self, ratings: int) -> list[float]:
        """w with reward = sum_k w_k rating_k. Raises BadInputError for an aggregation that is not linear."""
        self.check(ratings)
        if not self.is_linear:
            raise BadInputError(f"{self.kind} is not linear in the ratings", field="aggregation")
        return list(self.weights) or [1 / ratings] * ratings

    def __call__(self, values: torch.Tensor) -> torch.Tensor:
        """Rewards [B] of ratings [B, K]."""
        ratings = values.shape[-1]
        self.check(ratings)
        if self.is_linear:
            return values @ values.new_tensor(self.linear_weights(ratings))
        if self.kind == "min":
            return values.amin(dim=-1)
        open_to = torch.cumprod((values[..., :-1] > values.new_tensor(self.thresholds)).to(values.dtype), dim=-1)
        return values[..., 0] + (values[..., 1:] * open_to).sum(dim=-1)


def fold(weight: torch.Tensor, weights: Sequence[float], scales: Sequence[float]) -> torch.Tensor:
    """The one-output head [1, H] that gives sum_k w_k scale_k (head_k . h), from a head [K, H] trained on ratings
    divided by `scales`. The reward is then the aggregate of the ratings less that of their means: a constant."""
    factors = torch.tensor([w * s for w, s in zip(weights, scales, strict=True)], dtype=torch.float64)
    return (factors[None] @ weight.double().cpu()).to(weight.dtype)
