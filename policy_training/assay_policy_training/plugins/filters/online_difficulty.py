"""Online difficulty filtering: groups whose pass rate lies in a band around one half.

The gain to be expected of a prompt is bounded from below by the variance p (1 - p) of its pass rate. The same rollouts
decide and are trained on, which biases the rate a little.

Source: arXiv 2504.03380; the band .25 to .75 is ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.plugins.filters.dynamic_sampling import Refilling
from assay_policy_training.plugins.filters.verdicts import group_rate


@dataclass(frozen=True)
class OnlineDifficulty(Refilling):
    """S4: keep groups with `low` <= pass rate <= `high`, both included; generate others until enough are kept.

    Of a prompt without a verifier the mean reward is read, which the band must then suit.
    """

    low: float = 0.25
    high: float = 0.75
    max_rounds: Annotated[int, Ge(1)] = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.low <= self.high:
            raise BadInputError(f"low {self.low} must not be above high {self.high}", field="filters.low")

    def keep(self, batch: RolloutBatch) -> Tensor:
        rate = group_rate(batch)
        keep = batch.valid & (rate >= self.low) & (rate <= self.high)
        return keep if batch.unfinished is None else keep | batch.unfinished
