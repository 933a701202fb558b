"""Objectives of scalar reward models on preference pairs: Bradley-Terry, its options, and the published variants.

Covers: each as a plain function from rewards of the chosen and the rejected side to one loss a pair; `Objective`,
the frozen description that picks one and adds the centring term. Leaves out: per-pair weights and the mean over an
accumulated batch, which are the trainer's (`trainer.py`); ranking over more than two.

Notation: c, r rewards [B] of chosen and rejected, d = c - r, s the logistic function. Log-sigmoids are computed in
the stable form log s(z) = min(z, 0) - log(1 + exp(-|z|)).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F

from assay.errors import BadInputError


class PairLoss(NamedTuple):
    """`loss`: mean over the pairs, a scalar. `per_pair`: [B]."""

    loss: torch.Tensor
    per_pair: torch.Tensor


def bradley_terry(d: torch.Tensor, *, label_smoothing: float = 0.0) -> torch.Tensor:
    """-(1-e) log s(d) - e log s(-d), per pair [B].

    Bradley-Terry as in InstructGPT (arXiv 2203.02155); smoothing as in conservative DPO: with a share e of labels
    flipped the minimum lies at the finite d = ln((1-e)/e).
    """
    loss = -F.logsigmoid(d)
    if label_smoothing:
        loss = (1 - label_smoothing) * loss - label_smoothing * F.logsigmoid(-d)
    return loss


def centring(chosen: torch.Tensor, rejected: torch.Tensor) -> torch.Tensor:
    """(c + r)^2 per pair [B]: pins rewards around 0, which Bradley-Terry leaves free (arXiv 2312.09244)."""
    return (chosen + rejected) ** 2


def focal(d: torch.Tensor, *, gamma: float = 2.0) -> torch.Tensor:
    """-(1-p)^gamma log p with p = s(d), per pair [B]: the usual focal form."""
    return -((1 - torch.sigmoid(d)) ** gamma) * F.logsigmoid(d)


def focal_internlm(d: torch.Tensor, *, gamma: float = 2.0) -> torch.Tensor:
    """-(1 - 2 max(0, p - 1/2))^gamma log p, per pair [B] (InternLM2, arXiv 2403.17297): full weight where wrong."""
    return -((1 - 2 * F.relu(torch.sigmoid(d) - 0.5)) ** gamma) * F.logsigmoid(d)


def hinge(d: torch.Tensor, *, margin: float = 1.0) -> torch.Tensor:
    """max(0, margin - d), per pair [B]."""
    return F.relu(margin - d)


def margin_mse(d: torch.Tensor, *, margin: float = 1.0) -> torch.Tensor:
    """(d - margin)^2, per pair [B]."""
    return (d - margin) ** 2


#: Functions of d alone, by the name a configuration uses. Their differences are within seed noise in the one
#: published comparison (Skywork-Reward, arXiv 2410.18451), so Bradley-Terry is the default.
OF_DIFFERENCE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "focal": focal,
    "focal_internlm": focal_internlm,
    "hinge": hinge,
    "margin_mse": margin_mse,
}
NAMES = ("bradley_terry", *OF_DIFFERENCE)


@dataclass(frozen=True)
class Objective:
    """Which loss a pair gets: f(z) + centring * (c + r)^2 with z = (c - r - m) / temperature.

    `use_margin`: m is the pair's own margin where it has one, else 0 (arXiv 2307.09288); metrics never use it.
    `label_smoothing`: the share of labels believed to be flipped, [0, 0.5); Bradley-Terry only.
    """

    name: str = "bradley_terry"
    label_smoothing: float = 0.0
    centring: float = 0.01
    temperature: float = 1.0
    use_margin: bool = False

    def __post_init__(self) -> None:
        if self.name not in NAMES:
            raise BadInputError(f"unknown loss {self.name!r}; one of {', '.join(NAMES)}", field="loss")
        if not 0 <= self.label_smoothing < 0.5:
            raise BadInputError(f"goes from 0 to below 0.5, not {self.label_smoothing}", field="label_smoothing")
        if self.label_smoothing and self.name != "bradley_terry":
            raise BadInputError(f"is for bradley_terry, not {self.name}", field="label_smoothing")
        if not self.temperature > 0:
            raise BadInputError(f"must be positive, not {self.temperature}", field="temperature")
        if not self.centring >= 0:
            raise BadInputError(f"must not be negative, but is {self.centring}", field="centring")

    def __call__(self, chosen: torch.Tensor, rejected: torch.Tensor, margin: torch.Tensor | None = None) -> PairLoss:
        """Rewards [B] and [B], margins [B] or None, to the mean and the per-pair losses."""
        z = chosen - rejected
        if self.use_margin and margin is not None:
            z = z - margin
        if self.temperature != 1.0:
            z = z / self.temperature
        if self.name == "bradley_terry":
            per_pair = bradley_terry(z, label_smoothing=self.label_smoothing)
        else:
            per_pair = OF_DIFFERENCE[self.name](z)
        if self.centring:
            per_pair = per_pair + self.centring * centring(chosen, rejected)
        return PairLoss(per_pair.mean(), per_pair)
