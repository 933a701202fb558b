"""Linear layers with their weights laid out once in oneDNN's order for a CPU.

Torch multiplies float32 matrices on a CPU by MKL, which on an AMD processor was a third slower inside a model than
oneDNN with weights in its own blocked order; under autocast it casts every weight in every pass, which for one token
of each row takes longer than the product (docs/reward-models/speed.md). Covers: a model that only scores, whose layers
are replaced for good (`prepack`); a model in training while it generates, whose layers have a packed copy beside their
weights (`PackedProducts`). Float32 and bfloat16, where torch has oneDNN on x86; small layers, and
those elsewhere, stay as they are. Leaves out: gradients, saving.
"""

import platform
from collections.abc import Callable
from typing import Any, Self

import torch
from torch import nn

from assay.errors import BadInputError
from assay.models import config_only
from assay.models.attention.packing import PACKED, backbone
from assay.models.devices import has_fast_bfloat16
from assay.models.frozen_weights import Bfloat16Linear

#: Weights of a layer below which it stays as it is: oneDNN makes a kernel for every new number of tokens, in about a
#: millisecond, which is more than such a product takes.
LEAST_WEIGHTS = 1 << 16
#: Layers of an MLP whose outputs another layer of it multiplies at once.
INNER = frozenset({"gate_proj", "up_proj", "gate_up_proj"})
OPERATIONS = ("_reorder_linear_weight", "_linear_pointwise")  #: torch's own, used by its compiler; not public


class Prepacked(nn.Module):
    """Computes what `linear` does, x [..., in] -> [..., out], from a packed copy of its weight and in its number
    format; the output is of the format of `x`, unless it `stays_low`."""

    def __init__(self, linear: nn.Linear, *, stays_low: bool = False) -> None:
        super().__init__()
        self.stays_low = stays_low
        self.dtype = linear.weight.dtype
        self.packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), None)
        self.bias = None if linear.bias is None else linear.bias.detach()  # no parameter: it keeps its format

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if torch.is_grad_enabled():
            raise BadInputError("a model that was loaded for scoring has no gradients")
        output = torch.ops.mkldnn._linear_pointwise(x.to(self.dtype), self.packed, self.bias, "none", [], "")
        return output if self.stays_low else output.to(x.dtype)  # type: ignore[no-any-return]


class PackedProducts:
    """While entered, `model`'s linear layers multiply by packed copies of their weights, without gradients.

    `low`: the products' number format, and so the outputs', as under autocast; None: the weights' own. A copy is made
    when a layer is first called, made again when its weight was changed in place, and freed with this object; it takes
    the memory of the weights in the products' format. Where oneDNN does not help, nothing is changed.
    """

    def __init__(self, model: Any, low: torch.dtype | None = None) -> None:
        self._forwards: list[tuple[nn.Module, Callable[[torch.Tensor], torch.Tensor]]] = []
        if config_only.active() is not None:
            return
        for layer in model.modules():
            # a subclass (a quantized layer) computes something else; so may a forward that others have set
            if type(layer) not in (nn.Linear, Bfloat16Linear) or "forward" in vars(layer):
                continue
            weight = layer.weight
            large = type(weight) is nn.Parameter and weight.numel() >= LEAST_WEIGHTS
            if large and _helps(low or weight.dtype, weight.device):
                self._forwards.append((layer, _packed_forward(layer, low or weight.dtype)))

    def __bool__(self) -> bool:
        """Whether any layer is changed."""
        return bool(self._forwards)

    def __enter__(self) -> Self:
        for layer, forward in self._forwards:
            layer.forward = forward
        return self

    def __exit__(self, *raised: object) -> None:
        for layer, _ in self._forwards:
            del layer.forward


def _packed_forward(layer: nn.Linear, low: torch.dtype) -> Callable[[torch.Tensor], torch.Tensor]:
    packed, bias, version = None, None, -1

    @torch.no_grad()
    def forward(x: torch.Tensor) -> torch.Tensor:
        nonlocal packed, bias, version
        if version != layer.weight._version:
            packed, version = None, layer.weight._version  # the old copy first, for its memory
            packed = torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach().to(low), None)
            bias = None if layer.bias is None else layer.bias.detach().to(low)
        output: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x.to(low), packed, bias, "none", [], "")
        return output

    return forward


def prepack(model: Any) -> int:
    """Replace the linear layers below the head of `model` in place and give back how many; 0 where it does not help.

    Outputs stay the same to rounding; the model can be neither trained nor saved any more, and takes no more memory,
    but for a bfloat16 one, in which all that is not packed becomes float32: what layers add to keeps its precision, and
    attention is no slower. Its scores are nearer to float32's (docs/reward-models/speed.md).
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
            stays_low = name in INNER and (parent, "down_proj") in layers
            setattr(parent, name, Prepacked(getattr(parent, name), stays_low=stays_low))
    if layers:
        model.float()
    return len(layers)


def number_format(model: Any) -> str:
    """Of the products of a model's layers: what decides its numbers."""
    formats = (layer.dtype for layer in model.modules() if isinstance(layer, Prepacked))
    return str(next(formats, model.dtype)).removeprefix("torch.")


def _helps(dtype: torch.dtype, device: torch.device) -> bool:
    if device.type != "cpu" or platform.machine().lower() not in ("x86_64", "amd64"):
        return False
    available = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    if not available or not all(hasattr(torch.ops.mkldnn, name) for name in OPERATIONS):
        return False
    return dtype == torch.float32 or (dtype == torch.bfloat16 and has_fast_bfloat16(device))
