"""Sampling settings of a step, and the functions that every sampler shares.

Covers: the number of rollouts, temperature, the two ways of truncating the vocabulary (`top_p`, which the trainer does
not follow, and `prune_log_ratio`, which it does), the random numbers of a row. Leaves out: the samplers themselves.

A token's random number follows from its group's seed, the row's index in the group and the token's position alone, so
that a rollout depends neither on the rows that are generated beside it nor on where it was interrupted.
"""

import hashlib
import math
from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from annotated_types import Ge, Gt, Le, Lt
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.settings import RecipeSettings

BLOCK = 128  #: tokens of the vocabulary whose probabilities `draw` sums first
ROWS = 8  #: that it takes at once on a CPU


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
    stop: tuple[str, ...] = ()  #: texts that end a response, which has them; see `stop_strings`
    #: Rows generated in one batch, on a GPU fewer where their keys and values do not fit; changes no probability.
    rows_at_once: Annotated[int, Ge(1)] = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        if not all(self.stop):
            raise BadInputError("an empty text would end every response", field="sampling.stop")


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


def derived_seed(*parts: object) -> int:
    """56 bits that follow from the parts' texts, the same in every process."""
    return int.from_bytes(hashlib.sha256("/".join(map(str, parts)).encode()).digest()[:7], "big")


def group_seeds(seed: int | Sequence[int], groups: int) -> list[int]:
    """A seed for each group: those given, or one each that follows from one number."""
    seeds = [derived_seed(seed, number) for number in range(groups)] if isinstance(seed, int) else list(seed)
    if len(seeds) != groups:
        raise ValueError(f"{len(seeds)} seeds for {groups} groups")
    return seeds


def row_uniforms(seed: int, index: int, start: int, end: int) -> Tensor:
    """[end - start] float32 in [0, 1): the random numbers of the tokens at these positions, of the row at `index` of
    the group with this seed."""
    generator = torch.Generator().manual_seed(derived_seed(seed, index))
    return torch.rand(end, generator=generator)[start:]


def group_uniforms(seeds: Sequence[int], group_size: int, limit: int) -> Tensor:
    """[groups * group_size, limit]: `row_uniforms` of whole groups."""
    return torch.stack([row_uniforms(seed, index, 0, limit) for seed in seeds for index in range(group_size)])


def draw(logits: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """Sample one token per row of logits [N,V] (float32, -inf = never), and its log-prob, both [N].

    By the inverse of the distribution function at `uniform` [N]: of blocks of the vocabulary, then inside one. The sums
    of blocks are of float32, what is over them of double precision; a token below about 1e-7 may be drawn a little too
    often or too rarely. On a CPU a few rows at a time, whose exponentials stay in its caches.
    """
    at_once = ROWS if logits.device.type == "cpu" else max(1, len(logits))
    weights = logits.new_zeros(min(at_once, len(logits)), -(-logits.shape[1] // BLOCK) * BLOCK)
    parts = zip(torch.split(logits, at_once), torch.split(uniform, at_once), strict=True)
    drawn = [_drawn(*part, weights[: len(part[0])]) for part in parts]
    choice, logp = (torch.cat(part) for part in zip(*drawn, strict=True))
    return choice, logp


def _drawn(logits: Tensor, uniform: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """`weights` [N, at least V], 0 beyond V, is overwritten."""
    largest = logits.amax(-1, keepdim=True)
    torch.sub(logits, largest, out=weights[:, : logits.shape[1]]).exp_()
    blocks = weights.view(len(logits), -1, BLOCK)
    reached = blocks.sum(-1).double().cumsum(-1)
    point = uniform[:, None] * reached[:, -1:]  # below it: a float32 below 1 is far enough from it
    block = torch.searchsorted(reached, point, right=True)  # the first whose sum is above: never one of probability 0
    before = torch.where(block > 0, reached.gather(1, (block - 1).clamp(min=0)), 0.0)
    inside = blocks.gather(1, block[:, :, None].expand(-1, -1, BLOCK)).squeeze(1).double().cumsum(-1)
    below = torch.nextafter(inside[:, -1:], torch.zeros_like(before))  # its sum in float32 may have been larger
    choice = block * BLOCK + torch.searchsorted(inside, torch.minimum(point - before, below), right=True)
    logp = logits.gather(1, choice) - largest - reached[:, -1:].log()
    return choice.squeeze(1), logp.squeeze(1).to(logits.dtype)
