"""Keys and values of rows under generation, in memory that is there before it is needed.

Covers: a layer that appends in place where transformers' own copies all it holds at every token, and whose rows leave
by moving only those that take their places. Leaves out: layers of other kinds (sliding windows, recurrences), which
stay transformers' own.
"""

import torch
from torch import Tensor
from transformers import DynamicCache, PretrainedConfig
from transformers.cache_utils import DynamicLayer

ROOM = 64  #: columns allocated ahead


class BufferedLayer(DynamicLayer):  # type: ignore[no-untyped-call]
    """`keys` and `values` [rows, heads, columns, d] are views of larger buffers."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._buffers: tuple[Tensor, Tensor] | None = None

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        """Append; returns all."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        held, new = self.get_seq_length(), key_states.shape[-2]
        if self._buffers is None or self._buffers[0].shape[-2] < held + new:
            self._make_room((key_states, value_states), held, held + new + ROOM)
        assert self._buffers is not None
        rows = key_states.shape[0]
        views = []
        for buffer, states in zip(self._buffers, (key_states, value_states), strict=True):
            buffer[:rows, :, held : held + new] = states
            views.append(buffer[:rows, :, : held + new])
        self.keys, self.values = views
        return self.keys, self.values

    def batch_repeat_interleave(self, repeats: int) -> None:
        super().batch_repeat_interleave(repeats)
        self._buffers = None  # rebuilt by the next update

    def batch_select_indices(self, indices: Tensor) -> None:
        """Rows `indices` in that order; those that stay where they are are not touched."""
        if self._buffers is None:
            super().batch_select_indices(indices)
            return
        held, rows = self.get_seq_length(), len(indices)
        moved = (indices != torch.arange(rows, device=indices.device)).nonzero().squeeze(1)
        if len(moved):
            for buffer in self._buffers:
                buffer[moved, :, :held] = buffer[indices[moved], :, :held]
        self.keys, self.values = (buffer[:rows, :, :held] for buffer in self._buffers)

    def join(self, other: DynamicLayer, *, drop: int) -> None:
        """Append the rows of another layer, both ending in the same column; the first `drop` columns are dropped."""
        width = max(self.get_seq_length() - drop, other.get_seq_length())
        (keys, values), (joining, with_values) = _keys_and_values(self), _keys_and_values(other)
        pairs = ((keys[:, :, drop:], joining), (values[:, :, drop:], with_values))
        # Zeros, since what is masked is multiplied by 0 all the same.
        self.keys, self.values = (
            torch.cat([torch.nn.functional.pad(part, (0, 0, width - part.shape[-2], 0)) for part in pair])
            for pair in pairs
        )
        self._buffers = None

    def _make_room(self, states: tuple[Tensor, Tensor], held: int, columns: int) -> None:
        buffers = []
        for index, like in enumerate(states):
            rows, heads, _, width = like.shape
            buffer = like.new_empty(rows, heads, columns, width)
            if held:
                buffer[:, :, :held] = _keys_and_values(self)[index]
            buffers.append(buffer)
        self._buffers = (buffers[0], buffers[1])


def _keys_and_values(layer: DynamicLayer) -> tuple[Tensor, Tensor]:
    """Keys and values of a layer that has some."""
    assert layer.keys is not None
    assert layer.values is not None
    return layer.keys, layer.values


def buffered_cache(config: PretrainedConfig) -> DynamicCache:
    """A cache for a model of this config, its plain attention layers buffered."""
    cache = DynamicCache(config=config)
    cache.layers = [BufferedLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers]
    return cache


def compacted(going: Tensor) -> Tensor:
    """Indices of the rows that continue ([rows] bool), each at its index where that is below their number, the others
    in the gaps."""
    stay = going.nonzero().squeeze(1)
    number = len(stay)
    order = torch.arange(number, device=going.device)
    order[~going[:number]] = stay[stay >= number]
    return order
