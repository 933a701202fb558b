"""Keys and values of rows under generation, in memory that is there before it is needed.

Covers: a layer that appends in place where transformers' own copies all it holds at every token, and whose rows leave
by moving only those that take their places, and join by writing them alone; memory for all that is to come, taken once;
how many rows fit. Leaves out: layers of
other kinds (sliding windows, recurrences), which stay transformers' own.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, PretrainedConfig
from transformers.cache_utils import DynamicLayer

from assay.models.devices import to_device

ROOM = 64  #: columns allocated ahead


class BufferedLayer(DynamicLayer):  # type: ignore[no-untyped-call]
    """`keys` and `values` [rows, heads, columns, d] are views of larger buffers, from column `_start` on. What is in
    the buffers beside a row's own columns is finite: it is multiplied by 0 where it is masked."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._buffers: tuple[Tensor, Tensor] | None = None
        self._start = 0
        self.reserved = (0, 0)  #: rows and columns that the next buffers have at least
        self.room = ROOM
        #: Row and column of each token that is appended next, where rows get different numbers of them.
        self.places: tuple[Tensor, Tensor] | None = None

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        """Append; returns all. With `places`: one column, and states [1, heads, tokens, d] of tokens up to it."""
        key_states, value_states = (_in_product_format(states) for states in (key_states, value_states))
        if self.places is not None:
            return self._fill(key_states, value_states, *self.places)
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        rows, held, new = key_states.shape[0], self.get_seq_length(), key_states.shape[-2]
        if self._buffers is None or self._buffers[0].shape[-2] < self._start + held + new:
            self._make_room((key_states, value_states), rows, held + new - 1 + self.room, at=0)
        self._write((key_states, value_states), slice(rows), self._start + held)
        return self._view(rows, held + new)

    def _fill(self, key_states: Tensor, value_states: Tensor, rows: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
        held, number = self.get_seq_length(), keys_and_values(self)[0].shape[0]
        if self._buffers is None or self._buffers[0].shape[-2] < self._start + held + 1:
            self._make_room((key_states, value_states), number, held + self.room, at=0)
        assert self._buffers is not None
        for buffer, states in zip(self._buffers, (key_states, value_states), strict=True):
            buffer[rows, :, self._start + columns] = states[0].transpose(0, 1)
        return self._view(number, held + 1)

    def batch_repeat_interleave(self, repeats: int) -> None:
        super().batch_repeat_interleave(repeats)
        self._buffers = None  # rebuilt by the next update

    def batch_select_indices(self, indices: Tensor) -> None:
        """Rows `indices` in that order; those that stay where they are are not touched."""
        if self._buffers is None:
            super().batch_select_indices(indices)
            return
        moved = (indices != torch.arange(len(indices), device=indices.device)).nonzero().squeeze(1)
        self.move_rows(moved, indices[moved], len(indices))

    def move_rows(self, to: Tensor, rows: Tensor, number: int) -> None:
        """Put `rows` at the indices `to`, and keep the first `number` of rows."""
        if self._buffers is None:
            order = torch.arange(number, device=to.device)
            super().batch_select_indices(order.index_copy(0, to, rows))
            return
        held = self.get_seq_length()
        columns = slice(self._start, self._start + held)
        if len(to):
            for buffer in self._buffers:
                buffer[to, :, columns] = buffer[rows, :, columns]
        self._view(number, held)

    def begin(self, rows: int, like: "BufferedLayer") -> None:
        """Hold so many rows of no columns, of the shape of another layer's."""
        keys, values = keys_and_values(like)
        self.lazy_initialization(keys, values)
        self.keys, self.values = (part[:1, :, :0].expand(rows, -1, -1, -1) for part in (keys, values))

    def join(self, other: DynamicLayer, *, drop: int) -> None:
        """Append the rows of another layer, both ending in the same column; the first `drop` columns are dropped."""
        joining = keys_and_values(other)
        keys, values = keys_and_values(self)
        self.keys, self.values = keys[:, :, drop:], values[:, :, drop:]
        self._start += drop
        rows, held, length = keys.shape[0], keys.shape[-2] - drop, joining[0].shape[-2]
        width, whole = max(held, length), rows + joining[0].shape[0]
        if self._buffers is None or self._buffers[0].shape[0] < whole or self._start + held < width:
            self._make_room(joining, whole, width + self.room, at=width - held)
        end = self._start + held
        self._write(joining, slice(rows, whole), end - length)
        self._start = end - width
        self._view(whole, width)

    def _write(self, states: tuple[Tensor, Tensor], rows: slice, at: int) -> None:
        assert self._buffers is not None
        for buffer, part in zip(self._buffers, states, strict=True):
            buffer[rows, :, at : at + part.shape[-2]] = part

    def _view(self, rows: int, held: int) -> tuple[Tensor, Tensor]:
        assert self._buffers is not None
        keys, values = (buffer[:rows, :, self._start : self._start + held] for buffer in self._buffers)
        self.keys, self.values = keys, values
        return keys, values

    def _make_room(self, like: tuple[Tensor, Tensor], rows: int, columns: int, *, at: int) -> None:
        """Buffers for at least so many rows and columns, what is held from the column `at` on."""
        rows = max(rows, self.reserved[0], 0 if self._buffers is None else self._buffers[0].shape[0])
        columns = max(columns, self.reserved[1])
        held = keys_and_values(self) if self.get_seq_length() else None
        self._buffers = (
            like[0].new_zeros(rows, like[0].shape[1], columns, like[0].shape[3]),
            like[1].new_zeros(rows, like[1].shape[1], columns, like[1].shape[3]),
        )
        self._start = at
        if held is not None:
            self._write(held, slice(held[0].shape[0]), at)


def _in_product_format(states: Tensor) -> Tensor:
    """Under autocast attention casts all keys and values at every token; once, when they come, is the same."""
    kind = states.device.type
    return states.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else states


def rows_that_fit(config: PretrainedConfig, columns: int, memory: int, *, autocast: bool) -> int:
    """Rows of `columns` tokens that are generated at once in so many bytes, at least 1: their keys and values, the copy
    of one layer's when its buffer grows, and four tensors of logits. A tenth is left over."""
    text = config.get_text_config()
    heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    size = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    layer = 2 * heads * size * (columns + ROOM) * (2 if autocast else 4)
    row = (text.num_hidden_layers + 1) * layer + 4 * 4 * text.vocab_size
    return max(1, int(0.9 * memory / row))


def keys_and_values(layer: DynamicLayer) -> tuple[Tensor, Tensor]:
    """Keys and values of a layer that has some."""
    assert layer.keys is not None
    assert layer.values is not None
    return layer.keys, layer.values


def buffered_cache(config: PretrainedConfig) -> DynamicCache:
    """A cache for a model of this config, its plain attention layers buffered."""
    cache = DynamicCache(config=config)
    cache.layers = [BufferedLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers]
    return cache


def compacted(going: Sequence[bool]) -> list[int]:
    """Indices of the rows that continue, each at its index where that is below their number, the others in the gaps."""
    number = sum(going)
    fillers = iter(row for row, goes in enumerate(going) if goes and row >= number)
    return [row if going[row] else next(fillers) for row in range(number)]


def plain(cache: Any) -> bool:
    """Whether its rows may leave, join and be cached."""
    return all(isinstance(layer, BufferedLayer) for layer in cache.layers)


def keep_rows(cache: Any, order: Sequence[int], like: Tensor) -> Tensor:
    """Keep the rows `order` of a cache, each at its place there; returns that order, on the device of `like`, which has
    all rows."""
    moved = [index for index, row in enumerate(order) if index != row]
    stay, to = (to_device(torch.tensor(part, dtype=torch.long), like.device) for part in (order, moved))
    for layer in cache.layers if len(order) < len(like) else ():
        if isinstance(layer, BufferedLayer):
            layer.move_rows(to, stay.index_select(0, to), len(order))
        else:
            layer.batch_select_indices(stay)
    return stay


def join_columns(cache: Any, seen: Tensor, other: Any, other_seen: Tensor) -> Tensor:
    """Append the rows of another plain cache; `seen` [R,W]: the columns that a row has. Returns those of all rows."""
    unused = int((~seen).all(0).sum())
    for layer, joining in zip(cache.layers, other.layers, strict=True):
        layer.join(joining, drop=unused)
    held = seen[:, unused:]
    width = max(held.shape[1], other_seen.shape[1])
    return torch.cat([torch.nn.functional.pad(part, (width - part.shape[1], 0)) for part in (held, other_seen)])
