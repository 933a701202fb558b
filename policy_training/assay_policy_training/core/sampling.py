"""Sampling settings of a step, and the functions that every sampler shares.

Covers: the number of rollouts, temperature, the two ways of truncating the vocabulary (`top_p`, which the trainer does
not follow, and `prune_log_ratio`, which it does). Leaves out: the samplers themselves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.errors import BadInputError


@dataclass(frozen=True)
class Sampling:
    """One step's rollouts. `prune_log_ratio`: see `prune`; None = the whole vocabulary."""

    prompts_per_step: int = 8
    group_size: int = 8
    max_new_tokens: int = 128
    max_prompt_tokens: int = 512  #: longer prompts lose their oldest turns
    temperature: float = 1.0
    top_p: float = 1.0
    prune_log_ratio: float | None = None  #: e.g. -13; the trainer's log-probs are of the same cut distribution
    rows_at_once: int = 64  #: rows generated in one batch; bounds memory, changes no probability

    def __post_init__(self) -> None:
        for name in ("prompts_per_step", "group_size", "max_new_tokens", "max_prompt_tokens", "rows_at_once"):
            if getattr(self, name) < 1:
                raise BadInputError(f"must be at least 1, not {getattr(self, name)}", field=f"sampling.{name}")
        if not self.temperature > 0:
            raise BadInputError(f"must be above 0, not {self.temperature}", field="sampling.temperature")
        if not 0 < self.top_p <= 1:
            raise BadInputError(f"must be in (0, 1], not {self.top_p}", field="sampling.top_p")
        if self.prune_log_ratio is not None and not self.prune_log_ratio < 0:
            raise BadInputError(f"must be below 0, not {self.prune_log_ratio}", field="sampling.prune_log_ratio")


def top_p_filter(logits: Tensor, top_p: float) -> Tensor:
    """Logits [N,V] with -inf outside the smallest set of most likely tokens whose probability reaches `top_p`."""
    if top_p >= 1:
        return logits
    ordered, order = logits.sort(dim=-1, descending=True)
    probability = ordered.softmax(-1)
    outside = probability.cumsum(-1) - probability >= top_p  # the most likely token always stays
    return logits.masked_fill(outside.scatter(-1, order, outside), -torch.inf)


def prune(logits: Tensor, log_ratio: float | None) -> Tensor:
    """Logits [N,V] with -inf where a token is less likely than exp(log_ratio) of the most likely one.

    Dynamic vocabulary pruning, arXiv 2512.23087 (idea from its abstract, -13 recalled): the sampler and the trainer
    both work on the softmax of what stays, which is `min_p` sampling in vLLM. The largest logit carries no gradient
    into the cut.
    """
    if log_ratio is None:
        return logits
    return logits.masked_fill(logits < logits.detach().amax(-1, keepdim=True) + log_ratio, -torch.inf)


def min_p(log_ratio: float | None) -> float:
    """`prune`'s bound as other samplers name it: a share of the most likely token's probability; 0 = none."""
    return 0.0 if log_ratio is None else math.exp(log_ratio)


def draw(logits: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Sample one token per row of logits [N,V] (float32, -inf = never), and its log-prob, both [N].

    By the inverse of the distribution function: one uniform number per row, where `torch.multinomial` draws V. Sums are
    kept in double precision on a CPU; a token below about 1e-7 may be drawn a little too often or too rarely.
    """
    largest = logits.amax(-1, keepdim=True)
    reached = (logits - largest).exp_().cumsum(-1)
    total = reached[:, -1:]
    point = torch.rand(len(logits), 1, generator=generator, device=logits.device) * total
    point = torch.minimum(point, torch.nextafter(total, torch.zeros_like(total)))  # the product may round up to it
    choice = torch.searchsorted(reached, point, right=True)  # the first whose sum is above: never one of probability 0
    logp = logits.gather(1, choice) - largest - total.log()
    return choice.squeeze(1), logp.squeeze(1)
