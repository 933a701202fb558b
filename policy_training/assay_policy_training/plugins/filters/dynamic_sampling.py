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
from typing import ClassVar

from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.batch import EQUAL_RANGE, RolloutBatch
from assay_policy_training.plugins.filters.verdicts import group_rate, group_varies


def check_rounds(max_rounds: int) -> None:
    """Raises BadInputError for less than one round; the bound keeps a solved data set from refilling forever."""
    if max_rounds < 1:
        raise BadInputError(f"must be at least 1, not {max_rounds}", field="filters.max_rounds")


@dataclass(frozen=True)
class DynamicSampling:
    """S4: drop groups that are all correct or all wrong, and generate others until enough are kept. Single rows are
    kept."""

    max_rounds: int = 10

    def __post_init__(self) -> None:
        check_rounds(self.max_rounds)

    @property
    def rounds(self) -> int:
        return self.max_rounds

    def keep(self, batch: RolloutBatch) -> Tensor:
        return batch.counted & group_varies(batch)


@dataclass(frozen=True)
class RejectZeroAdvantage:
    """S4: drop groups that are all correct or all wrong, and make do with the others; with none the step is skipped."""

    rounds: ClassVar[int] = 1

    def keep(self, batch: RolloutBatch) -> Tensor:
        return batch.counted & group_varies(batch)


@dataclass(frozen=True)
class DropSolved:
    """S4: drop groups that are all correct; those that are all wrong stay. `best`: what a correct row is judged."""

    best: float = 1.0
    max_rounds: int = 1

    def __post_init__(self) -> None:
        check_rounds(self.max_rounds)

    @property
    def rounds(self) -> int:
        return self.max_rounds

    def keep(self, batch: RolloutBatch) -> Tensor:
        rate = group_rate(batch)
        return batch.counted & (rate.isnan() | (rate < self.best - EQUAL_RANGE))
