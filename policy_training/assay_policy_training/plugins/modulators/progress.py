"""MRT: every block of thinking is credited with the progress that it made.

Source: "Optimizing Test-Time Compute via Meta RL Fine-Tuning", arXiv 2503.07572 (abstract and summaries; alpha is not
published). progress_j = J_j - J_{j-1}, where J_j is the success probability if the answer had to be given after block
j. The sum of all progress telescopes to J_k - J_0, so as one number a row it is a shifted outcome: each block's own
tokens get its own. Leaves out: forcing answers after each block to measure J; the values of the prefixes stand for it,
as a reward part gives them (`process_reward`). J_0 is the mean of the group's J_1: what a block achieved beyond the
others' first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any

import torch
from annotated_types import Ge
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.batch import RolloutBatch, group_moments
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.core.steps import SEPARATOR, segments, step_values
from assay_policy_training.plugins.shaping.outcomes import reward_part

if TYPE_CHECKING:
    from assay_policy_training.core.policy import Policy


def progress(success: Sequence[float]) -> list[float]:
    """J_0..J_k to J_j - J_{j-1} of each of the k blocks."""
    return [after - before for before, after in pairwise(success)]


def regret(success: Sequence[float], best: float = 1.0) -> float:
    """J_0..J_k to the sum over blocks of best - J_j."""
    return sum(best - value for value in success[1:])


@dataclass
class BlockProgress(RecipeSettings, section="modulators"):
    """S7: the advantage plus alpha x the progress of the token's own block. Rows without block values, or without a
    reward, stay as they are."""

    alpha: Annotated[float, Ge(0)] = 0.2
    part: str = "process"
    separator: str = SEPARATOR
    _tokenizer: Any = field(init=False, default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.separator:
            raise BadInputError("must not be empty", field="modulators.separator")

    def attach(self, policy: Policy) -> None:
        self._tokenizer = policy.tokenizer

    def modulate(self, batch: RolloutBatch) -> Tensor:
        reward_part(batch, self.part)
        segment = batch.segment
        if segment is None:
            assert self._tokenizer is not None  # attached before the first step
            segment = segments(self._tokenizer, batch, self.separator)
        values, valid = step_values(batch, self.part), batch.valid.tolist()
        first = torch.tensor([row[0] if row else torch.nan for row in values], dtype=torch.float64)
        first = torch.where(batch.valid, first, torch.nan)
        start = group_moments(first, batch.group, ddof=0)[1].tolist()
        adv = batch.estimated_adv.clone()
        for row, listed in enumerate(values):
            if listed is None or not valid[row]:
                continue
            by_block = torch.tensor(progress([start[row], *listed]), dtype=torch.float32)
            generated = batch.mask[row]
            adv[row, generated] += self.alpha * by_block[segment[row, generated].clamp(max=len(by_block) - 1)]
        return adv
