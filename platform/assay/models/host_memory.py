"""Tensors of a device that wait in the host's memory.

Covers: copying one there, whether one is there already. A plan (`config_only`) has all its tensors on the CPU, and
counts such a copy as the host's. Leaves out: what is moved (`offloaded`, `checkpointing`).
"""

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from assay.models import config_only


def is_on_host(tensor: Tensor) -> bool:
    return config_only.kernels_of(tensor) == "cpu"


@torch.no_grad()
def to_host(tensor: Tensor) -> Tensor:
    """Itself where it is there; of a CUDA tensor a copy in pinned memory, which is several times as fast."""
    if is_on_host(tensor):
        return tensor.detach()
    with config_only.on_host():
        if tensor.device.type == "cpu":  # a plan's
            return tensor.detach().clone()
        if isinstance(tensor, DTensor):
            share, layout = to_host(tensor.to_local()), (tensor.device_mesh, tensor.placements)
            return DTensor.from_local(share, *layout, run_check=False, shape=tensor.shape, stride=tensor.stride())
        pinned = tensor.device.type == "cuda"
        copy = torch.empty(tensor.size(), dtype=tensor.dtype, layout=tensor.layout, pin_memory=pinned)
        return copy.copy_(tensor)
