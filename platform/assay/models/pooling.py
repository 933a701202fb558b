"""The one place where a scalar reward model's output becomes a reward: training and serving both call it.

Covers: the backbone's hidden state at each row's last real token, found by the attention mask alone (so neither
padding side nor the pad token's id can change a reward), and the head applied to that one position in float32
(bfloat16 rewards tie where they should not). Leaves out: batching, rendering.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from assay.errors import BadInputError

if TYPE_CHECKING:
    import torch

HEAD = "score"


def last_positions(attention_mask: torch.Tensor) -> torch.Tensor:
    """Index [B] of the last 1 in each row of the mask [B, L], for padding on either side."""
    length = attention_mask.shape[1]
    return length - 1 - attention_mask.flip(1).argmax(dim=1)


def position_ids(attention_mask: torch.Tensor) -> torch.Tensor:
    """Positions [B, L] that count real tokens only, so that left and right padding give the same ones."""
    return (attention_mask.long().cumsum(dim=1) - 1).clamp(min=0)


def pooled_rewards(model: Any, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
    """Rewards [B] in float32 of token ids [B, L] with their mask [B, L], under a `*ForSequenceClassification`.

    Only the backbone runs over all positions; the head sees one position a row. Gradients flow. Raises
    BadInputError for a model whose head is not the linear `score` of the stock decoder classifiers.
    """
    head = getattr(model, HEAD, None)
    if head is None:
        raise _no_head(model)
    return apply_head(head, pooled_hidden(model, input_ids, attention_mask))


def pooled_hidden(model: Any, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
    """What the head reads: the backbone's hidden state [B, H] at each row's last real token."""
    import torch

    backbone = getattr(model, model.base_model_prefix, None)
    if backbone is None:
        raise _no_head(model)
    options = {"input_ids": input_ids, "attention_mask": attention_mask, "use_cache": False}
    if "position_ids" in inspect.signature(backbone.forward).parameters:
        options["position_ids"] = position_ids(attention_mask)
    hidden = backbone(**options).last_hidden_state
    pooled: torch.Tensor = hidden[torch.arange(hidden.shape[0], device=hidden.device), last_positions(attention_mask)]
    return pooled


def _no_head(model: Any) -> BadInputError:
    return BadInputError(f"{type(model).__name__} has no '{HEAD}' head on a decoder; it cannot be a reward model here")


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
