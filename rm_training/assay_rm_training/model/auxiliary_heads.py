"""Modules trained with the model that are not saved with it: a second head, a tie parameter, the base's language head.

Covers: attaching such a module (its weights are trained, checkpointed and resumed like any other), finding it,
detaching it before the model is saved, setting the weights of the model's head. Leaves out: what the modules compute.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from assay.models.heads import HEAD
from assay_rm_training.model.trainable_model import TrainableModel

_PREFIX = "assay_"


class Parameter(torch.nn.Module):
    """One trained number, of shape [1]: a tensor without dimensions cannot be sharded."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = torch.nn.Parameter(torch.tensor([value], dtype=torch.float32))


def attach(trainable: TrainableModel, name: str, module: torch.nn.Module, *, is_head: bool = True) -> TrainableModel:
    """Add `module` to the trained model, on its device. `is_head`: newly initialised, so trained with `head_lr`."""
    trainable.model.add_module(_PREFIX + name, module.to(trainable.model.device))
    return replace(trainable, heads=(*trainable.heads, _PREFIX + name)) if is_head else trainable


def auxiliary_module(trainable: TrainableModel, name: str) -> Any:
    """Raises AttributeError for a name that was not attached."""
    return getattr(trainable.model, _PREFIX + name)


def detach_modules(trainable: TrainableModel) -> None:
    """Remove all attached modules: what remains is the stock model."""
    for name in [name for name, _ in trainable.model.named_children() if name.startswith(_PREFIX)]:
        delattr(trainable.model, name)


def new_linear(trainable: TrainableModel, outputs: int, *, seed: int | None = None) -> torch.nn.Linear:
    """A head [outputs, hidden] without bias: zero, or random from `seed` with deviation 1 / (hidden + 1)."""
    hidden = int(trainable.model.config.get_text_config().hidden_size)
    head = torch.nn.Linear(hidden, outputs, bias=False)
    with torch.no_grad():
        if seed is None:
            head.weight.zero_()
        else:
            generator = torch.Generator().manual_seed(seed)
            head.weight.copy_(torch.randn(head.weight.shape, generator=generator) / (hidden + 1))
    return head


def set_head(trainable: TrainableModel, weight: torch.Tensor) -> None:
    """Set the weight [1, H] of the model's head; its bias, if any, becomes 0. Adapters keep two copies."""
    head = getattr(trainable.model, HEAD)
    copies = [head.original_module, *head.modules_to_save.values()] if hasattr(head, "modules_to_save") else [head]
    with torch.no_grad():
        for copy in copies:
            copy.weight.copy_(weight)
            if copy.bias is not None:
                copy.bias.zero_()
