"""Two sections of a recipe: the optimiser with its passes over a batch, and how far rollouts run ahead of training.

Leaves out: schedules beyond a linear warm-up (`plugins.schedules`), the critic's optimiser (`plugins.critics`),
sampling settings (`sampling`), prefetching (`rollouts.prefetch`).
"""

from __future__ import annotations

from dataclasses import dataclass

from assay.errors import BadInputError


@dataclass(frozen=True)
class Optimisation:
    """AdamW and how a batch of rollouts is worked through."""

    lr: float = 1e-6
    warmup_steps: int = 0  #: steps over which lr rises linearly from 0
    weight_decay: float = 0.0
    betas: tuple[float, ...] = (0.9, 0.999)
    max_grad_norm: float = 1.0
    epochs: int = 1  #: passes over each batch of rollouts
    minibatches: int = 1  #: optimiser steps per pass
    micro_batch_rows: int = 8  #: rows per backward pass; bounds memory, changes no gradient
    autocast: bool = False  #: bfloat16 products around float32 weights
    gradient_checkpointing: bool = False  #: keep each layer's input only, compute the rest again: less memory, slower

    def __post_init__(self) -> None:
        for name in ("epochs", "minibatches", "micro_batch_rows"):
            if getattr(self, name) < 1:
                raise BadInputError(f"must be at least 1, not {getattr(self, name)}", field=f"optimisation.{name}")
        for name in ("lr", "weight_decay", "warmup_steps"):
            if not getattr(self, name) >= 0:
                raise BadInputError(f"must not be negative, not {getattr(self, name)}", field=f"optimisation.{name}")
        if not self.max_grad_norm > 0:
            raise BadInputError(f"must be above 0, not {self.max_grad_norm}", field="optimisation.max_grad_norm")
        if len(self.betas) != 2:
            raise BadInputError("two numbers", field="optimisation.betas")

    @property
    def updates_per_batch(self) -> int:
        return self.epochs * self.minibatches

    def learning_rate(self, step: int) -> float:
        """In `step` (1-based), before schedules."""
        return self.lr * min(1.0, step / self.warmup_steps) if self.warmup_steps else self.lr


@dataclass(frozen=True)
class Asynchrony:
    """`lag`: a step trains on rollouts generated with the weights of `lag` steps earlier; 0 = with its own weights.

    The lag is fixed, so runs are reproducible, and it bounds staleness: step s > lag trains on rollouts that
    the weights at the start of step s - lag generated while the steps in between were trained. `chunks`: rewards
    are requested in this many portions a step while the sampler continues; it changes no number.
    """

    lag: int = 0
    chunks: int = 1

    def __post_init__(self) -> None:
        for name, least in (("lag", 0), ("chunks", 1)):
            if getattr(self, name) < least:
                raise BadInputError(f"must be at least {least}, not {getattr(self, name)}", field=f"asynchrony.{name}")
