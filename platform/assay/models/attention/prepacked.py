"""Linear layers of a model that only scores, with their weights laid out once in oneDNN's order for a CPU.

Torch multiplies float32 matrices on a CPU by MKL, which on an AMD processor was a third slower inside a model than
oneDNN with weights in its own blocked order (docs/reward-models/speed.md). Covers: float32 and bfloat16 linear layers
of a backbone, where torch has oneDNN on x86; small and other ones stay as they are. Leaves out: training (such a
layer has no gradient and no `weight`), heads (their rows are read one by one), saving.
"""

import platform
from typing import Any

import torch
from torch import nn

from assay.errors import BadInputError
from assay.models.attention.packing import PACKED, backbone
from assay.models.devices import has_fast_bfloat16

#: Weights of a layer below which it stays as it is: oneDNN makes a kernel for every new number of tokens, in about a
#: millisecond, which is more than such a product takes.
LEAST_WEIGHTS = 1 << 16
OPERATIONS = ("_reorder_linear_weight", "_linear_pointwise")  #: torch's own, used by its compiler; not public


class Prepacked(nn.Module):
    """Computes what `linear` does, x [..., in] -> [..., out], from a packed copy of its weight."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), None)
        self.bias = linear.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if torch.is_grad_enabled():
            raise BadInputError("a model that was loaded for scoring has no gradients")
        output: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")
        return output


def prepack(model: Any) -> int:
    """Replace the linear layers below the head of `model` in place and give back how many; 0 where it does not help.

    Outputs stay the same to rounding; the model can be neither trained nor saved any more, and takes no more memory.
    Only known decoders (`assay.models.attention.packing.PACKED`) without adapters: others may read a layer's `weight`
    themselves.
    """
    adapted = hasattr(model, "peft_config") or getattr(model, "_hf_peft_config_loaded", False)
    if adapted or model.config.model_type not in PACKED or not _helps(model.dtype, model.device):
        return 0
    layers = [
        (parent, name)
        for parent in backbone(model).modules()
        for name, layer in parent.named_children()
        if type(layer) is nn.Linear  # a subclass (a quantized layer) computes something else
        and layer.weight.numel() >= LEAST_WEIGHTS
    ]
    with torch.no_grad():
        for parent, name in layers:  # one by one, each old weight freed before the next is laid out
            setattr(parent, name, Prepacked(getattr(parent, name)))
    return len(layers)


def _helps(dtype: torch.dtype, device: torch.device) -> bool:
    if device.type != "cpu" or platform.machine().lower() not in ("x86_64", "amd64"):
        return False
    available = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    if not available or not all(hasattr(torch.ops.mkldnn, name) for name in OPERATIONS):
        return False
    return dtype == torch.float32 or (dtype == torch.bfloat16 and has_fast_bfloat16(device))
