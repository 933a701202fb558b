"""The learning rate as a pure function of the step, so that resuming has no scheduler state to restore."""

from __future__ import annotations

import math

from assay_rm_training.training_config import Schedule


def lr_factor(
    schedule: Schedule,
    step: int,
    total: int,
    *,
    warmup_ratio: float,
    min_lr_ratio: float = 0.0,
    decay_ratio: float = 0.2,
) -> float:
    """Factor on the peak rate for optimiser step `step` of `total`, counted from 1.

    Rises linearly over the first round(warmup_ratio * total) steps, then stays (`constant`), or falls linearly or as
    a half cosine towards `min_lr_ratio`, which it would reach one step after the last (so no step has a rate of 0).
    `wsd` (warm-up, stable, decay: MiniCPM, arXiv 2404.06395) stays until the last round(decay_ratio * total) steps
    and falls linearly in them.
    """
    warmup = round(warmup_ratio * total)
    if step <= warmup:
        return step / max(1, warmup)
    if schedule == "constant":
        return 1.0
    begin = warmup if schedule != "wsd" else max(warmup, total - round(decay_ratio * total))
    done = max(0.0, (step - begin - 1) / max(1, total - begin))
    falling = 0.5 * (1.0 + math.cos(math.pi * done)) if schedule == "cosine" else 1.0 - done
    return min_lr_ratio + (1.0 - min_lr_ratio) * falling if min_lr_ratio else falling
