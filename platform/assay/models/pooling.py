"""The parts of a forward pass that training and serving must do alike: a reward from a hidden state, and positions.

Covers: the head in float32 (bfloat16 rewards tie where they should not), position ids of padded rows. Leaves out:
which hidden state is read (`packing.py`), batching, rendering.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

HEAD = "score"


def position_ids(attention_mask: torch.Tensor) -> torch.Tensor:
    """Positions [B, L] that count real tokens only, so that left and right padding give the same ones."""
    return (attention_mask.long().cumsum(dim=1) - 1).clamp(min=0)


def apply_head(head: Any, pooled: torch.Tensor) -> torch.Tensor:
    """Rewards [...] of hidden states [..., H] under a linear head of one output, in float32 even inside autocast."""
    return head_outputs(head, pooled)[..., 0]


def head_outputs(head: Any, pooled: torch.Tensor) -> torch.Tensor:
    """All outputs [..., K] of a linear head on hidden states [..., H], in float32 even inside autocast."""
    import torch
    import torch.nn.functional as F

    with torch.autocast(device_type=pooled.device.type, enabled=False):
        bias = head.bias.float() if head.bias is not None else None
        return F.linear(pooled.float(), head.weight.float(), bias)
