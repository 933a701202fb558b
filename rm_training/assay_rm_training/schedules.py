"""The learning rate as a pure function of the step, so that resuming has no scheduler state to restore."""

from __future__ import annotations

import math

from assay_rm_training.config import Schedule


def lr_factor(schedule: Schedule, step: int, total: int, *, warmup_ratio: float) -> float:
    """Factor on the peak rate for optimiser step `step` of `total`, counted from 1.

    Rises linearly over the first round(warmup_ratio * total) steps, then stays, or falls linearly or along a
    half cosine towards 0, which it would reach one step after the last (no step is wasted on a rate of 0).
    """
    warmup = round(warmup_ratio * total)
    if step <= warmup:
        return step / max(1, warmup)
    done = (step - warmup - 1) / max(1, total - warmup)
    if schedule == "linear":
        return 1.0 - done
    if schedule == "cosine":
        return 0.5 * (1.0 + math.cos(math.pi * done))
    return 1.0
