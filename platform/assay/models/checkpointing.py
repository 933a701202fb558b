"""Activation checkpointing: of each layer only the input is kept, on the device or the host, and the rest made again.

Covers: turning it on, inputs that wait in the host's memory. The gradients are the same. Leaves out: what else a pass
keeps: the states after the last layer, the head's.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from assay.errors import BadInputError
from assay.models.host_memory import to_host

_SMALL = 1024  #: numbers that are not worth a copy


def checkpoint_layers(model: Any, *, offload: bool = False, field: str = "gradient_checkpointing") -> list[nn.Module]:
    """The model's layers, which keep their input only while they are in train mode; `offload`: on the host. Raises
    BadInputError where the model's code has no such layers."""
    from transformers.modeling_layers import GradientCheckpointingLayer

    layers: list[nn.Module] = [m for m in model.modules() if isinstance(m, GradientCheckpointingLayer)]
    if not layers or not model.supports_gradient_checkpointing:
        raise BadInputError(f"{type(model).__name__} has none", field=field)
    model.activation_checkpointing_enable(activation_checkpointing_kwargs={"use_reentrant": False})
    for layer in layers if offload else ():
        layer._gradient_checkpointing_func = _offloading(layer._gradient_checkpointing_func)  # type: ignore[arg-type,assignment]
    return layers


def _offloading(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        with torch.autograd.graph.saved_tensors_hooks(_pack, _unpack):  # what the layer keeps has its own hooks
            return function(*args, **kwargs)

    return call


def _pack(tensor: Tensor) -> tuple[torch.device, Tensor]:
    return tensor.device, tensor if tensor.numel() < _SMALL else to_host(tensor)


def _unpack(packed: tuple[torch.device, Tensor]) -> Tensor:
    device, tensor = packed
    return tensor.to(device, non_blocking=True)
