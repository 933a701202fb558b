"""Training tasks: from items to losses. The loop knows nothing else of pairs, lists, principles or verdicts.

Covers: the protocol between `training/loop.py` and training methods. Leaves out: encoding and saving
(`methods/method.py`).
"""

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
    model, padding included; `padding`: of these. `each`: name -> detached [n], one value per item: `chosen` and
    `rejected`, the rewards of its two sides, where it has two (then it is evaluated as a pair). `outputs`: [n, k],
    differentiable: the inputs of a full-batch term (`batch_losses.py`), where the task has one.
    """

    losses: torch.Tensor
    figures: Mapping[str, torch.Tensor]
    tokens: int
    computed: int
    padding: int
    each: Mapping[str, torch.Tensor] = MappingProxyType({})
    outputs: torch.Tensor | None = None


class TrainingTask(Protocol[Item]):
    """What is trained. Stateless between calls."""

    def cost(self, item: Item) -> int:
        """Positions of the item in a forward pass, by which micro-batches are built."""
        ...

    def weight(self, item: Item) -> float:
        """The item's weight in the batch's mean loss; positive."""
        ...

    def measure(self, trainable: TrainableModel, items: Sequence[Item]) -> BatchLoss:
        """One forward pass, with gradient where the caller enabled it."""
        ...
