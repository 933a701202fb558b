"""Log-probabilities of given tokens without the logits of all of them in memory at once.

Covers: a vocabulary head over chunks of tokens, each computed again in the backward pass; log-probabilities whose
gradient takes one tensor of the logits' size. Leaves out: heads (`heads`), what is summed over tokens (losses).

Liger's fused cross-entropy computes gradients in the forward pass instead of computing chunks again, which needs each
token's share of the loss beforehand; of preference and policy losses it is known only after the last token.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

Result = TypeVar("Result")
CHUNK_TOKENS = 512  #: of logits in memory at once


def in_chunks(compute: Callable[..., Result], *tensors: Tensor, size: int = CHUNK_TOKENS) -> list[Result]:
    """`compute` of each `size` rows of the tensors [N, ...]. What all chunks but the last compute is computed again in
    the backward pass, which begins with the last."""
    chunks = list(zip(*(torch.split(each, size) for each in tensors), strict=True))
    again = len(chunks) - 1 if torch.is_grad_enabled() else 0
    return [
        checkpoint(compute, *chunk, use_reentrant=False) if number < again else compute(*chunk)
        for number, chunk in enumerate(chunks)
    ]


class _LogProbs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        normaliser = logits.logsumexp(-1)
        ctx.save_for_backward(logits, targets, normaliser)
        return logits.gather(-1, targets[:, None])[:, 0] - normaliser, normaliser

    @staticmethod
    def backward(ctx: Any, *by: Tensor) -> tuple[Tensor, None]:
        logits, targets, normaliser = ctx.saved_tensors
        by_logp, by_normaliser = by
        gradient = (logits - normaliser[:, None]).exp_().mul_((by_normaliser - by_logp)[:, None])
        return gradient.scatter_add_(-1, targets[:, None], by_logp[:, None]), None


def log_probs(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """log p [N] of target tokens [N] under float32 logits [N, V], and the normaliser, log sum exp [N]."""
    both: tuple[Tensor, Tensor] = _LogProbs.apply(logits, targets)  # type: ignore[no-untyped-call]
    return both


def token_losses(head: Callable[[Tensor], Tensor], states: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Cross-entropy [N] float32 of target tokens [N] from hidden states [N, H], and whether each is the likeliest one.
    `head`: states [n, H] to logits [n, V]."""

    def of_chunk(states: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        logits = head(states).float()
        seen = logits.detach()
        return -log_probs(logits, targets)[0], seen.gather(-1, targets[:, None])[:, 0] == seen.amax(-1)

    losses, likeliest = zip(*in_chunks(of_chunk, states, targets), strict=True)
    return torch.cat(losses), torch.cat(likeliest)
