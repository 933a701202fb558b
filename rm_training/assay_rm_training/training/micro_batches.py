"""Micro-batches: this process's items of a batch, split into forward passes by token count.

Leaves out: what a pass is used for (`training/loop.py`: gradients; `eval_step.py`: metrics).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeVar

import torch

from assay.models.parallelism.strategy import SingleProcess, split_by_cost
from assay_rm_training.data.encoded_dataset import micro_batches
from assay_rm_training.methods.task import BatchLoss, TrainingTask
from assay_rm_training.model.trainable_model import TrainableModel
from assay_rm_training.training.profiler import StepClock
from assay_rm_training.training_config import TrainingConfig

Item = TypeVar("Item")

CPU_TOKENS, DEVICE_TOKENS = 2048, 16384  #: of one forward pass, where the configuration leaves it open


class Pass(NamedTuple):
    """`numbers`: indices of the items; empty for a pass that only keeps this process in step with the others, whose
    `weights` are zero. `weights`: [n]."""

    numbers: list[int]
    weights: torch.Tensor
    measured: BatchLoss


def forward_passes(
    trainable: TrainableModel,
    task: TrainingTask[Item],
    items: Sequence[Item],
    config: TrainingConfig,
    parallel: SingleProcess,
    clock: StepClock,
) -> Iterator[Pass]:
    """This process's share of `items`, one forward pass at a time, the costliest items first."""
    device = trainable.model.device
    with clock.part("data"):
        costs = [task.cost(item) for item in items]
        budget = config.micro_batch_tokens or (CPU_TOKENS if device.type == "cpu" else DEVICE_TOKENS)
        hands = split_by_cost(costs, parallel.world)
        cuts = [micro_batches(hand, {n: costs[n] for n in hand}, budget) for hand in hands]
        parts = cuts[parallel.rank]
        if parallel.equal_passes:
            # The cheapest item pads the count where this process has fewer passes than another.
            cheapest = min(range(len(items)), key=lambda n: costs[n])
            parts = parts + [[cheapest]] * (max(map(len, cuts)) - len(parts))
    for index, numbers in enumerate(parts):
        chosen = [items[number] for number in numbers]
        counts = index < len(cuts[parallel.rank])
        item_weights = [task.weight(item) if counts else 0.0 for item in chosen]
        weights = torch.tensor(item_weights, dtype=torch.float32, device=device)
        with clock.part("forward"):
            measured = parallel.forward(trainable.model, lambda: task.measure(trainable, chosen))  # noqa: B023  # called at once
        yield Pass(numbers if counts else [], weights, measured)
