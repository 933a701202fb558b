"""The description of one pairwise loss, and its evaluation on a batch of pairs.

Covers: the choice among the losses of `pair.py` and `ties.py`, their settings, the per-pair regularisers. Leaves out:
per-pair weights and the mean over an accumulated batch, which are the trainer's; terms of a whole batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch

from assay.errors import BadInputError
from assay_rm_training.objectives import pair, ties
from assay_rm_training.objectives.regularisers import centring, log_barrier, squares


class PairLoss(NamedTuple):
    """`loss`: mean over the pairs, a scalar. `per_pair`: [B]."""

    loss: torch.Tensor
    per_pair: torch.Tensor


#: Functions of d alone, by the name a configuration uses. Their differences are within seed noise in the one
#: published comparison (Skywork-Reward, arXiv 2410.18451), so Bradley-Terry is the default.
OF_DIFFERENCE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "focal": pair.focal,
    "focal_internlm": pair.focal_internlm,
    "hinge": pair.hinge,
    "margin_mse": pair.margin_mse,
    "tempered_log": pair.tempered_log,
}
#: Losses that learn from ties; they have one more parameter, trained with the model and not part of it.
OF_OUTCOME: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "rao_kupper": ties.rao_kupper,
    "davidson": ties.davidson,
}
NAMES = ("bradley_terry", *OF_DIFFERENCE, "pointwise", *OF_OUTCOME)


@dataclass(frozen=True)
class Objective:
    """Which loss a pair gets: f(z) + its regularisers, with z = (c - r - m) / temperature.

    `use_margin`: m is the pair's own margin where it has one, else 0 (arXiv 2307.09288); metrics never use it.
    `label_smoothing`: the share of labels believed to be flipped, [0, 0.5); Bradley-Terry only.
    `soft_labels`: the target is each pair's P(chosen wins) from the spread of its annotators; Bradley-Terry only.
    `centring`, `squares`, `bound`: weights of (c + r)^2, of c^2 + r^2, and of the log-barrier at +-5 on both sides
    (`regularisers.py`; published with 0.01, 0.005 and 0.01).
    """

    name: str = "bradley_terry"
    label_smoothing: float = 0.0
    centring: float = 0.01
    temperature: float = 1.0
    use_margin: bool = False
    soft_labels: bool = False
    squares: float = 0.0
    bound: float = 0.0

    def __post_init__(self) -> None:
        if self.name not in NAMES:
            raise BadInputError(f"unknown loss {self.name!r}; one of {', '.join(NAMES)}", field="loss")
        if not 0 <= self.label_smoothing < 0.5:
            raise BadInputError(f"goes from 0 to below 0.5, not {self.label_smoothing}", field="label_smoothing")
        for name in ("label_smoothing", "soft_labels"):
            if getattr(self, name) and self.name != "bradley_terry":
                raise BadInputError(f"is for bradley_terry, not {self.name}", field=name)
        if self.label_smoothing and self.soft_labels:
            raise BadInputError("soft labels say already how sure each label is", field="label_smoothing")
        if not self.temperature > 0:
            raise BadInputError(f"must be positive, not {self.temperature}", field="temperature")
        if self.name == "pointwise" and (self.use_margin or self.temperature != 1.0):
            raise BadInputError("pointwise has no difference to change", field="use_margin or temperature")
        for name in ("centring", "squares", "bound"):
            if not getattr(self, name) >= 0:
                raise BadInputError(f"must not be negative, but is {getattr(self, name)}", field=name)

    @property
    def learns_from_ties(self) -> bool:
        return self.name in OF_OUTCOME

    def tie_start(self, tie_share: float) -> float:
        """Where the tie parameter starts, given the share of ties in the data."""
        start = ties.rao_kupper_start if self.name == "rao_kupper" else ties.davidson_start
        return start(tie_share)

    def __call__(
        self,
        chosen: torch.Tensor,
        rejected: torch.Tensor,
        margin: torch.Tensor | None = None,
        *,
        target: torch.Tensor | None = None,
        tie_parameter: torch.Tensor | None = None,
    ) -> PairLoss:
        """Rewards [B] and [B], margins [B] or None, to the mean and the per-pair losses.

        `target` [B], 1 where None: with `soft_labels` P(chosen wins); where the loss learns from ties, the outcome
        (1, or 0.5 for a tie), with its `tie_parameter`, a scalar (Rao-Kupper: ln of the threshold, Davidson: ln nu).
        """
        z = chosen - rejected
        if self.use_margin and margin is not None:
            z = z - margin
        if self.temperature != 1.0:
            z = z / self.temperature
        per_pair = self._of(z, chosen, rejected, target, tie_parameter)
        if self.centring:
            per_pair = per_pair + self.centring * centring(chosen, rejected)
        if self.squares:
            per_pair = per_pair + self.squares * squares(chosen, rejected)
        if self.bound:
            per_pair = per_pair + self.bound * (log_barrier(chosen) + log_barrier(rejected))
        return PairLoss(per_pair.mean(), per_pair)

    def _of(
        self,
        z: torch.Tensor,
        chosen: torch.Tensor,
        rejected: torch.Tensor,
        target: torch.Tensor | None,
        tie_parameter: torch.Tensor | None,
    ) -> torch.Tensor:
        if self.name == "pointwise":
            return pair.pointwise(chosen, rejected)
        if self.learns_from_ties:
            if tie_parameter is None:
                raise ValueError(f"{self.name} needs its tie parameter")
            outcome = target if target is not None else torch.ones_like(z)
            return ties.outcome_loss(OF_OUTCOME[self.name](z, tie_parameter), outcome)
        if self.soft_labels and target is not None:
            return pair.bradley_terry_soft(z, target)
        if self.name == "bradley_terry":
            return pair.bradley_terry(z, label_smoothing=self.label_smoothing)
        return OF_DIFFERENCE[self.name](z)
