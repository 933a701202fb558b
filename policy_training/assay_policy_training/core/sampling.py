"""Sampling settings of a step, and the functions that every sampler shares.

Covers: the number of rollouts, temperature, the two ways of truncating the vocabulary (`top_p`, which the trainer does
not follow, and `prune_log_ratio`, which it does). Leaves out: the samplers themselves.
"""

import math
from typing import Annotated, Literal

import torch
from annotated_types import Ge, Gt, Le, Lt
from torch import Tensor

from assay_policy_training.core.settings import RecipeSettings


class Sampling(RecipeSettings, section="sampling"):
    """One step's rollouts. `prune_log_ratio`: see `prune`; None = the whole vocabulary."""

    prompts_per_step: Annotated[int, Ge(1)] = 8
    group_size: Annotated[int, Ge(1)] = 8
    max_new_tokens: Annotated[int, Ge(1)] = 128
    max_prompt_tokens: Annotated[int, Ge(1)] = 512
    long_prompts: Literal["filter", "refuse"] = "filter"  #: what becomes of those with more tokens; none is cut
    temperature: Annotated[float, Gt(0)] = 1.0
    top_p: Annotated[float, Gt(0), Le(1)] = 1.0
    prune_log_ratio: Annotated[float | None, Lt(0)] = (
        None  #: e.g. -13; the trainer's log-probs are of the same cut distribution
    )
    rows_at_once: Annotated[int, Ge(1)] = 64  #: rows generated in one batch; bounds memory, changes no probability


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
