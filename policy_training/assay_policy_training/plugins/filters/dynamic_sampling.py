"""Drops groups whose rows all have the same verdict, which give no advantage; replaces them or not.

Covers: DAPO's dynamic sampling (other prompts replace them, in at most `max_rounds` rounds), Skywork-OR1's rejection
(they are not replaced, so the batch is smaller), NGRPO's (only groups without a wrong row are dropped). Groups are kept
or dropped as a whole, except rows without a reward, which are always dropped. All read the raw verifier result, and the
composed reward only where a prompt has no verifier. The pass rate that is logged is that of all rows drawn. Leaves out:
pass rates between 0 and 1 (`online_difficulty`).

Sources: DAPO arXiv 2503.14476; Skywork-OR1 arXiv 2505.22312; NGRPO arXiv 2509.18851.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge
from torch import Tensor

from assay_policy_training.core.batch import EQUAL_RANGE, RolloutBatch
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.filters.verdicts import group_rate, group_varies


class Refilling(RecipeSettings, section="filters"):
    """Base of filters that replace dropped groups; the bound keeps a solved data set from refilling forever."""

    max_rounds: int

    @property
    def rounds(self) -> int:
        return self.max_rounds


@dataclass(frozen=True)
class DynamicSampling(Refilling):
    """S4: drop groups that are all correct or all wrong, and generate others until enough are kept. Single rows are
    kept."""

    max_rounds: Annotated[int, Ge(1)] = 10

    def keep(self, batch: RolloutBatch) -> Tensor:
        return batch.counted & group_varies(batch)


@dataclass(frozen=True)
class RejectZeroAdvantage:
    """S4: drop groups that are all correct or all wrong, and make do with the others; with none the step is skipped."""

    rounds: ClassVar[int] = 1

    def keep(self, batch: RolloutBatch) -> Tensor:
        return batch.counted & group_varies(batch)


@dataclass(frozen=True)
class DropSolved(Refilling):
    """S4: drop groups that are all correct; those that are all wrong stay. `best`: what a correct row is judged."""

    best: float = 1.0
    max_rounds: Annotated[int, Ge(1)] = 1

    def keep(self, batch: RolloutBatch) -> Tensor:
        rate = group_rate(batch)
        return batch.counted & (rate.isnan() | (rate < self.best - EQUAL_RANGE))
