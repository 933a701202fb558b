"""LASER: a right answer within its target length earns a bonus; the target is fixed, or follows the difficulty.

Source: "Learn to Reason Efficiently with Adaptive Length-based Reward Shaping", arXiv 2505.15612, code hkust-nlp/Laser.

Three things of the released code are otherwise here: the same band edges hold where targets are estimated and where
they are used (there: above and at least); only right answers count as covered (there: all); a band's coverage is
weighed with the number of right answers that its groups really have (there: 1 of 8 for the hard band, which so needs
full coverage and gets the longest target). `released` brings back the last two. Correctness comes from the verifier,
never from comparing a reward with 1.0. Leaves out: a separate monitoring set; the step's rollouts are used.
"""

from collections.abc import Sequence
from dataclasses import field
from typing import Annotated

import torch
from annotated_types import Ge, Gt
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.settings import RecipeSettings, StatefulSettings
from assay_policy_training.plugins.protocols import StepReport
from assay_policy_training.plugins.shaping.outcomes import correctness
from assay_policy_training.plugins.shaping.repetition import repeated_share

BANDS = ("high", "medium", "low")
#: A hair below 2/3 and 1/3, so that 2 of 3 right is "high" however the mean was rounded.
EDGES = (2 / 3 - 1e-9, 1 / 3 - 1e-9)
#: Right answers that the released code expects of a group of n in each band: int(n 2/3), int(n / 3), 1.
EXPECTED = (2 / 3, 1 / 3)


def laser_reward(
    right: Tensor, lengths: Tensor, target: Tensor, *, correct: float, wrong: float, bonus: float
) -> Tensor:
    """[B] correct (+ bonus within the target) or wrong; missing where `right` is."""
    earned = torch.where(right == 1, correct + bonus * (lengths <= target).double(), wrong)
    return torch.where(right.isnan(), torch.nan, earned)


def bands(right: Tensor, group: Tensor) -> Tensor:
    """[B] int64 index into `BANDS` by the accuracy of each row's group; -1 where nothing of the group is known."""
    size = int(group.max()) + 1 if len(group) else 0
    present = ~right.isnan()
    count = torch.zeros(size, dtype=torch.float64).index_add(0, group, present.double())
    hits = torch.zeros(size, dtype=torch.float64).index_add(0, group, torch.where(present, right, 0.0))
    accuracy = hits / count.clamp(min=1)
    band = torch.where(accuracy >= EDGES[0], 0, torch.where(accuracy >= EDGES[1], 1, 2))
    return torch.where(count > 0, band, -1)[group]


def released_counts(group_size: int) -> dict[str, int]:
    """Right answers that the released code expects in each band."""
    return {"high": int(group_size * EXPECTED[0]), "medium": int(group_size * EXPECTED[1]), "low": 1}


def length_target(candidates: Sequence[int], coverage: Sequence[float], expected: float) -> int | None:
    """The smallest candidate within which at least one of `expected` right answers lies; None = none does."""
    return next((c for c, share in zip(candidates, coverage, strict=True) if share * expected >= 1 - 1e-9), None)


class Laser(RecipeSettings, section="shaping"):
    """S3: `laser_reward` with one target, in place of the reward."""

    target: Annotated[int, Gt(0)] = 4096
    correct_reward: float = 1.0
    wrong_reward: float = -0.5
    bonus: Annotated[float, Gt(0)] = 0.5
    correct: str | None = None  #: reward part that says what is right; None = `acc`

    def shape(self, batch: RolloutBatch) -> RolloutBatch:
        right = torch.where(batch.valid, correctness(batch, self.correct), torch.nan)
        reward = laser_reward(
            right,
            batch.lengths,
            torch.full((len(batch),), self.target),
            correct=self.correct_reward,
            wrong=self.wrong_reward,
            bonus=self.bonus,
        )
        return batch.with_(reward=reward)


class LaserD(StatefulSettings, section="shaping"):
    """S3: one target for each band of group accuracy, estimated again every `every` steps from the rollouts since.

    Candidates: `shortest` to `longest` by `spacing`. Before the first estimate the target is the longest candidate; a
    band where none suffices gets the longest response seen in it, one without rollouts keeps its target.
    """

    shortest: Annotated[int, Gt(0)] = 4096
    longest: int = 16384
    spacing: Annotated[int, Gt(0)] = 1024
    every: Annotated[int, Gt(0)] = 20
    correct_reward: float = 1.0
    wrong_reward: float = -0.5
    bonus: Annotated[float, Gt(0)] = 0.5
    exploration: Annotated[float, Ge(0)] = (
        0.0  #: LASER-DE: for a wrong answer that is longer than its target and does not repeat itself
    )
    repetition_n: Annotated[int, Gt(0)] = 20  #: n-grams by which an answer counts as repeating itself
    repetition_share: float = 0.2  #: from this share of repeated n-grams on
    released: bool = False  #: as in the released code
    correct: str | None = None
    targets: dict[str, int] = field(init=False, default_factory=dict)
    _window: list[list[list[float]]] = field(init=False, default_factory=list, repr=False)
    _group_size: int = field(init=False, default=0, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.longest < self.shortest:
            raise BadInputError(f"must not be below shortest, not {self.longest}", field="shaping.longest")
        self._clear_window()

    def _clear_window(self) -> None:
        #: per band, [length, right] of each rollout since the last estimate
        self._window = [[] for _ in BANDS]

    @property
    def candidates(self) -> list[int]:
        return list(range(self.shortest, self.longest + 1, self.spacing))

    def shape(self, batch: RolloutBatch) -> RolloutBatch:
        right = torch.where(batch.valid, correctness(batch, self.correct), torch.nan)
        table = torch.tensor([self.targets.get(name, self.longest) for name in BANDS] + [self.longest])
        target, lengths = table[bands(right, batch.group)], batch.lengths
        reward = laser_reward(
            right, lengths, target, correct=self.correct_reward, wrong=self.wrong_reward, bonus=self.bonus
        )
        if self.exploration:
            longer = ((right == 0) & (lengths > target)).tolist()
            fresh = torch.tensor([longer[i] and not self._repeats(batch, i) for i in range(len(batch))])
            reward = reward + self.exploration * fresh.double()
        return batch.with_(reward=reward)

    def observe(self, report: StepReport) -> None:
        """The step's rollouts join the window; every `every` steps the targets are set."""
        batch = report.batch
        right = correctness(batch, self.correct)
        self._group_size = max(self._group_size, int(torch.bincount(batch.group).max()))
        for band, length, hit in zip(
            bands(right, batch.group).tolist(), batch.lengths.tolist(), right.tolist(), strict=True
        ):
            if band >= 0 and hit == hit:
                self._window[band].append([length, hit])
        if report.step % self.every == 0:
            self._estimate()

    def _estimate(self) -> None:
        for name, rows in zip(BANDS, self._window, strict=True):
            if not rows:
                continue
            counted = [length for length, hit in rows if hit or self.released]
            total = max(1, len(counted))
            coverage = [sum(length <= c for length in counted) / total for c in self.candidates]
            share = sum(hit for _, hit in rows) / len(rows)
            expected = released_counts(self._group_size)[name] if self.released else self._group_size * share
            target = length_target(self.candidates, coverage, expected)
            self.targets[name] = int(max(length for length, _ in rows)) if target is None else target
        self._clear_window()

    def _repeats(self, batch: RolloutBatch, row: int) -> bool:
        tokens = batch.tokens[row][batch.mask[row]].tolist()
        return repeated_share(tokens, self.repetition_n) >= self.repetition_share

    def numbers(self) -> dict[str, float]:
        return {f"laser_target_{name}": float(self.targets.get(name, self.longest)) for name in BANDS}


class LaserDe(LaserD):
    """S3: LASER-D that also rewards long, fresh attempts that failed."""

    exploration: float = 0.5
