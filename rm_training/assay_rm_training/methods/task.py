"""What is trained: from items to losses. The trainer knows nothing else of pairs, lists, principles or verdicts.

Covers: the protocol between `training/loop.py` and every way to train. Leaves out: how rows become items and what is
saved (`methods/method.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol, TypeVar

import torch

from assay_rm_training.model.trainable_model import TrainableModel

Item = TypeVar("Item", contravariant=True)


class BatchLoss(NamedTuple):
    """One forward pass over n items.

    `losses`: [n] float32, differentiable, not weighted. `figures`: name -> detached sum over the n items, a scalar
    (`accuracy`: how many are right). `tokens`: of all sequences in full; `computed`: positions that went through the
    model, padding included; `padding`: of these. `each`: name -> detached [n], one value an item: `chosen` and
    `rejected`, the rewards of its two sides, where it has two (then it is evaluated as a pair, by slices, and their
    spread is measured). `outputs`: [n, k], differentiable: what a term of the whole batch is a function of
    (`batch_losses.py`), where the task has one.
    """

    losses: torch.Tensor
    figures: Mapping[str, torch.Tensor]
    tokens: int
    computed: int
    padding: int
    each: Mapping[str, torch.Tensor] = MappingProxyType({})
    outputs: torch.Tensor | None = None


class TrainingTask(Protocol[Item]):
    """One way to train. Stateless between calls: all it knows comes from its configuration and the items."""

    def cost(self, item: Item) -> int:
        """Positions that the item takes in a forward pass: what micro-batches are cut by."""
        ...

    def weight(self, item: Item) -> float:
        """The item's weight in the batch's mean loss; positive."""
        ...

    def measure(self, trainable: TrainableModel, items: Sequence[Item]) -> BatchLoss:
        """One forward pass, with gradient where the caller enabled it."""
        ...
