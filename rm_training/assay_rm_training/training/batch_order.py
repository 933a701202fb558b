"""The items of each optimiser step: a pure function of the configuration, so a data position is a step number.

Covers: batches of one size, and batches that grow at the start of the run (large batches waste items while all
gradients still agree). Leaves out: what happens inside a batch (`encoded_dataset.micro_batches`).
"""

from array import array

import numpy as np
import numpy.typing as npt

from assay_rm_training.training_config import TrainingConfig


class StepPlan:
    """All steps of a run over `items` items. Each epoch has its own permutation, fixed by the seed; its last batch may
    be smaller, and no item is dropped."""

    def __init__(self, items: int, config: TrainingConfig) -> None:
        self._items, self._seed = items, config.seed
        batches = array("q")
        for epoch in range(config.epochs):
            start = 0
            while start < items:
                size = batch_size(epoch * items + start, items * config.epochs, config)
                batches.extend((epoch, start, min(start + size, items)))
                start += size
        self._batches = np.asarray(batches).reshape(-1, 3)
        self._order: tuple[int, npt.NDArray[np.uint32]] = (-1, np.empty(0, np.uint32))

    @property
    def total(self) -> int:
        """Optimiser steps of the run."""
        return len(self._batches)

    def batch(self, step: int) -> list[int]:
        """Indices of the items of `step`, counted from 1."""
        epoch, start, stop = map(int, self._batches[step - 1])
        if self._order[0] != epoch:
            order = np.arange(self._items, dtype=np.uint32)
            np.random.default_rng((self._seed, epoch)).shuffle(order)  # as `permutation`, in half the memory
            self._order = (epoch, order)
        return list(map(int, self._order[1][start:stop]))

    def items_seen(self, step: int) -> int:
        """Items of the first `step` steps."""
        batches = self._batches[:step]
        return int((batches[:, 2] - batches[:, 1]).sum())

    def epochs_done(self, step: int) -> float:
        """Passes over the data after `step`, in epochs."""
        epoch, _, stop = map(int, self._batches[step - 1])
        return epoch + stop / self._items


def batch_size(seen: int, total: int, config: TrainingConfig) -> int:
    """Items of the step that begins after `seen` of the run's `total` items: linear from `batch_start` to `batch_size`
    over the first `batch_ramp_ratio` of them."""
    ramp = config.batch_ramp_ratio * total
    if not config.batch_start or seen >= ramp:
        return config.batch_size
    return round(config.batch_start + (config.batch_size - config.batch_start) * seen / ramp)
