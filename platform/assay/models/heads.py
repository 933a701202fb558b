"""What training and serving compute from hidden states alike: rewards of a linear head, logits of the language head.

Covers: heads in float32 (bfloat16 rewards tie where they should not), what a model does to its logits afterwards (soft
cap, scale), Yes minus No, position ids of padded rows. Leaves out: log-probabilities of given tokens (`token_losses`),
the backbone's pass (`assay.models.attention.packing`), which tokens the answers are
(`assay.models.chat.principle_renderer`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from assay.errors import BadInputError
from assay.models.devices import float32_products, to_device
from assay.models.vision import without_image_places

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

    exact_already = pooled.device.type == "cpu" and pooled.dtype == head.weight.dtype == torch.float32
    if exact_already and not torch.is_autocast_enabled("cpu"):  # two blocks take longer than the product of a few rows
        return F.linear(pooled, head.weight, head.bias)
    exact = float32_products(pooled.device, "highest")
    with torch.autocast(device_type=pooled.device.type, enabled=False), exact:
        bias = head.bias.float() if head.bias is not None else None
        return F.linear(pooled.float(), head.weight.float(), bias)


def answer_logits(model: Any, hidden: torch.Tensor, tokens: Sequence[int] | None = None) -> torch.Tensor:
    """Float32 logits [N, len(tokens)] of a causal language model at hidden states [N, H]; [N, V] for `tokens` None.

    Only the named rows of the head are multiplied. Gradients flow; autocast does not reach in.
    """
    import torch
    import torch.nn.functional as F

    head = model.get_output_embeddings()
    if head is None:
        raise BadInputError(f"{type(model).__name__} has no language head")
    exact = float32_products(hidden.device, "highest")
    with torch.autocast(device_type=hidden.device.type, enabled=False), exact:
        weight, bias = head.weight, getattr(head, "bias", None)
        if tokens is not None:
            rows = to_device(torch.tensor(list(tokens)), weight.device)
            weight, bias = weight[rows], bias[rows] if bias is not None else None
        logits = F.linear(hidden.float(), weight.float(), bias.float() if bias is not None else None)
        logits = _as_the_model_would(logits, model.config)
        return logits if tokens is not None else without_image_places(logits, model.config)


def log_odds(model: Any, hidden: torch.Tensor, *, yes: int, no: int) -> torch.Tensor:
    """Rewards [N] = log P(yes) - log P(no) = logit(yes) - logit(no), in float32: the normaliser cancels."""
    logits = answer_logits(model, hidden, (yes, no))
    return logits[:, 0] - logits[:, 1]


def _as_the_model_would(logits: torch.Tensor, config: Any) -> torch.Tensor:
    """Gemma 2 caps its logits, Granite divides them, Cohere multiplies them: part of the model, so of its reward."""
    text = getattr(config, "text_config", None) or config
    if (scale := getattr(text, "logit_scale", None)) is not None:
        logits = logits * scale
    if (divisor := getattr(text, "logits_scaling", None)) is not None:
        logits = logits / divisor
    if (cap := getattr(text, "final_logit_softcapping", None)) is not None:
        logits = (logits / cap).tanh() * cap
    return logits
