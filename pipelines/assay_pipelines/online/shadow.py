"""Whether a refitted reward model takes the place of the old one, by what both say of the same responses.

Covers: the order of a step's rollouts by both, the accuracy of both on labels that neither was fitted on. Leaves out:
the swap itself (`reward_host`).
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from assay.score import Score, ScoreResult
from assay_pipelines.online.config import SwapPlan
from assay_pipelines.online.refit import TrainingPair
from assay_serving.scorer import ScoreItem, Scorer
from assay_serving.server.rollout.agreement import order_agreement

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ShadowComparison:
    """Of an old and a new model. None: nothing to measure it on. `held_out`: labels that neither was fitted on. On the
    step's rollouts level + scale x the old rewards have the mean and the deviation of the new ones."""

    agreement: float | None  #: share of the step's pairs, ordered by the old one, that the new one orders alike
    pairs: int
    held_out: int
    accuracy_old: float | None
    accuracy_new: float | None
    level: float = 0.0
    scale: float = 1.0

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def objection(self, plan: SwapPlan) -> str | None:
        """Why the old one stays; None: it does not."""
        old, new = self.accuracy_old, self.accuracy_new
        if self.held_out >= plan.least and old is not None and new is not None and new < old - plan.tolerance:
            return f"its accuracy on {self.held_out} held-out labels is {new:.3f}, that of the old one {old:.3f}"
        if self.agreement is not None and self.agreement < plan.agreement:
            return f"it orders only {self.agreement:.3f} of the step's pairs as the old one does"
        return None


def compare(
    old: Scorer, new: Scorer, items: Sequence[ScoreItem], prompts: Sequence[str], held_out: Sequence[TrainingPair]
) -> ShadowComparison:
    """`items`: a step's rollouts, of the `prompts` with these ids."""
    rewards = [_rewards(scorer.score(items)) for scorer in (old, new)]
    present = ~(np.isnan(rewards[0]) | np.isnan(rewards[1]))
    before, after = (values[present] for values in rewards)
    groups = [prompt.encode() for prompt, scored in zip(prompts, present, strict=True) if scored]
    order = order_agreement(groups, before, after) if groups else None
    scale = float(after.std() / before.std()) if groups and before.std() > 0 and after.std() > 0 else 1.0
    level = float(after.mean() - scale * before.mean()) if groups else 0.0
    sides = [item for pair in held_out for item in (pair.chosen, pair.rejected)]
    accuracy_old, accuracy_new = (_accuracy(_rewards(s.score(sides))) if sides else None for s in (old, new))
    return ShadowComparison(
        None if order is None else order.agreement,
        0 if order is None else order.pairs,
        len(held_out),
        accuracy_old,
        accuracy_new,
        level,
        scale,
    )


def _accuracy(rewards: Floats) -> float | None:
    """Share of pairs of which the chosen response, first of two, has the higher reward; a tie counts half."""
    difference = rewards[::2] - rewards[1::2]
    difference = difference[~np.isnan(difference)]
    return float((0.5 + 0.5 * np.sign(difference)).mean()) if len(difference) else None


def _rewards(results: Sequence[ScoreResult]) -> Floats:
    return np.array([r.reward if isinstance(r, Score) else np.nan for r in results], dtype=np.float64)
