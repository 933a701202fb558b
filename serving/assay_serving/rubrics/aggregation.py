"""One reward of a rubric's grades: sums, saturation, gates, coverage.

Covers: plain functions of items and grades. Leaves out: grading (`grading`); weights that follow what a group of
rollouts already meets (`assay_policy_training.plugins.shaping.rubric`).

Sources: `points` is HealthBench's score (points of the items met over all positive points; openai/simple-evals,
calculate_score, there clipped in the mean over prompts); `mean` the explicit aggregation of Rubrics as Rewards (arXiv
2507.17746: sum of w c over sum of w). Veto and saturation: Rubric Anchors (arXiv 2508.12790), which prints no
equations; a must-have with a ceiling is ours.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, NamedTuple

from annotated_types import Ge, Gt, Le

from assay.errors import BadInputError
from assay_serving.composition.description import STRICT
from assay_serving.rubrics.rubric import RubricItem

Share = Annotated[float, Ge(0), Le(1)]


class RubricOutcome(NamedTuple):
    """`gate`: number of the item that decided the reward, None where no gate closed. `coverage`: share with a grade."""

    reward: float
    gate: int | None
    coverage: float


@dataclass(frozen=True)
class RubricAggregation:
    """`form`: points = (weights of met positive items - those of met negative ones) / weights of positive items; mean =
    weighted mean of how far each item is satisfied. `clip`: into [0, 1].

    `met_at`: grades of at least this count 1 and others 0; None = grades count as they are. `saturate_at`: a positive
    item counts in full from this grade on, and in proportion below it. `gate_at`: a must-have or veto is satisfied from
    here on. `ceiling`: most that a response without a must-have gets; `vetoed`: most that a veto leaves (less where a
    sum that is not clipped is below it: breaking a veto must not pay). `coverage`: the
    least share of items with a grade; items without one count nowhere, and a gate without one gives no reward.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    form: Literal["points", "mean"] = "points"
    clip: bool = True
    met_at: Annotated[float, Gt(0), Le(1)] | None = None
    saturate_at: Annotated[float, Gt(0), Le(1)] = 1.0
    gate_at: Annotated[float, Gt(0), Le(1)] = 0.5
    ceiling: Share = 0.0
    vetoed: Annotated[float, Le(0)] = 0.0
    coverage: Annotated[float, Gt(0), Le(1)] = 1.0

    def reward(self, items: Sequence[RubricItem], grades: Sequence[float | None]) -> RubricOutcome:
        """The reward of grades in [0, 1], one an item, None = failed.

        Raises BadInputError where they give none: too few grades, a gate's missing, nothing left that counts.
        """
        graded = [(n, criterion, grade) for n, criterion in enumerate(items) if (grade := grades[n]) is not None]
        coverage = len(graded) / len(items)
        with_grade = {number for number, _, _ in graded}
        if coverage < self.coverage:
            needs = f"at least {self.coverage:g}" if self.coverage < 1 else "all"
            raise BadInputError(f"{len(graded)} of {len(items)} items have a grade, and the rubric needs {needs}")
        if gate := next((i for n, i in enumerate(items) if (i.veto or i.must_have) and n not in with_grade), None):
            raise BadInputError(f"{len(graded)} of {len(items)} items have a grade, the gate {gate.name!r} has none")
        closed = [number for number, criterion, grade in graded if criterion.satisfied(grade) < self.gate_at]
        total = self._sum(graded)
        reward = min(max(total, 0.0), 1.0) if self.clip else total
        if (veto := next((n for n in closed if items[n].veto), None)) is not None:
            return RubricOutcome(min(reward, self.vetoed), veto, coverage)
        if (missing := next((n for n in closed if items[n].must_have), None)) is not None:
            return RubricOutcome(min(reward, self.ceiling), missing, coverage)
        return RubricOutcome(reward, None, coverage)

    def _sum(self, graded: Sequence[tuple[int, RubricItem, float]]) -> float:
        counted = [criterion for _, criterion, _ in graded if self.form == "mean" or criterion.polarity == "positive"]
        possible = math.fsum(criterion.weight for criterion in counted)
        if not possible > 0:
            raise BadInputError("no item of positive polarity has a weight: `form: mean` counts what it avoids")
        counts = [(criterion, self._counted(criterion, grade)) for _, criterion, grade in graded]
        if self.form == "mean":
            return math.fsum(criterion.weight * criterion.satisfied(share) for criterion, share in counts) / possible
        return math.fsum(criterion.signed_weight * share for criterion, share in counts) / possible

    def _counted(self, criterion: RubricItem, grade: float) -> float:
        if self.met_at is not None:
            return float(grade >= self.met_at)
        return min(grade / self.saturate_at, 1.0) if criterion.polarity == "positive" else grade
