"""Batched text generation by transformers; samples do not depend on the batch.

Covers: left-padded prompts, one cache that is computed once per prompt and copied to its samples, rows that leave the
batch when they end, temperature and top-p, one stream of random numbers per row. Leaves out: prompts and how answers
are read (`local`), constrained decoding.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.models.heads import position_ids

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Sampled:
    """Generated token ids, the end token left out. `ended`: the model ended its turn itself."""

    ids: tuple[int, ...]
    ended: bool


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are sampled. `temperature` 0: the most likely one. `max_seconds`: the answer is cut off after them."""

    max_new_tokens: int
    temperature: float
    top_p: float
    max_seconds: float = math.inf


def stream_seed(ids: Sequence[int], sample: int, seed: int) -> int:
    """The seed of one row's random numbers, from its prompt, the sample's number and the caller's seed."""
    text = f"{seed}/{sample}/" + ",".join(map(str, ids))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")


def generate(
    model: Any,
    prompts: Sequence[Sequence[int]],
    sampling: SamplingParams,
    *,
    samples: int,
    ends: Sequence[int],
    seed: int,
) -> list[list[Sampled]]:
    """`samples` continuations of each prompt, in one batch."""
    import torch
    from transformers import DynamicCache

    device, width = model.device, sampling.max_new_tokens
    deadline = time.monotonic() + sampling.max_seconds
    ids, mask = pad_left(prompts, int(model.config.pad_token_id or 0))
    ids, mask = ids.to(device), mask.to(device)
    rows = len(prompts) * samples
    tokens = torch.zeros((rows, width), dtype=torch.long, device=device)
    lengths = [width] * rows
    ended = [False] * rows
    noise = _noise(prompts, samples, width, seed).to(device) if sampling.temperature > 0 else None
    stops = torch.tensor(sorted(ends), device=device)
    cache = DynamicCache(config=model.config)
    with torch.inference_mode():
        logits = _step(model, ids, mask, position_ids(mask), cache)
        if samples > 1:
            cache.batch_repeat_interleave(samples)
            logits, mask = logits.repeat_interleave(samples, 0), mask.repeat_interleave(samples, 0)
        active = torch.arange(rows, device=device)
        for step in range(width):
            choice = _choose(logits, sampling, None if noise is None else noise[active, step])
            tokens[active, step] = choice
            going = ~torch.isin(choice, stops)
            for row in active[~going].tolist():
                lengths[row], ended[row] = step, True
            if step == width - 1 or not going.any() or time.monotonic() > deadline:
                for row in active[going].tolist():
                    lengths[row] = step + 1
                break
            if not going.all():
                stay = going.nonzero().squeeze(1)
                cache.batch_select_indices(stay)
                active, choice, mask = active[stay], choice[stay], mask[stay]
            mask = torch.cat([mask, mask.new_ones(len(mask), 1)], 1)
            logits = _step(model, choice[:, None], mask, position_ids(mask)[:, -1:], cache)
    generated = [
        Sampled(tuple(row[:length]), end) for row, length, end in zip(tokens.tolist(), lengths, ended, strict=True)
    ]
    return [generated[i : i + samples] for i in range(0, rows, samples)]


def next_logp(model: Any, rows: Sequence[Sequence[int]]) -> torch.Tensor:
    """[rows, V] float32 log-probs of the token after each row, at temperature 1."""
    import torch

    ids, mask = pad_left(rows, int(model.config.pad_token_id or 0))
    ids, mask = ids.to(model.device), mask.to(model.device)
    with torch.inference_mode():
        answer = model(
            input_ids=ids, attention_mask=mask, position_ids=position_ids(mask), use_cache=False, logits_to_keep=1
        )
    logp: torch.Tensor = answer.logits[:, -1].float().log_softmax(-1)
    return logp


def pad_left(rows: Sequence[Sequence[int]], pad: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Token lists as [B, L] ids and their attention mask, both int64."""
    import torch

    width = max(len(row) for row in rows)
    ids = torch.full((len(rows), width), pad)
    mask = torch.zeros((len(rows), width), dtype=torch.long)
    for number, row in enumerate(rows):
        ids[number, width - len(row) :] = torch.tensor(row)
        mask[number, width - len(row) :] = 1
    return ids, mask


def _noise(prompts: Sequence[Sequence[int]], samples: int, width: int, seed: int) -> torch.Tensor:
    """[rows, width] uniform numbers, one stream per row."""
    import torch

    streams = []
    for prompt in prompts:
        for sample in range(samples):
            generator = torch.Generator().manual_seed(stream_seed(prompt, sample, seed))
            streams.append(torch.rand(width, generator=generator, dtype=torch.float64))
    return torch.stack(streams)


def _choose(logits: torch.Tensor, sampling: SamplingParams, noise: torch.Tensor | None) -> torch.Tensor:
    """[rows] token ids from [rows, V] logits, by the inverse of the cumulative distribution; most likely first, so that
    top-p is the same cut."""
    if noise is None:
        return logits.argmax(-1)
    probability, order = (logits.double() / sampling.temperature).softmax(-1).sort(dim=-1, descending=True, stable=True)
    cumulative = probability.cumsum(-1)
    if sampling.top_p < 1:
        nucleus = probability.masked_fill(cumulative - probability >= sampling.top_p, 0.0)
        cumulative = nucleus.cumsum(-1)
    target = noise[:, None] * cumulative[:, -1:]
    index = (cumulative <= target).sum(-1, keepdim=True).clamp(max=logits.shape[-1] - 1)
    return order.gather(-1, index).squeeze(-1)


def _step(model: Any, ids: torch.Tensor, mask: torch.Tensor, position: torch.Tensor, cache: Any) -> torch.Tensor:
    """[rows, V] float32 logits after the last column."""
    answer = model(
        input_ids=ids,
        attention_mask=mask,
        position_ids=position,
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,
    )
    logits: torch.Tensor = answer.logits[:, -1].float()
    return logits
