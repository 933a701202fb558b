"""Attention of one group of sequences that share a prefix, with its gradient, as plain matrix products for a CPU.

Covers: softmax(q k^T scale) v where prefix positions see the prefix causally, and a branch sees the whole prefix and
its own tokens causally: one span of positions after the other, each with exactly the keys that it sees. Scores are
computed in the format of q and k (float32 under autocast, since rotary positions leave them so), products with
probabilities in `low`. On CPUs this backward pass takes about half to a quarter of the fused kernel's time
(docs/reward-models/speed.md). Leaves out: long groups, whose probabilities would not fit in memory
(`packed_attention` sends them to the fused kernel), dropout, sliding windows.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor


class QuerySpan(NamedTuple):
    """`length` positions from `start`: the prefix or a branch. They see the first `seen` positions too."""

    start: int
    length: int
    seen: int

    @property
    def positions(self) -> slice:
        return slice(self.start, self.start + self.length)


class GroupAttention(torch.autograd.Function):
    """q [H, G, D], k and v [K, G, D] with K dividing H -> [H, G, D] in `low`. G: prefix, then branches in turn."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        prefix: int,
        branches: tuple[int, ...],
        scale: float,
        low: torch.dtype,
    ) -> Tensor:
        kinds = k.shape[0]
        out = torch.empty_like(q, dtype=low)
        values = v.to(low)
        probabilities = []
        for part in query_spans(prefix, branches):
            scores = (_rows(q, part, kinds) * scale) @ _seen(k, part).mT
            by_head = scores.view(kinds, -1, part.length, part.seen + part.length)
            by_head[..., part.seen :] += _later(part.length, scores.dtype, scores.device)
            p = torch.softmax(scores, -1).to(low)
            out[:, part.positions] = (p @ _seen(values, part)).view_as(out[:, part.positions])
            probabilities.append(p)
        ctx.save_for_backward(q.to(low), k.to(low), values, *probabilities)
        ctx.group = (prefix, branches, scale, low)
        ctx.formats = (q.dtype, k.dtype, v.dtype)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, *probabilities = ctx.saved_tensors
        prefix, branches, scale, low = ctx.group
        kinds, formats = k.shape[0], ctx.formats
        dq = torch.empty_like(q, dtype=formats[0])
        dk, dv = torch.zeros_like(k, dtype=torch.float32), torch.zeros_like(v, dtype=torch.float32)
        grad = grad.to(low)
        for part, p in zip(query_spans(prefix, branches), probabilities, strict=True):
            g = _rows(grad, part, kinds)
            # (dp - sum(dp * p)) * p over the keys, in one pass
            ds = torch._softmax_backward_data(g @ _seen(v, part).mT, p, -1, low)
            dq[:, part.positions] = (ds @ _seen(k, part)).view_as(dq[:, part.positions])
            _add(dk, ds.mT @ _rows(q, part, kinds), part)
            _add(dv, p.mT @ g, part)
        return dq.mul_(scale), dk.mul_(scale).to(formats[1]), dv.to(formats[2]), None, None, None, None


def query_spans(prefix: int, branches: tuple[int, ...]) -> Iterator[QuerySpan]:
    """The prefix, where there is one, then the branches."""
    if prefix:
        yield QuerySpan(0, prefix, 0)
    start = prefix
    for length in branches:
        yield QuerySpan(start, length, prefix)
        start += length


def _rows(t: Tensor, part: QuerySpan, kinds: int) -> Tensor:
    """The span's rows of all query heads [H, G, D] beside the key head that they read: [K, H/K * n, D]."""
    return t[:, part.positions].reshape(kinds, -1, t.shape[-1])


def _seen(t: Tensor, part: QuerySpan) -> Tensor:
    """Keys or values [K, seen + n, D] that the span sees."""
    return torch.cat([t[:, : part.seen], t[:, part.positions]], 1) if part.seen else t[:, part.positions]


def _add(total: Tensor, gradient: Tensor, part: QuerySpan) -> None:
    """Add the gradient of what `_seen` gave."""
    if part.seen:
        total[:, : part.seen] += gradient[:, : part.seen]
    total[:, part.positions] += gradient[:, part.seen :]


def _later(n: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """[n, n]: -inf above the diagonal, 0 elsewhere."""
    return _triangle(-(-n // 256) * 256, dtype, device)[:n, :n]


@lru_cache(maxsize=16)
def _triangle(size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.full((size, size), -torch.inf, dtype=dtype, device=device).triu_(1)
