"""Filters of groups: enough rewards, not all alike, of the right difficulty, the best row alone.

Groups whose rows all have the same verdict give no advantage: DAPO's dynamic sampling (other prompts replace them, in
at most `max_rounds` rounds), Skywork-OR1's rejection (they are not replaced, so the batch is smaller), NGRPO's (only
groups without a wrong row are dropped). Groups are kept or dropped as a whole, except rows without a reward, which are
always dropped. All read the raw verifier result, and the composed reward only where a prompt has no verifier. The pass
rate that is logged is that of all rows drawn. Sources: DAPO arXiv 2503.14476; Skywork-OR1 arXiv 2505.22312; NGRPO arXiv
2509.18851.

Online difficulty filtering: groups whose pass rate lies in a band around one half. The gain to be expected of a prompt
is bounded from below by the variance p (1 - p) of its pass rate. The same rollouts decide and are trained on, which
biases the rate a little. Source: arXiv 2504.03380; the band .25 to .75 is ours.

DLER (arXiv 2510.15110) drops groups whose rewards are all equal once truncated answers count as 0: without this filter
the batch fills with prompts whose rollouts are all cut. Leaves out: the reward itself, which
`shaping.length.TruncatedReward` sets after the filter.

Guide-GRPO (arXiv 2506.13923, code guide_rl read) trains on groups generated with a hint only where some of their rows
are right and not all: kept if 0.001 <= accuracy <= 0.999.

The best row of each group alone is rejection sampling.
"""

from typing import Annotated, ClassVar

import torch
from annotated_types import Ge
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.batch import EQUAL_RANGE, RolloutBatch, group_moments
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.contexts.hints import GUIDED
from assay_policy_training.plugins.filters.verdicts import group_rate, group_varies


class Refilling(RecipeSettings, section="filters"):
    """Base of filters that replace dropped groups; the bound keeps a solved data set from refilling forever."""

    max_rounds: Annotated[int, Ge(1)] = 10

    @property
    def rounds(self) -> int:
        return self.max_rounds


class DynamicSampling(Refilling):
    """S4: drop groups that are all correct or all wrong, and generate others until enough are kept. Single rows are
    kept."""

    def keep(self, batch: RolloutBatch) -> Tensor:
        return batch.counted & group_varies(batch)


class RejectZeroAdvantage(RecipeSettings, section="filters"):
    """S4: drop groups that are all correct or all wrong, and make do with the others; with none the step is skipped."""

    rounds: ClassVar[int] = 1

    def keep(self, batch: RolloutBatch) -> Tensor:
        return batch.counted & group_varies(batch)


class DropSolved(Refilling):
    """S4: drop groups that are all correct; those that are all wrong stay. `best`: what a correct row is judged."""

    best: float = 1.0
    max_rounds: Annotated[int, Ge(1)] = 1

    def keep(self, batch: RolloutBatch) -> Tensor:
        rate = group_rate(batch)
        return batch.counted & (rate.isnan() | (rate < self.best - EQUAL_RANGE))


class OnlineDifficulty(Refilling):
    """S4: keep groups with `low` <= pass rate <= `high`, both included; generate others until enough are kept.

    Of a prompt without a verifier the mean reward is read, which the band must then suit.
    """

    low: float = 0.25
    high: float = 0.75

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.low <= self.high:
            raise BadInputError(f"low {self.low} must not be above high {self.high}", field="filters.low")

    def keep(self, batch: RolloutBatch) -> Tensor:
        rate = group_rate(batch)
        keep = batch.valid & (rate >= self.low) & (rate <= self.high)
        return keep if batch.unfinished is None else keep | batch.unfinished


class VariesAfterTruncation(Refilling):
    """S4: drop groups whose rewards are all equal when truncated rows have `value`, and refill until enough are kept.
    Rows without a reward do not stay."""

    value: float = 0.0

    def keep(self, batch: RolloutBatch) -> Tensor:
        """[B] bool."""
        reward = torch.where(batch.truncated & batch.valid, self.value, batch.scored_reward)
        spread = group_moments(reward, batch.group, ddof=0)[3]
        return batch.valid & (spread >= EQUAL_RANGE)


class GuidedMixed(RecipeSettings, section="filters"):
    """S4: keep guided groups whose mean `acc` lies in [low, high], and all others; rows without a reward go."""

    low: float = 0.001
    high: float = 0.999
    rounds: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.high <= 1:
            raise BadInputError(f"0 <= low <= high <= 1, not {self.low}, {self.high}", field="filters.low")

    def keep(self, batch: RolloutBatch) -> Tensor:
        """[B] bool."""
        guided = batch.of_source(GUIDED)
        if batch.acc is None:
            return batch.counted
        _, mean, _, _ = group_moments(batch.acc, batch.group, ddof=0)
        return batch.counted & (~guided | ((mean >= self.low) & (mean <= self.high)))


class EnoughValid(RecipeSettings, section="filters"):
    """S4: keep rows that have a reward, or get one later, in groups with at least `minimum` such rows: fewer give no
    advantage."""

    minimum: Annotated[int, Ge(1)] = 2
    rounds: ClassVar[int] = 1

    def keep(self, batch: RolloutBatch) -> Tensor:
        """[B] bool."""
        valid, group = batch.valid, batch.group
        if batch.unfinished is not None:
            valid = valid | batch.unfinished
        counts = torch.zeros(len(batch), dtype=torch.long).index_add_(0, group, valid.long())
        return valid & (counts[group] >= self.minimum)


class BestOfGroup(RecipeSettings, section="filters"):
    """S4: keep the row with the highest reward of each group, the first of equal ones; a group without one goes."""

    rounds: ClassVar[int] = 1

    def keep(self, batch: RolloutBatch) -> Tensor:
        """[B] bool."""
        reward: list[float] = batch.scored_reward.tolist()
        best: dict[str, int] = {}
        for row, uid in enumerate(batch.uid):
            if reward[row] == reward[row] and (uid not in best or reward[row] > reward[best[uid]]):
                best[uid] = row
        keep = torch.zeros(len(batch), dtype=torch.bool)
        keep[list(best.values())] = True
        return keep
