"""The pass of a Llama-like decoder over a packed row, in a third of the calls that transformers makes.

A pass over a short text takes as long as Python needs to start its operations: transformers' own layers start some
sixty each. Covers: decoders on a CPU, float32 but for packed products, with Llama's layers (root-mean-square norms
before attention and MLP, rotary positions), whose hidden states it gives bit by bit or at least to rounding, which is
tried out first. Leaves out: gradients, other formats and devices, all other layers: those take transformers' pass
(`packing`).
"""

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F

from assay.models.attention.packed_attention import Layout, Span, packed_attention
from assay.models.attention.packing import PACKED_PASS
from assay.models.attention.prepacked import number_format

if TYPE_CHECKING:
    from transformers import PreTrainedModel

LAYERS = frozenset({"LlamaDecoderLayer", "Qwen2DecoderLayer", "MistralDecoderLayer"})
#: Of hidden states, relative to the largest, by the number format of products: in bfloat16 one that is rounded the
#: other way is 0.004 off.
TOLERANCE = {"float32": 1e-5, "bfloat16": 0.02}


class DecoderPass:
    """`network`: the decoder without its head; its modules are called, not copied."""

    def __init__(self, network: Any) -> None:
        self._network = network

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

    def __call__(self, ids: torch.Tensor, positions: torch.Tensor, layout: Layout) -> torch.Tensor:
        """Last hidden states [1, N, H] of token ids [1, N] at these positions [1, N]."""
        network = self._network
        states = network.embed_tokens(ids)
        cos, sin = (part[:, None] for part in network.rotary_emb(states, position_ids=positions))
        for layer in network.layers:
            attention = layer.self_attn
            normed = _norm(layer.input_layernorm, states)
            heads = (*normed.shape[:2], -1, attention.head_dim)
            query, key, value = (
                project(normed).view(heads).transpose(1, 2)
                for project in (attention.q_proj, attention.k_proj, attention.v_proj)
            )
            query, key = _rotated(query, cos, sin), _rotated(key, cos, sin)
            mixed, _ = packed_attention(
                attention, query, key, value, None, scaling=attention.scaling, packed_layout=layout
            )
            states = states + attention.o_proj(mixed.flatten(2))
            states = states + layer.mlp(_norm(layer.post_attention_layernorm, states))
        return _norm(network.norm, states)

    @torch.inference_mode()
    def _agrees(self) -> bool:
        """Whether the hidden states of two short sequences that share a beginning are those of transformers' pass."""
        rows = torch.tensor([[0, 1, 2, 3, 4], [0, 1, 2, 5, 6]]) % self._network.config.vocab_size
        expected = self._network(input_ids=rows, use_cache=False).last_hidden_state
        packed = torch.cat([rows[0], rows[1, 3:]])[None]
        states = self(packed, torch.tensor([[0, 1, 2, 3, 4, 3, 4]]), Layout([Span(0, 3, (2, 2))]))[0]
        gap = (torch.stack([states[:5], torch.cat([states[:3], states[5:]])]) - expected).abs().max()
        return bool(gap <= TOLERANCE[number_format(self._network)] * expected.abs().max())


def _norm(norm: Any, states: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(states, norm.weight.shape, norm.weight, norm.variance_epsilon)


def _rotated(heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary positions: the second half of each head negated before the first."""
    first, second = heads.chunk(2, -1)
    return heads * cos + torch.cat((-second, first), -1) * sin
