"""Attention over many sequences laid end to end in one row, where sequences of a group share their beginning.

Covers: `Layout`, which says where each group's prefix and branches lie, and an attention function that transformers
calls in every layer: exact, a group at a time, on CUDA also by variable-length kernels or a block mask; no
position attends outside its own sequence and no padding is computed. Leaves out: the model's pass (`packing`),
sliding windows, soft caps.

The function is registered under `NAME` and, where a pass carries no layout, is transformers' own `sdpa`, so a model
that was set to it generates, scores and trains in padded rows as before.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from assay.models.config_only import kernels_of
from assay.models.devices import to_device

if TYPE_CHECKING:
    import torch

NAME = "assay_packed"
#: Tokens of a sequence up to which attention probabilities are kept for the backward pass.
LONGEST = 1024


class Span(NamedTuple):
    """A group in the row: `prefix` tokens from `start` on, then its branches one after the other."""

    start: int
    prefix: int
    branches: tuple[int, ...]

    @property
    def length(self) -> int:
        return self.prefix + sum(self.branches)

    @property
    def is_plain(self) -> bool:
        """One sequence that shares nothing: plain causal attention."""
        return len(self.branches) == 1


class Segments(NamedTuple):
    """The row as sequences for variable-length kernels: queries are `q_lengths` consecutive stretches of it (each
    prefix, then each branch), the keys of a stretch are the `k_lengths` positions listed in `keys`, its own last."""

    q_lengths: list[int]
    k_lengths: list[int]
    keys: torch.Tensor  #: [sum of k_lengths], int64


class Layout:
    """Where the groups of one packed row lie; what the kernels need is made once and serves all layers."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self.spans = tuple(spans)
        self.lengths = [span.length for span in self.spans]
        self._device: dict[str, Any] = {}

    @property
    def ends(self) -> list[int]:
        """The row's position of each branch's last token."""
        return [
            end - 1
            for span in self.spans
            for end in itertools.accumulate(span.branches, initial=span.start + span.prefix)
            if end > span.start + span.prefix
        ]

    @cached_property
    def segments(self) -> Segments:
        import torch

        q_lengths, k_lengths, keys = [], [], []
        for span in self.spans:
            start = span.start
            prefix = torch.arange(start, start + span.prefix)
            if span.prefix:
                q_lengths.append(span.prefix)
                k_lengths.append(span.prefix)
                keys.append(prefix)
            start += span.prefix
            for length in span.branches:
                q_lengths.append(length)
                k_lengths.append(span.prefix + length)
                keys.extend((prefix, torch.arange(start, start + length)))
                start += length
        return Segments(q_lengths, k_lengths, torch.cat(keys))

    def branch_mask(self, prefix: int, n: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """[n, prefix + n], 0 where a branch's position sees the prefix and its own past, else -inf: a window of one
        triangle that serves all branches and layers."""
        import torch

        widest, longest = self._widest
        key = f"triangle {dtype}"
        if key not in self._device:
            shape = (longest, widest + longest)
            self._device[key] = torch.full(shape, -torch.inf, dtype=dtype, device=device).triu_(widest + 1)
        start = widest - prefix
        window = self._device[key][:n, start : start + prefix + n]
        # torch's kernel on CUDA reads a mask in aligned pieces, and checks its width but not where it begins
        return window.clone() if device.type == "cuda" else window  # type: ignore[no-any-return]

    @cached_property
    def _widest(self) -> tuple[int, int]:
        """Tokens of the longest prefix that is shared, and of the longest branch after any."""
        shared = [span for span in self.spans if not span.is_plain]
        return max((s.prefix for s in shared), default=0), max((max(s.branches) for s in shared), default=0)

    def block_mask(self, device: torch.device) -> Any:
        """FlexAttention's mask of the whole row."""
        if "block" not in self._device:
            import torch
            from torch.nn.attention.flex_attention import create_block_mask

            group, branch = [], []
            for number, span in enumerate(self.spans):
                group += [number] * span.length
                for index, length in enumerate((span.prefix, *span.branches)):
                    branch += [index] * length
            groups, branches = (torch.tensor(values, device=device) for values in (group, branch))

            def sees(b: Any, h: Any, q: Any, k: Any) -> Any:
                same = (branches[k] == 0) | (branches[k] == branches[q])
                return (k <= q) & (groups[k] == groups[q]) & same

            self._device["block"] = create_block_mask(
                sees, None, None, len(group), len(group), device=device, _compile=device.type == "cuda"
            )
        return self._device["block"]

    def on_device(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Cumulative query lengths, cumulative key lengths (int32, from 0) and key positions, on `device`."""
        if "segments" not in self._device:
            import torch

            q_lengths, k_lengths, keys = self.segments
            ends = (torch.tensor([0, *n]).cumsum(0).to(torch.int32) for n in (q_lengths, k_lengths))
            self._device["segments"] = tuple(to_device(part, device) for part in (*ends, keys))
        return self._device["segments"]  # type: ignore[no-any-return]


def register() -> None:
    """Make the attention known to transformers, with the masks that `sdpa` gets where a pass carries no layout."""
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

    AttentionInterface.register(NAME, packed_attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)


def packed_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    packed_layout: Layout | Callable[..., torch.Tensor] | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """query [1, H, N, D], key and value [1, H_kv, N, D] of a packed row -> [1, N, H, D]; else `sdpa`. A layout may be a
    function that does this itself, from query, keys and values as the cache gives them, `scaling`, a layer's index."""
    if packed_layout is None:
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **options
        )
    if not isinstance(packed_layout, Layout):
        return packed_layout(query, key, value, scaling, module.layer_idx), None
    import torch

    on_gpu, device = kernels_of(query) == "cuda", query.device.type
    if on_gpu and torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        query, key, value = query.to(dtype), key.to(dtype), value.to(dtype)
    if on_gpu and query.dtype in (torch.bfloat16, torch.float16):
        attend = by_segments if has_varlen() else by_block_mask
        out = attend(query, key, value, packed_layout, scaling=scaling)
    else:
        out = by_groups(query, key, value, packed_layout, dropout=dropout, scaling=scaling)
    return out.transpose(1, 2).contiguous(), None


def by_groups(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    layout: Layout,
    *,
    dropout: float = 0.0,
    scaling: float | None = None,
) -> torch.Tensor:
    """One group after the other; [1, H, N, D], in autocast's format where that is on.

    Where a gradient is wanted by matrix products (`group_attention`), whose backward pass is the faster one; else, for
    long sequences and for dropout by torch's own kernel. In half precision by products without a gradient, too: the two
    round differently, and a policy would be compared with its reference, which is itself, across that difference.
    """
    import torch

    from assay.models.attention.group_attention import GroupAttention

    kind = query.device.type
    low = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else value.dtype
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    wants_gradient = torch.is_grad_enabled() and query.requires_grad
    by_products = wants_gradient or low != torch.float32
    if len(layout.spans) == 1 and not by_products:
        return _fused(query.to(low), key.to(low), value.to(low), layout.spans[0], layout, dropout, scale)
    # `split` and not slices: the gradient of a slice is a row of zeros as long as the whole
    parts = zip(*(torch.split(tensor, layout.lengths, 2) for tensor in (query, key, value)), strict=True)
    outs = []
    for span, (q, k, v) in zip(layout.spans, parts, strict=True):
        longest = span.prefix + max(span.branches)
        if dropout or not by_products or longest > LONGEST:
            outs.append(_fused(q.to(low), k.to(low), v.to(low), span, layout, dropout, scale))
        else:
            with torch.autocast(kind, enabled=False):
                out = GroupAttention.apply(q[0], k[0], v[0], span.prefix, span.branches, scale, low)  # type: ignore[no-untyped-call]
            outs.append(out[None])
    return torch.cat(outs, 2)


def _fused(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, span: Span, layout: Layout, dropout: float, scale: float
) -> torch.Tensor:
    """One group through torch's kernel: its prefix, then each branch after it. The memory is linear in the tokens, but
    for the mask of branches: longest branch x (longest prefix + longest branch) numbers, once a pass."""
    import torch
    import torch.nn.functional as F

    # The kernel reads grouped heads by itself only where it needs no gradient.
    grouped = k.shape[1] != q.shape[1] and q.device.type == "cpu" and not torch.is_grad_enabled()
    if not grouped and k.shape[1] != q.shape[1]:
        repeats = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1)
    attend = partial(F.scaled_dot_product_attention, dropout_p=dropout, scale=scale, enable_gqa=grouped)
    if span.is_plain:
        return attend(q, k, v, is_causal=True)
    parts = [span.prefix, *span.branches]
    stretches = zip(*(torch.split(tensor, parts, 2) for tensor in (q, k, v)), strict=True)
    first_q, first_k, first_v = next(stretches)
    outs = [attend(first_q, first_k, first_v, is_causal=True)]
    for own_q, own_k, own_v in stretches:
        n = own_q.shape[2]
        mask = layout.branch_mask(span.prefix, n, q.dtype, q.device)
        outs.append(attend(own_q, torch.cat([first_k, own_k], 2), torch.cat([first_v, own_v], 2), mask))
    return torch.cat(outs, 2)


def attend_ends(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, layout: Layout, scaling: float
) -> torch.Tensor:
    """query [1, H, branches, D] of each branch's last token, key and value [1, H_kv, N, D] of the row, on a CPU and
    without gradients -> [1, branches, H, D]."""
    import torch
    import torch.nn.functional as F

    attend = partial(F.scaled_dot_product_attention, scale=scaling, enable_gqa=key.shape[1] != query.shape[1])
    outs: list[torch.Tensor] = []
    for span in layout.spans:
        prefix, start = slice(span.start, span.start + span.prefix), span.start + span.prefix
        for length in span.branches:
            number, branch = len(outs), slice(start, start + length)
            keys, values = key[:, :, branch], value[:, :, branch]
            if span.prefix:
                keys, values = torch.cat([key[:, :, prefix], keys], 2), torch.cat([value[:, :, prefix], values], 2)
            outs.append(attend(query[:, :, number : number + 1], keys, values))
            start += length
    return torch.cat(outs, 2).transpose(1, 2)


def has_varlen() -> bool:
    """Whether torch has its variable-length attention with a window (2.11 on)."""
    from importlib.util import find_spec

    return find_spec("torch.nn.attention.varlen") is not None and "window_size" in _varlen_options()


def _varlen_options() -> frozenset[str]:
    """The parameters of torch's variable-length attention, which grow from release to release."""
    from inspect import signature

    from torch.nn.attention.varlen import varlen_attn

    return frozenset(signature(varlen_attn).parameters)


def by_segments(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, layout: Layout, *, scaling: float | None = None
) -> torch.Tensor:
    """Torch's variable-length flash kernel (CUDA, half precision): a branch's keys are its group's prefix and its own.

    Causal masks of that kernel are aligned to the last key, which is what a branch after its prefix needs.
    """
    from torch.nn.attention.varlen import varlen_attn

    q_ends, k_ends, keys = layout.on_device(query.device)
    lengths = layout.segments
    own_keys, own_values = key[0].transpose(0, 1)[keys], value[0].transpose(0, 1)[keys]
    grouped: dict[str, Any] = {}
    if (repeats := query.shape[1] // key.shape[1]) > 1:
        if "enable_gqa" in _varlen_options():
            grouped["enable_gqa"] = True
        else:  # torch 2.11
            own_keys, own_values = (part.repeat_interleave(repeats, 1) for part in (own_keys, own_values))
    out = varlen_attn(
        query[0].transpose(0, 1).contiguous(),
        own_keys,
        own_values,
        q_ends,
        k_ends,
        max(lengths.q_lengths),
        max(lengths.k_lengths),
        scale=scaling,
        window_size=(-1, 0),
        **grouped,
    )
    return out.transpose(0, 1)[None]  # type: ignore[union-attr]


def by_block_mask(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, layout: Layout, *, scaling: float | None = None
) -> torch.Tensor:
    """FlexAttention under the row's block mask, compiled on CUDA."""
    from torch.nn.attention.flex_attention import flex_attention

    attend = _compiled(flex_attention) if query.device.type == "cuda" else flex_attention
    return attend(  # type: ignore[no-any-return]
        query,
        key,
        value,
        block_mask=layout.block_mask(query.device),
        scale=scaling,
        enable_gqa=key.shape[1] != query.shape[1],
    )


_COMPILED: dict[str, Any] = {}


def _compiled(function: Any) -> Any:
    import torch

    if function.__name__ not in _COMPILED:
        _COMPILED[function.__name__] = torch.compile(function, dynamic=True)
    return _COMPILED[function.__name__]
