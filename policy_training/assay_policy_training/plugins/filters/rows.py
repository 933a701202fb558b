"""Filters of single rows: the correct or the wrong ones alone, no truncated ones.

A row that is dropped takes no part in its group's statistics and counts in no denominator. To keep truncated rows in
the statistics and take them out of the loss only, use the token weight `not_truncated`.

Sources: PSR and NSR, arXiv 2506.01347; overlong filtering, DAPO arXiv 2503.14476.
"""

from typing import ClassVar

from torch import Tensor

from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.filters.verdicts import verdicts


class OnlyCorrect(RecipeSettings, section="filters"):
    """S4: keep correct rows. `correct_above`: of a prompt without a verifier, rows of more reward than this."""

    correct_above: float = 0.5
    rounds: ClassVar[int] = 1

    def keep(self, batch: RolloutBatch) -> Tensor:
        return verdicts(batch, correct_above=self.correct_above) == 1


class OnlyWrong(RecipeSettings, section="filters"):
    """S4: keep wrong rows; rows without a reward are neither."""

    correct_above: float = 0.5
    rounds: ClassVar[int] = 1

    def keep(self, batch: RolloutBatch) -> Tensor:
        return verdicts(batch, correct_above=self.correct_above) == 0


class OverlongFilter(RecipeSettings, section="filters"):
    """S4: drop rows that the length limit cut, and those without a reward."""

    rounds: ClassVar[int] = 1

    def keep(self, batch: RolloutBatch) -> Tensor:
        keep = batch.valid & ~batch.truncated
        return keep if batch.unfinished is None else keep | batch.unfinished
