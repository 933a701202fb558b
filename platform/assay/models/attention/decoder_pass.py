"""The pass of a Llama-like decoder over a packed row, in a third of the calls that transformers makes.

A pass over a short text takes as long as Python needs to start its operations: transformers' own layers start some
sixty each. Covers: decoders on a CPU, float32 but for packed products, with Llama's layers (root-mean-square norms
before attention and MLP, rotary positions), whose hidden states it gives bit by bit or at least to rounding, which is
tried out first. Leaves out: gradients, other formats and devices, all other layers: those take transformers' pass
(`packing`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import torch
import torch.nn.functional as F
from torch import nn

from assay.models.attention.packed_attention import Layout, Span, attend_ends, packed_attention
from assay.models.attention.packing import PACKED_PASS
from assay.models.attention.prepacked import number_format

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Operation: TypeAlias = Callable[[torch.Tensor], torch.Tensor]

LAYERS = frozenset({"LlamaDecoderLayer", "Qwen2DecoderLayer", "MistralDecoderLayer"})
#: Of hidden states, relative to the largest, by the number format of products: in bfloat16 one that is rounded the
#: other way is 0.004 off.
TOLERANCE = {"float32": 1e-5, "bfloat16": 0.02}
LEAST_POSITIONS = 2048  #: of the table of rotations, which grows with the texts


@dataclass(frozen=True, eq=False)
class _Layer:
    """A layer's operations, looked up once: a module takes as long to find one as a short text takes to compute."""

    attention: Any
    before_attention: Operation
    query: Operation
    key: Operation
    value: Operation
    output: Operation
    before_mlp: Operation
    gate: Operation
    activation: Operation
    up: Operation
    down: Operation

    @classmethod
    def of(cls, layer: Any) -> Self:
        attention, mlp = layer.self_attn, layer.mlp
        return cls(
            attention,
            before_attention=_norm_of(layer.input_layernorm),
            query=_product_of(attention.q_proj),
            key=_product_of(attention.k_proj),
            value=_product_of(attention.v_proj),
            output=_product_of(attention.o_proj),
            before_mlp=_norm_of(layer.post_attention_layernorm),
            gate=_product_of(mlp.gate_proj),
            activation=mlp.act_fn.forward,
            up=_product_of(mlp.up_proj),
            down=_product_of(mlp.down_proj),
        )


class DecoderPass:
    """`network`: the decoder without its head; its weights are used, not copied."""

    def __init__(self, network: Any) -> None:
        self._network = network
        self._layers = [_Layer.of(layer) for layer in network.layers]
        self._norm = _norm_of(network.norm)
        self._turns: torch.Tensor | None = None  #: [positions, 2 x head size], cosines and sines, where they are fixed

    @classmethod
    def attach(cls, network: "PreTrainedModel") -> None:
        """Give the network this pass, where it is one that it can run; `packing.packed_pass` finds it."""
        layers: Any = getattr(network, "layers", ())
        if network.device.type != "cpu" or network.dtype != torch.float32 or not layers:
            return
        if not all(type(layer).__name__ in LAYERS and not layer._forward_hooks for layer in layers):
            return
        small = cls(network)
        if small._agrees():
            setattr(network, PACKED_PASS, small)

    def __call__(
        self, ids: torch.Tensor, positions: torch.Tensor, layout: Layout, *, ends: bool = False
    ) -> torch.Tensor:
        """Last hidden states [1, N, H] of token ids [1, N] at these positions [1, N]. `ends`: only those [1, branches,
        H] at the last token of each branch, where alone the last layer then has queries and an MLP."""
        states = self._network.embed_tokens(ids)
        cos, sin = self._rotation(states, positions)
        last = self._layers[-1] if ends else None
        for layer in self._layers:
            size = layer.attention.head_dim
            normed = layer.before_attention(states)
            key, value = _rotated(_heads(layer.key(normed), size), cos, sin), _heads(layer.value(normed), size)
            if layer is last:
                rows = torch.tensor(layout.ends)
                states, normed, cos, sin = states[:, rows], normed[:, rows], cos[:, :, rows], sin[:, :, rows]
            query = _rotated(_heads(layer.query(normed), size), cos, sin)
            scaling = layer.attention.scaling
            if layer is last:
                mixed = attend_ends(query, key, value, layout, scaling)
            else:
                mixed, _ = packed_attention(
                    layer.attention, query, key, value, None, scaling=scaling, packed_layout=layout
                )
            states = states + layer.output(mixed.flatten(2))
            normed = layer.before_mlp(states)
            states = states + layer.down(layer.activation(layer.gate(normed)) * layer.up(normed))
        return self._norm(states)

    def _rotation(self, states: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines, and sines of which the first half is negated, [1, 1, N, head size]; from a table but for frequencies
        that depend on the text's length."""
        rotary = self._network.rotary_emb
        if "dynamic" in rotary.rope_type or rotary.rope_type == "longrope":
            cos, sin = rotary(states, position_ids=positions)
            return cos[:, None], _half_negated(sin)[:, None]
        most = int(positions.max()) + 1
        if self._turns is None or len(self._turns) < most:
            cos, sin = rotary(states, position_ids=torch.arange(max(LEAST_POSITIONS, most))[None])
            self._turns = torch.cat((cos[0], _half_negated(sin[0])), -1)
        turns = self._turns.index_select(0, positions[0])[None, None]
        cos, sin = turns.chunk(2, -1)
        return cos, sin

    @torch.inference_mode()
    def _agrees(self) -> bool:
        """Whether the hidden states of two short sequences that share a beginning are those of transformers' pass."""
        rows = torch.tensor([[0, 1, 2, 3, 4], [0, 1, 2, 5, 6]]) % self._network.config.vocab_size
        expected = self._network(input_ids=rows, use_cache=False).last_hidden_state
        packed = torch.cat([rows[0], rows[1, 3:]])[None]
        states = self(packed, torch.tensor([[0, 1, 2, 3, 4, 3, 4]]), Layout([Span(0, 3, (2, 2))]))[0]
        ends = self(packed, torch.tensor([[0, 1, 2, 3, 4, 3, 4]]), Layout([Span(0, 3, (2, 2))]), ends=True)[0]
        rows = torch.stack([states[:5], torch.cat([states[:3], states[5:]])])
        gap = torch.cat([rows - expected, (ends - expected[:, -1])[:, None].expand(-1, 5, -1)]).abs().max()
        return bool(gap <= TOLERANCE[number_format(self._network)] * expected.abs().max())


def _norm_of(norm: Any) -> Operation:
    return partial(F.rms_norm, normalized_shape=norm.weight.shape, weight=norm.weight, eps=norm.variance_epsilon)


def _product_of(layer: Any) -> Operation:
    return partial(F.linear, weight=layer.weight, bias=layer.bias) if type(layer) is nn.Linear else layer.forward


def _heads(states: torch.Tensor, size: int) -> torch.Tensor:
    """[1, heads, N, size]."""
    return states.view(*states.shape[:2], -1, size).transpose(1, 2)


def _half_negated(sin: torch.Tensor) -> torch.Tensor:
    first, second = sin.chunk(2, -1)
    return torch.cat((-first, second), -1)


def _rotated(heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary positions: the halves of each head change places. `sin`: see `_rotation`."""
    first, second = heads.chunk(2, -1)
    return heads * cos + torch.cat((second, first), -1) * sin
