"""Attention of one group of sequences that share a prefix, with its gradient, as plain matrix products for a CPU.

Covers: softmax(q k^T scale) v where prefix positions see the prefix causally, and a branch sees the whole prefix and
its own tokens causally; query heads in groups of one key head. The prefix meets all branches in one product. Scores
are computed in the format of q and k (float32 under autocast, since rotary positions leave them so), products with
probabilities in `low`. On CPUs this backward pass takes about half to a quarter of the fused kernel's time, which
computes every pair of positions, in blocks (docs/reward-models/speed.md). Leaves out: long groups, whose
probabilities would not fit in memory (`packed_attention` sends them to the fused kernel), dropout, sliding windows.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor


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
        heads, length, width = q.shape
        kinds = k.shape[0]
        out = q.new_empty(heads, length, width, dtype=low)
        values = v.to(low)
        kept = []
        if prefix:
            scores = _causal_scores(_rows(q, 0, prefix, kinds), k[:, :prefix], scale)
            p = torch.softmax(scores, -1).to(low)
            out[:, :prefix] = (p @ values[:, :prefix]).view(heads, prefix, width)
            kept.append(p)
        p = _branch_probabilities(q, k, prefix, branches, scale).to(low)
        out[:, prefix:] = _branch_values(p, values, prefix, branches).view(heads, length - prefix, width)
        ctx.save_for_backward(q, k, v, *kept, p)
        ctx.group = (prefix, branches, scale, low)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, *kept = ctx.saved_tensors
        prefix, branches, scale, low = ctx.group
        formats = q.dtype, k.dtype, v.dtype
        q, k, v, grad = q.to(low), k.to(low), v.to(low), grad.to(low)
        kinds = k.shape[0]
        dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        if prefix:
            p, g = kept[0], _rows(grad, 0, prefix, kinds)
            ds = _softmax_gradient(g @ v[:, :prefix].mT, p)
            dq[:, :prefix] = (ds @ k[:, :prefix]).view_as(dq[:, :prefix])
            dk[:, :prefix] = ds.mT @ _rows(q, 0, prefix, kinds)
            dv[:, :prefix] = p.mT @ g
        _branch_gradients(q, k, v, grad, kept[-1], prefix, branches, (dq, dk, dv))
        dq, dk = dq.to(formats[0]).mul_(scale), dk.to(formats[1]).mul_(scale)
        return dq, dk, dv.to(formats[2]), None, None, None, None


def _branch_probabilities(q: Tensor, k: Tensor, prefix: int, branches: tuple[int, ...], scale: float) -> Tensor:
    """[K, H/K, B, prefix + longest branch] of the B tokens of all branches; columns past a branch's end are 0."""
    kinds, total = k.shape[0], sum(branches)
    repeats = q.shape[0] // kinds
    scores = q.new_empty(kinds, repeats, total, prefix + max(branches))
    if len(branches) > 1:
        scores[..., prefix:] = -torch.inf
    if prefix:
        shared = _rows(q, prefix, total, kinds) @ k[:, :prefix].mT
        scores[..., :prefix] = shared.mul_(scale).view(kinds, repeats, total, prefix)
    for at, n in _starts(branches):
        own = _causal_scores(_rows(q, prefix + at, n, kinds), k[:, prefix + at : prefix + at + n], scale)
        scores[:, :, at : at + n, prefix : prefix + n] = own.view(kinds, repeats, n, n)
    return torch.softmax(scores, -1)


def _branch_values(p: Tensor, v: Tensor, prefix: int, branches: tuple[int, ...]) -> Tensor:
    """[K, H/K, B, D]: what the branches' tokens read, from the prefix and from themselves."""
    kinds, repeats, total, _ = p.shape
    out = v.new_empty(kinds, repeats, total, v.shape[-1])
    if prefix:
        out.copy_((p.view(kinds, repeats * total, -1)[..., :prefix] @ v[:, :prefix]).view_as(out))
    for at, n in _starts(branches):
        own = _own(p, at, n, prefix) @ v[:, prefix + at : prefix + at + n]
        part = out[:, :, at : at + n]
        part.copy_(own.view_as(part) + part if prefix else own.view_as(part))
    return out


def _branch_gradients(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    grad: Tensor,
    p: Tensor,
    prefix: int,
    branches: tuple[int, ...],
    into: tuple[Tensor, Tensor, Tensor],
) -> None:
    """Adds the branches' part to the prefix's gradients and writes their own, in `into` (dq, dk, dv), unscaled."""
    dq, dk, dv = into
    kinds, repeats, total, columns = p.shape
    g_all = _rows(grad, prefix, total, kinds)
    dp = torch.zeros_like(p)
    if prefix:
        dp[..., :prefix] = (g_all @ v[:, :prefix].mT).view(kinds, repeats, total, prefix)
    for at, n in _starts(branches):
        here = slice(prefix + at, prefix + at + n)
        own = _rows(grad, prefix + at, n, kinds) @ v[:, here].mT
        dp[:, :, at : at + n, prefix : prefix + n] = own.view(kinds, repeats, n, n)
    ds = _softmax_gradient(dp, p)
    if prefix:
        flat_p, flat_ds = (t.view(kinds, repeats * total, columns)[..., :prefix] for t in (p, ds))
        dv[:, :prefix] += flat_p.mT @ g_all
        dk[:, :prefix] += flat_ds.mT @ _rows(q, prefix, total, kinds)
        dq[:, prefix:] = (flat_ds @ k[:, :prefix]).view_as(dq[:, prefix:])
    for at, n in _starts(branches):
        here = slice(prefix + at, prefix + at + n)
        own_p, own_ds = _own(p, at, n, prefix), _own(ds, at, n, prefix)
        dv[:, here] = own_p.mT @ _rows(grad, prefix + at, n, kinds)
        dk[:, here] = own_ds.mT @ _rows(q, prefix + at, n, kinds)
        own_q = (own_ds @ k[:, here]).view_as(dq[:, here])
        dq[:, here] = dq[:, here] + own_q if prefix else own_q


def _rows(t: Tensor, at: int, n: int, kinds: int) -> Tensor:
    """Rows at..at+n of all query heads [H, G, D] beside the key head they read: [K, H/K * n, D]."""
    return t[:, at : at + n].reshape(kinds, -1, t.shape[-1])


def _own(t: Tensor, at: int, n: int, prefix: int) -> Tensor:
    """A branch's rows and its own columns of [K, H/K, B, prefix + longest]: [K, H/K * n, n]."""
    return t[:, :, at : at + n, prefix : prefix + n].reshape(t.shape[0], -1, n)


def _starts(branches: tuple[int, ...]) -> list[tuple[int, int]]:
    """Where each branch begins among all branches' tokens, and its length."""
    found, at = [], 0
    for n in branches:
        found.append((at, n))
        at += n
    return found


def _causal_scores(q: Tensor, k: Tensor, scale: float) -> Tensor:
    """Scores [K, R * n, n] of rows [K, R * n, D] that are R heads of n positions, -inf for what comes later."""
    n = k.shape[1]
    mask = _later(n, q.dtype, q.device).repeat(q.shape[1] // n, 1)
    return torch.baddbmm(mask[None], q, k.mT, alpha=scale)


@lru_cache(maxsize=256)
def _later(n: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """[n, n]: -inf above the diagonal, 0 elsewhere."""
    return torch.full((n, n), -torch.inf, dtype=dtype, device=device).triu_(1)


def _softmax_gradient(grad: Tensor, p: Tensor) -> Tensor:
    """(grad - sum(grad * p)) * p over the last dimension, in one pass."""
    return torch._softmax_backward_data(grad, p, -1, p.dtype)
