"""Router-R1's reward: the outcome and a score of what it cost, behind a gate on the form of the turns.

Covers: R = -1 where the form is wrong, else (1 - alpha) outcome + alpha x cost score; the cost score is 1 less the
square root of the cost, scaled between the 5 % and 95 % quantiles of the last `window` costs and clipped, 0.5 where
they are all one. Costs are remembered by training steps; an evaluation leaves no trace. Source: arXiv 2506.09033
(abstract and notes: the sum); the scale and the gate's -1 from programmer229/Router-R1, a fork, read. Leaves out:
asking models (`environments.routing`).
"""

import math
from collections.abc import Mapping
from dataclasses import field
from typing import Annotated

import torch
from annotated_types import Ge, Le
from torch import Tensor

from assay_policy_training.core.settings import StatefulSettings
from assay_policy_training.plugins.compositions.weighted import named_part
from assay_policy_training.plugins.protocols import StepReport

EQUAL = 1e-8
QUANTILES = (0.05, 0.95)


def cost_score(cost: float, seen: Tensor) -> float:
    """1 the cheapest of what was `seen` ([n] square roots of costs), 0 the dearest."""
    low, high = torch.quantile(seen, torch.tensor(QUANTILES, dtype=seen.dtype)).tolist()
    return 0.5 if high - low < EQUAL else 1.0 - min(max((math.sqrt(cost) - low) / (high - low), 0.0), 1.0)


class RouterReward(StatefulSettings, section="reward"):
    """S3. `alpha`: the weight of the cost. `only_right`: a wrong answer earns 0, however cheap."""

    alpha: Annotated[float, Ge(0), Le(1)] = 0.5
    window: Annotated[int, Ge(1)] = 1000
    only_right: bool = False
    _costs: list[float] = field(init=False, default_factory=list, repr=False)

    def __call__(self, parts: Mapping[str, Tensor]) -> Tensor:
        form, outcome, cost = (named_part(parts, name) for name in ("format", "outcome", "cost"))
        seen = torch.tensor(self._with(cost), dtype=torch.float64)
        scores = [math.nan if math.isnan(c) else cost_score(max(c, 0.0), seen) for c in cost.tolist()]
        total = (1 - self.alpha) * outcome + self.alpha * torch.tensor(scores, dtype=torch.float64)
        if self.only_right:
            total = torch.where(outcome == 0, 0.0, total)
        return torch.where(form < 0, -1.0, total)

    def observe(self, report: StepReport) -> None:
        """Remember what the step's rows cost."""
        self._costs = self._with(named_part(report.batch.r_parts, "cost"))

    def _with(self, cost: Tensor) -> list[float]:
        known = (value for value in cost.tolist() if not math.isnan(value))
        return [*self._costs, *(math.sqrt(max(value, 0.0)) for value in known)][-self.window :]
