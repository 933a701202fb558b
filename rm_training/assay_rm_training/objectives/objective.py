"""A pairwise loss with its settings, and its evaluation on a batch of pairs.

Covers: a registered loss (`losses.py`) with its settings, the per-pair regularisers. Leaves out:
per-pair weights and the mean over an accumulated batch (the training loop), terms of a full batch.
"""

import inspect
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch

from assay.errors import BadInputError
from assay_rm_training.objectives import pair
from assay_rm_training.objectives.losses import LOSSES
from assay_rm_training.objectives.pair import TieLoss, outcome_loss
from assay_rm_training.objectives.regularisers import centring, log_barrier, squares


class PairLoss(NamedTuple):
    """`loss`: mean over the pairs, a scalar. `per_pair`: [B]."""

    loss: torch.Tensor
    per_pair: torch.Tensor


@dataclass(frozen=True)
class Objective:
    """The loss of a pair: f(z) + its regularisers, with z = (c - r - m) / temperature.

    `name`: of a registered loss, `module:Name` or `file.py:Name`; Bradley-Terry is the default, for the differences
    are within seed noise in the one published comparison (Skywork-Reward, arXiv 2410.18451).
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
        object.__setattr__(self, "name", LOSSES.absolute(self.name))
        of_sides = self._of_sides  # raises for an unknown name
        if not 0 <= self.label_smoothing < 0.5:
            raise BadInputError(f"goes from 0 to below 0.5, not {self.label_smoothing}", field="label_smoothing")
        for name in ("label_smoothing", "soft_labels"):
            if getattr(self, name) and self.name != "bradley_terry":
                raise BadInputError(f"is for bradley_terry, not {self.name}", field=name)
        if self.label_smoothing and self.soft_labels:
            raise BadInputError("soft labels already state the certainty of each label", field="label_smoothing")
        if not self.temperature > 0:
            raise BadInputError(f"must be positive, not {self.temperature}", field="temperature")
        if of_sides and (self.use_margin or self.temperature != 1.0):
            raise BadInputError(f"{self.name} is not a function of the difference", field="use_margin or temperature")
        for name in ("centring", "squares", "bound"):
            if not getattr(self, name) >= 0:
                raise BadInputError(f"must not be negative, but is {getattr(self, name)}", field=name)

    @property
    def learns_from_ties(self) -> bool:
        return isinstance(self._loss, TieLoss)

    @cached_property
    def _loss(self) -> Any:
        return LOSSES.find(self.name)

    @cached_property
    def _of_sides(self) -> bool:
        """Whether the loss is of both rewards, not of their difference."""
        return not self.learns_from_ties and "chosen" in inspect.signature(self._loss).parameters

    def tie_start(self, tie_share: float) -> float:
        """Initial value of the tie parameter, given the share of ties in the data."""
        return float(self._loss.start(tie_share))

    def __call__(
        self,
        chosen: torch.Tensor,
        rejected: torch.Tensor,
        margin: torch.Tensor | None = None,
        *,
        target: torch.Tensor | None = None,
        tie_parameter: torch.Tensor | None = None,
    ) -> PairLoss:
        """The mean and per-pair losses of rewards [B] and [B], with margins [B] or None.

        `target` [B], 1 where None: with `soft_labels` P(chosen wins); where the loss learns from ties, the outcome
        (1, or 0.5 for a tie), with its `tie_parameter`, a scalar (Rao-Kupper: ln of the threshold, Davidson: ln nu).
        """
        z = chosen - rejected
        if self.use_margin and margin is not None:
            z = z - margin
        if self.temperature != 1.0:
            z = z / self.temperature
        per_pair = self._of(z, chosen, rejected, target, tie_parameter)
        if per_pair.shape != z.shape:
            raise BadInputError(f"one loss a pair is {[*z.shape]}, not {[*per_pair.shape]}", field=self.name)
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
        if isinstance(self._loss, TieLoss):
            if tie_parameter is None:
                raise ValueError(f"{self.name} needs its tie parameter")
            outcome = target if target is not None else torch.ones_like(z)
            return outcome_loss(self._loss.log_probabilities(z, tie_parameter), outcome)
        if self.soft_labels and target is not None:
            return pair.bradley_terry_soft(z, target)
        if self.name == "bradley_terry":
            return pair.bradley_terry(z, label_smoothing=self.label_smoothing)
        per_pair: torch.Tensor = self._loss(chosen, rejected) if self._of_sides else self._loss(z)
        return per_pair
