"""Attention of one pass in which rows draw their next token while others read what was observed.

Covers: the tokens of all rows laid end to end, so that embeddings, linear layers and norms have no padding, each
attending to the columns of its own row that come no later; the same where all rows draw. Leaves out: what is in the
cache (`key_value_cache`), which rows there are (`decoding`).
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention


class RowsAttention:
    """Of rows with one token each, in their last column. `seen` [R,W]: columns that a row has. Keys and values are not
    repeated for the heads that share them, and no mask is made anew in each layer."""

    def __init__(self, seen: Tensor) -> None:
        self.mask = seen[:, None, None]

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, scaling: float | None, layer: int) -> Tensor:
        """query [R,H,1,D], key and value [R,H_kv,W,D] -> [R,1,H,D]."""
        self.mask = _shared_mask(self.mask, query, key)  # the same in all layers
        return _attend(query, key, value, self.mask, scaling).transpose(1, 2)


class MixedAttention:
    """Of `generating` rows with one token each, then of rows with `lengths` tokens, all ending in the last column.
    `seen` [R,W]: columns that a row has. Called as `packed_attention` calls a layout."""

    def __init__(self, generating: int, lengths: Sequence[int], seen: Tensor) -> None:
        width, longest, device = seen.shape[1], max(lengths), seen.device
        columns = torch.arange(width, device=device)
        self.generating, self.longest = generating, longest
        self.last = torch.tensor([1] * generating + list(lengths), device=device).cumsum(0) - 1  #: token of each row
        #: Row and column of each token, in the cache; and in the padded queries of the rows that read.
        self.rows = torch.repeat_interleave(
            torch.arange(len(seen), device=device), torch.tensor([1] * generating + list(lengths), device=device)
        )
        self.columns = width - 1 - (self.last[self.rows] - torch.arange(len(self.rows), device=device))
        self.places = (self.rows[generating:] - generating, self.columns[generating:] - (width - longest))
        self.generating_mask = seen[:generating, None, None]
        self.reading_mask = seen[generating:, None, None] & (columns <= columns[-longest:, None])

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, scaling: float | None, layer: int) -> Tensor:
        """query [1,H,N,D] of N tokens, key and value [R,H_kv,W,D] -> [1,N,H,D]."""
        tokens, n = query[0].transpose(0, 1), self.generating
        drawn = _attend(tokens[:n, :, None], key[:n], value[:n], self.generating_mask, scaling)[:, :, 0]
        padded = tokens.new_zeros(len(key) - n, self.longest, *tokens.shape[1:])
        padded[self.places] = tokens[n:]
        read = _attend(padded.transpose(1, 2), key[n:], value[n:], self.reading_mask, scaling)
        return torch.cat([drawn, read.transpose(1, 2)[self.places]])[None]


def _attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scaling: float | None) -> Tensor:
    """query [R,H,Q,D], key and value [R,H_kv,W,D], mask [R,1,Q,W]. Heads that share keys are queries of one."""
    rows, heads, length, width = query.shape
    together = query.reshape(rows, key.shape[1], -1, width)
    mask = _shared_mask(mask, query, key)
    out = scaled_dot_product_attention(together, key, value, attn_mask=mask, scale=scaling)
    return out.view(rows, heads, length, width)


def _shared_mask(mask: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """The mask of the queries of all heads that share keys, where it is not that yet."""
    queries = query.shape[1] // key.shape[1] * query.shape[2]
    return mask if mask.shape[2] == queries else mask.repeat(1, 1, queries // mask.shape[2], 1)
