"""Norms and MLPs of Llama-like decoders that hold less for the backward pass: the same forward pass to the bit.

Autograd holds what each operation of a norm or of SiLU reads, and autocast's copy of a norm's output for every linear
layer that reads it: a third of a layer's activations. Here a norm holds its input and one copy of its output, an MLP
the two products that SiLU's gate joins; the rest is computed again. Covers: layers whose classes are known, in any
number format, with adapters. Leaves out: other layers, norms inside attention, checkpointing (`checkpointing`).
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from assay.models.frozen_weights import Bfloat16Linear

NORMS = frozenset(f"{name}RMSNorm" for name in ("Llama", "Mistral", "Qwen2", "Qwen3", "SmolLM3", "Phi3"))
MLPS = frozenset(f"{name}MLP" for name in ("Llama", "Mistral", "Qwen2", "Qwen3", "SmolLM3"))


def make_lean(network: Any) -> None:
    """Change the classes of the norms before attention and MLP, and of the MLPs, of `network`'s layers, for good."""
    for layer in getattr(network, "layers", ()):
        mlp = layer.mlp
        if type(mlp).__name__ in MLPS and network.config.hidden_act in ("silu", "swish"):
            mlp.__class__ = LeanMLP
        plain = all(
            type(part) in (nn.Linear, Bfloat16Linear) for part in layer.modules() if isinstance(part, nn.Linear)
        )
        for name in ("input_layernorm", "post_attention_layernorm"):
            norm: Any = getattr(layer, name, None)
            if type(norm).__name__ in NORMS:
                norm.__class__ = LeanRMSNorm
                norm.read_by_linear = plain


class LeanRMSNorm(nn.Module):
    """weight * x / rms(x). Under autocast in the format of products where only linear layers read it."""

    weight: nn.Parameter
    variance_epsilon: float
    read_by_linear: bool

    def forward(self, x: Tensor) -> Tensor:
        kind = x.device.type
        cast = self.read_by_linear and torch.is_autocast_enabled(kind)
        low = torch.get_autocast_dtype(kind) if cast else torch.promote_types(x.dtype, self.weight.dtype)
        normed: Tensor = RMSNorm.apply(x, self.weight, self.variance_epsilon, low)  # type: ignore[no-untyped-call]
        return normed


class LeanMLP(nn.Module):
    """down(silu(gate(x)) * up(x))."""

    gate_proj: nn.Module
    up_proj: nn.Module
    down_proj: nn.Module

    def forward(self, x: Tensor) -> Tensor:
        joined = GatedSiLU.apply(self.gate_proj(x), self.up_proj(x))  # type: ignore[no-untyped-call]
        output: Tensor = self.down_proj(joined)
        return output


class RMSNorm(torch.autograd.Function):
    """x [..., H], weight [H] -> [..., H] in `low`. The gradient is computed in float32."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, epsilon: float, low: torch.dtype) -> Tensor:
        wide = x.to(torch.float32)
        scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + epsilon)
        ctx.save_for_backward(x, weight, scale)
        return (weight * (wide * scale).to(x.dtype)).to(low)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, scale = ctx.saved_tensors
        normed, grad = x.to(torch.float32) * scale, grad.to(torch.float32)
        of_weight = None
        if ctx.needs_input_grad[1]:
            of_weight = (grad * normed).flatten(0, -2).sum(0).to(weight.dtype)
        if not ctx.needs_input_grad[0]:
            return None, of_weight, None, None
        grad = grad * weight
        along = (grad * normed).mean(-1, keepdim=True)
        return grad.sub_(normed.mul_(along)).mul_(scale).to(x.dtype), of_weight, None, None


class GatedSiLU(torch.autograd.Function):
    """gate, up [..., F] -> silu(gate) * up."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        ctx.save_for_backward(gate, up)
        return nn.functional.silu(gate) * up

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        gate, up = ctx.saved_tensors
        of_up = nn.functional.silu(gate).mul_(grad)
        return torch.ops.aten.silu_backward(grad * up, gate), of_up
