"""Keys and values of prompts that several rows go on from, read once a group at every token.

Covers: on a CPU, the columns of prompts under generation, left-padded, and attention of rows that hold what they have
drawn alone: to the prompt for all rows of a group at once, to its own columns for each, joined by the logarithms of the
two sums, which is exact (the "cascade" of FlashInfer, arXiv 2501.01005). Leaves out: rows between turns, which keep a
prompt of their own; sliding windows; what rows have drawn (`decoding`).
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from assay_policy_training.plugins.samplers.key_value_cache import join_columns, keep_rows, keys_and_values


class SharedPrompts:
    """`numbers`: of the prompts under generation, in the order in which the cache has them."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self._seen = torch.zeros((0, 0), dtype=torch.bool)  #: columns of each
        self._cache: Any = None
        self._mask: Tensor | None = None
        self._places: Tensor | None = None  #: [prompts, most rows of one], rows
        self._back: Tensor | None = None  #: where each row is among those places

    def append(self, numbers: Sequence[int], seen: Tensor, cache: Any) -> None:
        """Prompts [P,S] and their keys and values."""
        if self.numbers:
            self._seen = join_columns(self._cache, self._seen, cache, seen)
        else:
            self._cache, self._seen = cache, seen
        self.numbers += numbers

    def arrange(self, prompts: Sequence[int]) -> None:
        """The rows under generation go on from these prompts; those that none goes on from are forgotten."""
        present = set(prompts)
        order = [index for index, number in enumerate(self.numbers) if number in present]
        if len(order) < len(self.numbers):
            keep_rows(self._cache, order, self._seen)
            self._seen, self.numbers = self._seen[order], [self.numbers[index] for index in order]
        rows: dict[int, list[int]] = {number: [] for number in self.numbers}
        for row, number in enumerate(prompts):
            rows[number].append(row)
        most = max(map(len, rows.values()), default=0)
        # A first row fills the others' places.
        places = [[*members, *members[:1] * (most - len(members))] for members in rows.values()]
        back = {row: group * most + n for group, members in enumerate(rows.values()) for n, row in enumerate(members)}
        indices = [row for members in places for row in members]
        in_order = indices == list(range(len(prompts)))
        self._places = None if in_order else torch.tensor(indices)
        self._back = None if in_order else torch.tensor([back[row] for row in range(len(prompts))])
        self._mask = _additive(self._seen)

    def attention(self, seen: Tensor) -> "SharedPromptAttention":
        """Of one token of each row. `seen` [R,W]: columns of what they have drawn."""
        return SharedPromptAttention(self, seen)

    def attend(self, query: Tensor, layer: int, scaling: float | None) -> tuple[Tensor, Tensor]:
        """query [R,H_kv,Q,D], the heads that share keys together -> [R,H_kv,Q,D] and log-sums [R,H_kv,Q]."""
        keys, values = keys_and_values(self._cache.layers[layer])
        heads, queries, width = query.shape[1:]
        ordered = query if self._places is None else query.index_select(0, self._places)
        groups, most = len(keys), len(ordered) // len(keys)
        together = ordered.view(groups, most, heads, queries, width).transpose(1, 2).reshape(groups, heads, -1, width)
        out, sums = _attend(together, keys, values, self._mask, scaling)
        out = out.view(groups, heads, most, queries, -1).transpose(1, 2).flatten(0, 1)
        sums = sums.view(groups, heads, most, queries).transpose(1, 2).flatten(0, 1)
        return (
            (out, sums) if self._back is None else (out.index_select(0, self._back), sums.index_select(0, self._back))
        )


class SharedPromptAttention:
    """Of rows with one token each. Called as `packed_attention` calls a layout."""

    def __init__(self, prompts: SharedPrompts, seen: Tensor) -> None:
        self._prompts, self._mask = prompts, _additive(seen)

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, scaling: float | None, layer: int) -> Tensor:
        """query [R,H,1,D], key and value [R,H_kv,W,D] of what rows have drawn -> [R,1,H,D]."""
        rows, heads, _, width = query.shape
        together = query.to(key.dtype).view(rows, key.shape[1], -1, width)
        shared, shared_sums = self._prompts.attend(together, layer, scaling)
        drawn, drawn_sums = _attend(together, key, value, self._mask, scaling)
        share = (shared_sums - drawn_sums).sigmoid()[..., None]
        return torch.lerp(drawn.float(), shared.float(), share).to(drawn.dtype).view(rows, 1, heads, -1)


def _additive(seen: Tensor) -> Tensor | None:
    """[R,1,1,W]: 0 where a row has a column, else -inf; None where all rows have all."""
    if bool(seen.all()):
        return None
    return torch.zeros(seen.shape).masked_fill_(~seen, -torch.inf)[:, None, None]


def _attend(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scaling: float | None
) -> tuple[Tensor, Tensor]:
    """Torch's kernel for a CPU, which gives the logarithms of the sums of exponentials, too, in float32."""
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    if mask is not None:
        mask = mask.to(query.dtype).expand(-1, -1, query.shape[2], -1)
    out, sums = kernel(query, key, value, attn_mask=mask, scale=scaling)
    return out, sums
