"""Rewards of single tokens and steps beside the row's: KL to the reference, process scores.

KL to the reference as a penalty inside the reward, token by token, with a fixed or an adaptive coefficient. Covers: the
penalty on every token the policy generated, made of the log-probs of the old policy (no gradient), and the controller
that keeps the KL of a response near a target. Leaves out: KL as a loss (`auxiliary.kl`). Sources: InstructGPT arXiv
2203.02155; the controller arXiv 1909.08593. k1 and k3 have the true KL as their mean, k2 has not (tests/oracles).

Process rewards whose sum cannot be exploited: Clip and Delta. Source: "On Designing Effective RL Reward at Training
Time for LLM Reasoning", arXiv 2410.15115 (abstract and notes; the values of eta and alpha are not published). Raw step
scores add up, so that trivially right steps are rewarded; clipped ones are at most 0, and differences telescope: the
process return from a step on is that step's own score, however many follow. The returns need an estimator that adds up
token rewards from each token on (PPO, REINFORCE++); one that reads only the sum of a row sees the first step's score.
Leaves out: the model that scores steps (`process_reward`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Annotated, Any, ClassVar

import torch
from annotated_types import Ge, Gt
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.ratios import kl_estimate
from assay_policy_training.core.settings import RecipeSettings, StatefulSettings
from assay_policy_training.core.steps import SEPARATOR, last_token_of_step, segments_of, step_values
from assay_policy_training.plugins.protocols import RecipeView, StepReport
from assay_policy_training.plugins.shaping.outcomes import reward_part

KL_ESTIMATORS = ("k1", "k2", "k3", "abs")
#: The controller's relative error is cut to +- this.
ERROR_LIMIT = 0.2


def adapted(coefficient: float, kl: float, *, target: float, horizon: float, rows: int) -> float:
    """The coefficient after `rows` responses with a mean KL of `kl` nats each."""
    error = max(-ERROR_LIMIT, min(ERROR_LIMIT, kl / target - 1))
    return coefficient * (1 + error * rows / horizon)


class KlInReward(StatefulSettings, section="shaping"):
    """S3: dense -= coefficient x KL kl_estimate of each token. `target` (nats a response): None = a fixed coefficient.

    Of an adaptive one `coefficient` is the first value, and the step's rollouts decide the next step's.
    """

    coefficient: Annotated[float, Ge(0)] = 0.01
    estimator: str = "k1"
    target: Annotated[float | None, Gt(0)] = None
    horizon: Annotated[float, Gt(0)] = 10_000.0  #: responses
    current: float = field(init=False, default=0.0)
    needs: ClassVar[frozenset[str]] = frozenset({"logp_old", "logp_ref"})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.estimator not in KL_ESTIMATORS:
            raise BadInputError(f"one of {', '.join(KL_ESTIMATORS)}, not {self.estimator!r}", field="shaping.estimator")
        self.current = self.coefficient

    def shape(self, batch: RolloutBatch) -> RolloutBatch:
        penalty = self.current * self._kl(batch)
        return batch.with_(dense=-penalty if batch.dense is None else batch.dense - penalty)

    def observe(self, report: StepReport) -> None:
        rows = report.trained
        if self.target is None or rows is None or rows.logp_old is None or not len(rows):
            return
        kl = float(self._kl(rows).sum(1).mean())
        self.current = adapted(self.current, kl, target=self.target, horizon=self.horizon, rows=len(rows))

    def _kl(self, batch: RolloutBatch) -> Tensor:
        """[B,T] float64, 0 where the mask is off."""
        kl = kl_estimate(self.estimator, batch.scored_logp_old.double(), batch.scored_logp_ref.double())
        return torch.where(batch.mask, kl, 0.0)


def clip(values: Sequence[float], eta: float) -> list[float]:
    """min(p - eta, 0): nothing for good steps, a loss for poor ones."""
    return [min(value - eta, 0.0) for value in values]


def delta(values: Sequence[float], *, last_counts: bool = False) -> list[float]:
    """p_k - p_{k+1}. The last step carries the success only, so the last but one keeps its own score; with
    `last_counts` the last one keeps its score instead and the sum is p_1 in both."""
    if not values:
        return []
    if last_counts:
        return [value - after for value, after in zip(values, [*values[1:], 0.0], strict=True)]
    return [*delta(values[:-1], last_counts=True), 0.0]


class TurnRewards(RecipeSettings, section="shaping"):
    """S3: what turns earned is moved from the row's reward to the last token of each turn; the row's sum stays.

    `parts`: that have values by turn; default: all that have. `weights`: by which they are in the reward, where that is
    not 1. `gates`: part -> number that it must exceed; of other rows nothing is moved, for their reward has none of it
    (the composition `gated`: G-RA, arXiv 2508.10548). A row whose reward is missing stays missing.
    """

    parts: tuple[str, ...] = ()
    weights: Mapping[str, float] = field(default_factory=dict)
    gates: Mapping[str, float] = field(default_factory=dict)

    def check_recipe(self, recipe: RecipeView) -> None:
        """Raises BadInputError where the composition gates a part that this would move all the same."""
        thresholds = getattr(recipe.reward, "thresholds", {}) if hasattr(recipe.reward, "levels") else {}
        if thresholds.items() - self.gates.items():
            why = f"the composition counts what turns earned behind {dict(thresholds)}: the same numbers here"
            raise BadInputError(why, field="shaping.gates")

    def shape(self, batch: RolloutBatch) -> RolloutBatch:
        """Raises BadInputError for rows without turns, and for a part that no source gives."""
        if batch.segment is None:
            raise BadInputError("the rows have no turns: environment.kind", field="shaping")
        names = self.parts or dict.fromkeys(name for row in batch.scores for name, score in row.items() if score.steps)
        dense = torch.zeros(batch.mask.shape, dtype=torch.float64) if batch.dense is None else batch.dense.clone()
        reward = batch.scored_reward.clone()
        opened = torch.ones(len(batch), dtype=torch.bool)
        for gate, threshold in self.gates.items():
            opened &= reward_part(batch, gate) > threshold
        for name in names:
            reward_part(batch, name)
            weight = self.weights.get(name, 1.0)
            for row, values in enumerate(step_values(batch, name)):
                for turn, value in enumerate((values or ()) if opened[row] else ()):
                    position = last_token_of_step(batch.segment[row], batch.mask[row], turn)
                    if position is not None:
                        dense[row, position] += weight * value
                        reward[row] -= weight * value
        return batch.with_(reward=reward, dense=dense)


class ClipAndDelta(RecipeSettings, section="shaping", frozen=False):
    """S3: alpha x the clipped and differenced step scores of `part`, each on the last token of its step, beside the
    reward. A row whose step scores are missing becomes missing."""

    eta: float = 0.5
    alpha: float = 1.0
    part: str = "process"
    clips: bool = True
    differences: bool = True
    last_counts: bool = False  #: see `delta`
    separator: str = SEPARATOR
    _tokenizer: Any = field(init=False, default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.separator:
            raise BadInputError("must not be empty", field="shaping.separator")

    def attach(self, policy: Policy) -> None:
        self._tokenizer = policy.tokenizer

    def rewards(self, values: Sequence[float]) -> list[float]:
        """Step scores to step rewards: clipped first, then differenced."""
        clipped = clip(values, self.eta) if self.clips else list(values)
        return delta(clipped, last_counts=self.last_counts) if self.differences else clipped

    def shape(self, batch: RolloutBatch) -> RolloutBatch:
        reward_part(batch, self.part)
        segment = segments_of(self._tokenizer, batch, self.separator)
        dense = torch.zeros(batch.mask.shape, dtype=torch.float64)
        reward = batch.scored_reward.clone()
        for row, values in enumerate(step_values(batch, self.part)):
            if values is None:
                reward[row] = torch.nan
                continue
            for step, value in enumerate(self.rewards(values)):
                position = last_token_of_step(segment[row], batch.mask[row], step)
                if position is not None:
                    dense[row, position] += self.alpha * value
        dense = dense if batch.dense is None else batch.dense + dense
        return batch.with_(reward=reward, dense=dense, segment=segment)
