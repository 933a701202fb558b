"""The forward pass of preference pairs: both sides in one pass, their common beginning computed once.

Covers: two layouts with the same rewards (a test says so). `rows`: each side is a row of its own, padded. `shared`:
a pair is one row [common prefix, rest of chosen, rest of rejected] under a mask by which the two rests do not see
each other, with the positions that each would have alone; the prompt's share of the work is halved. Leaves out:
models for which a mask alone does not decide what a token sees (recurrent, sliding windows): they get `rows`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from assay.models.pooling import HEAD, apply_head, pooled_rewards
from assay_rm_training.pairs_dataset import EncodedPair

#: Decoders whose attention takes a mask of our own; others are trained in rows.
FULL_ATTENTION = frozenset({"llama", "qwen2", "qwen3", "mistral", "olmo2", "phi3", "gemma"})


class PairBatch(NamedTuple):
    """One forward pass of n pairs. Margins and weights are [n]; `tokens`: of both sides of all pairs, each in full;
    `computed`: positions that go through the model, padding included; `padding`: of these."""

    inputs: dict[str, torch.Tensor]
    ends: torch.Tensor | None  #: shared layout: last position of chosen and rejected, [n, 2]
    margin: torch.Tensor
    weight: torch.Tensor
    tokens: int
    computed: int
    padding: int


def can_share(model: Any) -> bool:
    """Whether the shared layout is right for this model."""
    config = model.config
    windows = getattr(config, "sliding_window", None) is not None and getattr(config, "use_sliding_window", True)
    kinds = set(getattr(config, "layer_types", None) or ["sliding_attention" if windows else "full_attention"])
    return (
        config.model_type in FULL_ATTENTION
        and kinds == {"full_attention"}
        and config._attn_implementation in ("sdpa", "eager")
    )


def pair_length(pair: EncodedPair, *, share: bool) -> int:
    """Positions of the pair's longest row, times its rows: what it costs in a batch of equals."""
    return pair.joint_length if share else 2 * max(len(pair.chosen), len(pair.rejected))


def collate(pairs: Sequence[EncodedPair], *, pad: int, share: bool, device: torch.device) -> PairBatch:
    """n pairs as one padded batch, on `device`."""
    tokens = sum(len(p.chosen) + len(p.rejected) for p in pairs)
    inputs, ends, used = _joint(pairs, pad) if share else _rows(pairs, pad)
    computed = inputs["input_ids"].numel()
    return PairBatch(
        {name: tensor.to(device) for name, tensor in inputs.items()},
        ends.to(device) if ends is not None else None,
        torch.tensor([p.margin for p in pairs], dtype=torch.float32, device=device),
        torch.tensor([p.weight for p in pairs], dtype=torch.float32, device=device),
        tokens,
        computed,
        computed - used,
    )


def pair_rewards(model: Any, batch: PairBatch) -> tuple[torch.Tensor, torch.Tensor]:
    """Float32 rewards of the chosen and of the rejected sides, [n] each."""
    if batch.ends is None:
        chosen, rejected = pooled_rewards(model, batch.inputs["input_ids"], batch.inputs["attention_mask"]).chunk(2)
        return chosen, rejected
    backbone, head = getattr(model, model.base_model_prefix), getattr(model, HEAD)
    allowed = batch.inputs["allowed"][:, None]  # [n, 1, L, L], True where the row's position may look
    if model.config._attn_implementation == "eager":
        dtype = (
            torch.get_autocast_dtype(allowed.device.type)
            if torch.is_autocast_enabled(allowed.device.type)
            else model.dtype
        )
        allowed = torch.zeros_like(allowed, dtype=dtype).masked_fill(~allowed, torch.finfo(dtype).min)
    hidden = backbone(
        input_ids=batch.inputs["input_ids"],
        attention_mask=allowed,
        position_ids=batch.inputs["position_ids"],
        use_cache=False,
    ).last_hidden_state
    rows = torch.arange(len(batch.ends), device=hidden.device)[:, None]
    pooled = hidden[rows, batch.ends]  # [n, 2, H]
    chosen, rejected = apply_head(head, pooled).unbind(1)
    return chosen, rejected


def _rows(pairs: Sequence[EncodedPair], pad: int) -> tuple[dict[str, torch.Tensor], None, int]:
    sides = [p.chosen for p in pairs] + [p.rejected for p in pairs]
    width = max(map(len, sides))
    input_ids = torch.full((len(sides), width), pad, dtype=torch.long)
    mask = torch.zeros((len(sides), width), dtype=torch.long)
    for number, side in enumerate(sides):
        input_ids[number, : len(side)] = torch.from_numpy(side)
        mask[number, : len(side)] = 1
    return {"input_ids": input_ids, "attention_mask": mask}, None, sum(map(len, sides))


def _joint(pairs: Sequence[EncodedPair], pad: int) -> tuple[dict[str, torch.Tensor], torch.Tensor, int]:
    width = max(p.joint_length for p in pairs)
    input_ids = torch.full((len(pairs), width), pad, dtype=torch.long)
    positions = torch.zeros((len(pairs), width), dtype=torch.long)
    allowed = torch.ones(width, width, dtype=torch.bool).tril().repeat(len(pairs), 1, 1)
    ends = torch.zeros((len(pairs), 2), dtype=torch.long)
    for number, pair in enumerate(pairs):
        first, common, end = len(pair.chosen), pair.common, pair.joint_length
        input_ids[number, :first] = torch.from_numpy(pair.chosen)
        input_ids[number, first:end] = torch.from_numpy(pair.rejected[common:])
        positions[number, :first] = torch.arange(first)
        positions[number, first:end] = torch.arange(common, len(pair.rejected))
        allowed[number, first:end, common:first] = False  # the rest of rejected does not see the rest of chosen
        ends[number, 0], ends[number, 1] = first - 1, end - 1
    used = sum(p.joint_length for p in pairs)
    return {"input_ids": input_ids, "position_ids": positions, "allowed": allowed}, ends, used
