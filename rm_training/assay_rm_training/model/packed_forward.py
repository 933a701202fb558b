"""The forward pass of training tasks over groups of conversations, in the training's number format.

Covers: packed and prefix-shared where the configuration and the model allow, the token cost of a group, the base
class of tasks over groups. Leaves out: the pass itself (`assay.models.attention.packing`), heads and losses.
"""

from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

import torch

from assay.models.attention.packing import PackedHidden, TokenGroup, can_pack, forward
from assay.models.devices import pass_tokens, pick_dtype
from assay.models.heads import HEAD, apply_head
from assay_rm_training.model.trainable_model import TrainableModel
from assay_rm_training.training_config import TrainingConfig


class GroupForward:
    """How a task runs its model; holds no reference to the model. `budget`: positions of one pass; `packs`: whether
    its sequences are laid end to end, not padded."""

    def __init__(self, trainable: TrainableModel, config: TrainingConfig) -> None:
        self.budget = config.micro_batch_tokens or pass_tokens(trainable.model.device)
        self.packs = can_pack(trainable.model)
        self._share = config.share_prefix and self.packs
        self._dtype = pick_dtype(trainable.model.device, config.dtype)

    def cost(self, group: TokenGroup) -> int:
        """Positions of the group in a pass of similar groups."""
        if self._share:
            return group.computed
        return group.tokens if self.packs else len(group.branches) * group.longest

    def __call__(self, trainable: TrainableModel, groups: Sequence[TokenGroup]) -> PackedHidden:
        """One pass; gradients flow where the caller enabled them. Branches come in the groups' order."""
        if not self._share:
            groups = [sequence for group in groups for sequence in group.apart()]
        with self.autocast(trainable):
            return forward(trainable.model, groups, trainable.images)

    def autocast(self, trainable: TrainableModel) -> torch.autocast:
        """The training's number format of matrix products."""
        device = trainable.model.device
        return torch.autocast(device.type, dtype=torch.bfloat16, enabled=self._dtype == torch.bfloat16)


class GroupItem(Protocol):
    """Conversations of one prompt, and their weight in the batch's mean loss."""

    @property
    def group(self) -> TokenGroup: ...
    @property
    def weight(self) -> float: ...


Item = TypeVar("Item", bound=GroupItem)


class GroupTask(Generic[Item]):
    """A `TrainingTask` without `measure`."""

    def __init__(self, trainable: TrainableModel, config: TrainingConfig) -> None:
        self._forward = GroupForward(trainable, config)

    def cost(self, item: Item) -> int:
        return self._forward.cost(item.group)

    def weight(self, item: Item) -> float:
        return item.weight


def rewards_of(trainable: TrainableModel, hidden: PackedHidden) -> torch.Tensor:
    """Float32 rewards [branches], read at each conversation's last token by the model's own head."""
    return apply_head(getattr(trainable.model, HEAD), hidden.last())


def tokens_of(groups: Sequence[TokenGroup]) -> int:
    """Tokens of all conversations, each in full."""
    return sum(group.tokens for group in groups)
