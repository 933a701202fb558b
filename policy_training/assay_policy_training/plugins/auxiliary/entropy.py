"""An entropy bonus, with a fixed coefficient or with MAGIC's, which follows the entropy.

Covers: the loss - coefficient x entropy of theta; the controller that raises its coefficient by a small step while the
entropy is below a target, lowers it above, and applies it below the target only. The entropy it reads is that of the
step's own rollouts under old, over the tokens the policy generated, at the sampling temperature. Leaves out: entropy
control by weights on tokens.

Source of the controller: Skywork-OR1, arXiv 2505.22312, code SkyworkAI/Skywork-OR1.
"""

from dataclasses import field
from typing import Annotated, ClassVar

from annotated_types import Ge, Gt
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.settings import RecipeSettings, StatefulSettings
from assay_policy_training.plugins.protocols import UpdateContext


def negative_entropy(context: UpdateContext) -> Tensor:
    """[b,T] of theta, differentiable."""
    return -context.scored_entropy


def magic_step(
    level: float, entropy: float, *, target: float, delta: float, low: float, high: float
) -> tuple[float, float]:
    """(next level, coefficient to use now): the level moves by `delta` and counts only below the target."""
    level = min(high, max(low, level + (delta if entropy < target else -delta)))
    return level, level if entropy < target else 0.0


class EntropyBonus(RecipeSettings, section="auxiliary"):
    """S11: - coefficient x entropy."""

    coefficient: Annotated[float, Ge(0)] = 0.001
    name: ClassVar[str] = "entropy"
    needs: ClassVar[frozenset[str]] = frozenset({"entropy_gradient"})

    def loss(self, logp: Tensor, context: UpdateContext) -> Tensor:
        return negative_entropy(context)


class Magic(StatefulSettings, section="auxiliary"):
    """S11: the entropy bonus with `magic_step`'s coefficient, moved once a step before its first update."""

    target: float = 0.2
    start: float = 0.0
    delta: Annotated[float, Gt(0)] = 1e-4
    low: float = 0.0
    high: float = 5e-3
    level: float = field(init=False)
    coefficient: float = field(init=False, default=0.0, compare=False)  #: set anew by each step
    name: ClassVar[str] = "entropy"
    needs: ClassVar[frozenset[str]] = frozenset({"entropy", "entropy_gradient"})

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.low <= self.start <= self.high:
            raise BadInputError(
                f"0 <= low {self.low} <= start {self.start} <= high {self.high} must hold", field="auxiliary.start"
            )
        self.level = self.start

    def steer(self, batch: RolloutBatch) -> dict[str, float]:
        entropy = float(batch.scored_entropy[batch.mask].double().mean())
        self.level, self.coefficient = magic_step(
            self.level, entropy, target=self.target, delta=self.delta, low=self.low, high=self.high
        )
        return {"entropy_coefficient": self.coefficient, "entropy_coefficient_level": self.level}

    def loss(self, logp: Tensor, context: UpdateContext) -> Tensor:
        return negative_entropy(context)
