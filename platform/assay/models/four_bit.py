"""Frozen weights of linear layers in 4 bit (NF4, QLoRA: arXiv 2305.14314), by bitsandbytes.

Covers: quantizing a layer, products with it and their gradient, float weights again. Leaves out: which layers
(`frozen_weights`), inference kernels: sampling and training compute with the same dequantized weights.

A block of 64 weights shares a float32 scale: 4.5 bits a weight. The scales are not quantized once more, which would
save 0.37 bits and cost a pass.
"""

from importlib import import_module
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from assay.models.memory_options import require_bitsandbytes

BLOCK = 64


class FourBitLinear(nn.Linear):
    """`weight` is [out * in / 2, 1] uint8. The product is computed in the format of autocast, else of the input."""

    scales: Tensor

    def forward(self, input: Tensor) -> Tensor:
        device = input.device.type
        number_format = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else input.dtype
        product: Tensor = _Product.apply(input.to(number_format), self)  # type: ignore[no-untyped-call]
        return product if self.bias is None else product + self.bias.to(number_format)

    def dequantized(self, dtype: torch.dtype) -> Tensor:
        """[out, in]"""
        library: Any = import_module("bitsandbytes.functional")
        shape = torch.Size((self.out_features, self.in_features))
        state = library.QuantState(self.scales, shape=shape, dtype=dtype, blocksize=BLOCK, quant_type="nf4")
        weight: Tensor = library.dequantize_4bit(self.weight.detach(), state)
        return weight


class _Product(torch.autograd.Function):
    """Dequantizes again for the gradient, so that no float weight waits for it."""

    @staticmethod
    def forward(context: Any, input: Tensor, layer: FourBitLinear) -> Tensor:
        context.layer = layer
        return F.linear(input, layer.dequantized(input.dtype))

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, None]:
        if not context.needs_input_grad[0]:
            return None, None
        return gradient @ context.layer.dequantized(gradient.dtype), None


@torch.no_grad()
def quantize(layer: nn.Linear, device: torch.device) -> None:
    """In place, on `device`. Raises as `require_bitsandbytes`."""
    library = require_bitsandbytes("base_weights")
    weight = layer.weight.detach().to(device)
    packed, state = library.functional.quantize_4bit(
        weight, blocksize=BLOCK, compress_statistics=False, quant_type="nf4"
    )
    layer.weight = nn.Parameter(packed, requires_grad=False)
    layer.register_buffer("scales", state.absmax, persistent=False)
    layer.__class__ = FourBitLinear


@torch.no_grad()
def dequantize(layer: FourBitLinear) -> None:
    """Float32 weights again, in place: those that the products were computed with."""
    weight = layer.dequantized(torch.float32)
    del layer.scales
    layer.weight = nn.Parameter(weight, requires_grad=False)
    layer.__class__ = nn.Linear  # type: ignore[assignment]
