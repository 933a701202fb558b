"""Log-probabilities of given tokens without the logits of all of them in memory at once.

Covers: a vocabulary head over chunks of tokens, of which the last keep their logits and the others are computed again
in the backward pass; log-probabilities, normalisers and entropies that read logits in the format of the products, a
block of rows at a time, so that what is computed of them in float32 stays in a processor's caches. Leaves out: heads
(`heads`), what is summed over tokens (losses).

Liger's fused cross-entropy computes gradients in the forward pass instead of computing chunks again, which needs each
token's share of the loss beforehand; of preference and policy losses it is known only after the last token.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from assay.models.config_only import active

Result = TypeVar("Result")
CHUNK_TOKENS = 512  #: of logits that are computed at once
KEPT_CHUNKS = 2  #: whose logits stay for the backward pass: all of a forward pass on a CPU
BLOCK = 1 << 20  #: logits that are float32 at once on a CPU: 4 MB
LARGE_BLOCK = 1 << 24  #: where calls and not caches count: on other devices, and of a training that is planned


def in_chunks(
    compute: Callable[..., Result], *tensors: Tensor, size: int = CHUNK_TOKENS, kept: int = 1
) -> list[Result]:
    """`compute` of each `size` rows of the tensors [N, ...]. What all chunks but the last `kept` compute is computed
    again in the backward pass, which begins with the last."""
    chunks = list(zip(*(torch.split(each, size) for each in tensors), strict=True))
    again = len(chunks) - kept if torch.is_grad_enabled() else 0
    return [
        checkpoint(compute, *chunk, use_reentrant=False) if number < again else compute(*chunk)
        for number, chunk in enumerate(chunks)
    ]


class TokenStatistics(NamedTuple):
    """Of target tokens [N] under logits [N, V]; float32, and differentiable but for entropy and top."""

    logp: Tensor
    normaliser: Tensor  #: log sum exp
    entropy: Tensor  #: nats
    top: Tensor  #: the largest logit


class _Statistics(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
        totals, entropies, tops = [], [], []
        for part, wide, powers in _blocks(logits, 2):
            top = wide.copy_(part).amax(-1, keepdim=True)
            torch.exp(wide.sub_(top), out=powers)
            total = powers.sum(-1)
            entropies.append(total.log() - powers.mul_(wide).sum(-1) / total)
            totals.append(total)
            tops.append(top[:, 0])
        top = torch.cat(tops)
        normaliser = top + torch.cat(totals).log_()
        ctx.save_for_backward(logits, targets, normaliser)
        entropy = torch.cat(entropies)
        ctx.mark_non_differentiable(entropy, top)
        return logits.gather(-1, targets[:, None])[:, 0] - normaliser, normaliser, entropy, top

    @staticmethod
    def backward(ctx: Any, *by: Tensor) -> tuple[Tensor, None]:
        logits, targets, normaliser = ctx.saved_tensors
        by_logp, by_normaliser = by[0][:, None], by[1][:, None]
        gradient, size = torch.empty_like(logits), 0
        for part, wide in _blocks(logits, 1):
            rows = slice(size, size := size + len(part))
            wide.copy_(part).sub_(normaliser[rows, None]).exp_().mul_(by_normaliser[rows] - by_logp[rows])
            gradient[rows] = wide.scatter_add_(-1, targets[rows, None], by_logp[rows])
        return gradient, None


def _blocks(logits: Tensor, number: int) -> Iterator[tuple[Tensor, ...]]:
    """Rows [n, V] of `logits` at a time, each with `number` float32 tensors of their size: the same memory for all."""
    block = BLOCK if logits.device.type == "cpu" and active() is None else LARGE_BLOCK
    rows = min(max(1, block // logits.shape[-1]), len(logits))
    wide = torch.promote_types(logits.dtype, torch.float32)
    buffers = [logits.new_empty((rows, logits.shape[-1]), dtype=wide) for _ in range(number)]
    for part in torch.split(logits, rows):
        yield part, *(buffer[: len(part)] for buffer in buffers)


def token_statistics(logits: Tensor, targets: Tensor) -> TokenStatistics:
    """Statistics of target tokens [N] under logits [N, V] of any number format; the gradient takes one tensor of the
    logits' size and format."""
    return TokenStatistics(*_Statistics.apply(logits, targets))  # type: ignore[no-untyped-call]


def token_losses(head: Callable[[Tensor], Tensor], states: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Cross-entropy [N] float32 of target tokens [N] from hidden states [N, H], and whether each is the likeliest one.
    `head`: states [n, H] to logits [n, V]."""

    def of_chunk(states: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        logits = head(states)
        statistics = token_statistics(logits, targets)
        return -statistics.logp, logits.detach().gather(-1, targets[:, None])[:, 0] == statistics.top

    losses, likeliest = zip(*in_chunks(of_chunk, states, targets, kept=KEPT_CHUNKS), strict=True)
    return torch.cat(losses), torch.cat(likeliest)
