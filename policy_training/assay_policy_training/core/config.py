"""Two sections of a recipe: the optimiser with its passes over a batch, and how far rollouts run ahead of training.

Leaves out: schedules beyond a linear warm-up (`plugins.schedules`), the critic's optimiser (`plugins.critics`),
sampling settings (`sampling`), prefetching (`rollouts.prefetch`).
"""

from typing import Annotated

from annotated_types import Ge, Gt

from assay.errors import BadInputError
from assay_policy_training.core.settings import RecipeSettings


class Optimisation(RecipeSettings, section="optimisation"):
    """AdamW and how a batch of rollouts is worked through."""

    lr: Annotated[float, Ge(0)] = 1e-6
    warmup_steps: Annotated[int, Ge(0)] = 0  #: steps over which lr rises linearly from 0
    weight_decay: Annotated[float, Ge(0)] = 0.0
    betas: tuple[float, ...] = (0.9, 0.999)
    max_grad_norm: Annotated[float, Gt(0)] = 1.0
    epochs: Annotated[int, Ge(1)] = 1  #: passes over each batch of rollouts
    minibatches: Annotated[int, Ge(1)] = 1  #: optimiser steps per pass
    micro_batch_rows: Annotated[int, Ge(1)] = 8  #: rows per backward pass; bounds memory, changes no gradient
    autocast: bool = False  #: bfloat16 products around float32 weights
    gradient_checkpointing: bool = False  #: keep each layer's input only, compute the rest again: less memory, slower

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.betas) != 2:
            raise BadInputError("two numbers", field="optimisation.betas")

    @property
    def updates_per_batch(self) -> int:
        return self.epochs * self.minibatches

    def learning_rate(self, step: int) -> float:
        """In `step` (1-based), before schedules."""
        return self.lr * min(1.0, step / self.warmup_steps) if self.warmup_steps else self.lr


class Asynchrony(RecipeSettings, section="asynchrony"):
    """`lag`: a step trains on rollouts generated with the weights of `lag` steps earlier; 0 = with its own weights.

    The lag is fixed, so runs are reproducible, and it bounds staleness: step s > lag trains on rollouts that
    the weights at the start of step s - lag generated while the steps in between were trained. `chunks`: rewards
    are requested in this many portions a step while the sampler continues; it changes no number.
    """

    lag: Annotated[int, Ge(0)] = 0
    chunks: Annotated[int, Ge(1)] = 1
