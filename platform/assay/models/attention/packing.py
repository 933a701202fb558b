"""One forward pass over many token sequences: no padding, and what sequences of a group begin with computed once.

Covers: groups of sequences, the pass of a backbone over them (`*ForSequenceClassification` and `*ForCausalLM`, with
or without adapters, in any number format, with gradient checkpointing), and where each sequence's hidden states are
in its result. All work by the token (embeddings, linear layers, norms) runs over one row of the distinct tokens;
attention is exact within each sequence (`packed_attention`). Models for which that is not right (recurrent, soft
caps, windows shorter than the text) and unknown ones get padded rows: the same hidden states to rounding.
Leaves out: heads, losses, which sequences go together.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from assay.errors import BadInputError
from assay.models.attention.packed_attention import NAME, Layout, Span, register
from assay.models.devices import to_device
from assay.models.vision import image_token_of

if TYPE_CHECKING:
    import torch

    from assay.models.chat.image_reader import ImageReader

Tokens = npt.NDArray[np.int32]

#: Decoders whose layers hand our layout to their attention and have no other way from position to position.
PACKED = frozenset({"llama", "qwen2", "qwen3", "mistral", "olmo2", "phi3", "gemma", "smollm3"})
#: Attribute of a network that has a pass of its own: see `packed_pass`.
PACKED_PASS = "assay_packed_pass"


@dataclass(frozen=True)
class TokenGroup:
    """Sequences that begin alike: `prefix` [P] (P may be 0), then each one's own rest, at least one token. `images`: of
    each sequence in full, as `Encoded.images`; empty where no sequence has any."""

    prefix: Tokens
    branches: tuple[Tokens, ...]
    images: tuple[tuple[str, ...], ...] = ()

    def __post_init__(self) -> None:
        if not self.branches or any(len(branch) == 0 for branch in self.branches):
            raise BadInputError("a group of token sequences needs branches of at least one token each")

    @property
    def computed(self) -> int:
        """Distinct positions: what goes through the model."""
        return len(self.prefix) + sum(map(len, self.branches))

    @property
    def tokens(self) -> int:
        """Tokens of all sequences, each in full."""
        return len(self.branches) * len(self.prefix) + sum(map(len, self.branches))

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence."""
        return len(self.prefix) + max(map(len, self.branches))

    def sequences(self) -> list[Tokens]:
        return [np.concatenate([self.prefix, branch]) for branch in self.branches]

    def apart(self) -> list[TokenGroup]:
        """Each sequence by itself, nothing shared."""
        images = self.images or ((),) * len(self.branches)
        return [
            TokenGroup(self.prefix[:0], (row,), (each,) if each else ())
            for row, each in zip(self.sequences(), images, strict=True)
        ]


def group_of(sequences: Sequence[npt.ArrayLike], images: Sequence[tuple[str, ...]] = ()) -> TokenGroup:
    """Sequences with their common beginning split off, short of the last token of the shortest, so that every branch
    has a position of its own. `images`: see `TokenGroup`. Raises BadInputError for none, or for an empty one.
    """
    rows = [np.asarray(sequence, dtype=np.int32) for sequence in sequences]
    if not rows or any(len(row) == 0 for row in rows):
        raise BadInputError("a group of token sequences needs sequences of at least one token each")
    common = common_prefix(rows) if len(rows) > 1 else 0
    packed_images = tuple(images) if any(images) else ()
    return TokenGroup(rows[0][:common], tuple(row[common:] for row in rows), packed_images)


def common_prefix(rows: Sequence[Tokens]) -> int:
    """Tokens that all rows begin with, short of the last token of the shortest."""
    limit = min(map(len, rows)) - 1
    for row in rows[1:]:
        differ = np.flatnonzero(row[:limit] != rows[0][:limit])
        limit = int(differ[0]) if len(differ) else limit
    return limit


class PackedHidden:
    """Last hidden states of a pass over groups. Branches are counted through: groups in order, then their branches."""

    def __init__(
        self, states: torch.Tensor, branches: list[tuple[int, int]], prefixes: list[tuple[int, int]], padding: int
    ) -> None:
        """`states` [M, H]; `own` and `prefixes`: for each branch (start, length) in it of its tokens, of its prefix."""
        self.states = states
        self.computed = states.shape[0]  #: positions that went through the model, padding included
        self.padding = padding
        self._own, self._prefixes = branches, prefixes

    def __len__(self) -> int:
        """Branches."""
        return len(self._own)

    def last(self) -> torch.Tensor:
        """Hidden states [branches, H] at each branch's last token."""
        return self._rows([start + length - 1 for start, length in self._own])

    def at(self, places: Sequence[Sequence[int]]) -> torch.Tensor:
        """Hidden states [all places, H] at positions counted from each sequence's own beginning, prefix included."""
        rows = [
            prefix + position if position < shared else start + position - shared
            for positions, (start, _), (prefix, shared) in zip(places, self._own, self._prefixes, strict=True)
            for position in positions
        ]
        return self._rows(rows)

    def branch_states(self, branch: int) -> torch.Tensor:
        """Hidden states [own tokens, H] of one branch, its prefix left out."""
        start, length = self._own[branch]
        return self.states[start : start + length]

    def sequence_states(self, branch: int) -> torch.Tensor:
        """Hidden states [prefix + own tokens, H] of one whole sequence."""
        import torch

        start, length = self._prefixes[branch]
        return torch.cat([self.states[start : start + length], self.branch_states(branch)])

    def before(self) -> torch.Tensor:
        """Hidden states [all branches' own tokens, H] that each token is predicted from: the position before it.

        Raises BadInputError where a branch has no prefix: nothing comes before its first token.
        """
        if not all(length for _, length in self._prefixes):
            raise BadInputError("a branch without a prefix: its first token is predicted from nothing")
        places = []
        for (start, length), (prefix, shared) in zip(self._own, self._prefixes, strict=True):
            places += [prefix + shared - 1, *range(start, start + length - 1)]
        return self._rows(places)

    def _rows(self, numbers: list[int]) -> torch.Tensor:
        import torch

        return self.states.index_select(0, to_device(torch.tensor(numbers), self.states.device))


def can_pack(model: Any, longest: int = 0) -> bool:
    """Whether the packed pass is right for this model and sequences of up to `longest` tokens."""
    config = unwrapped(model).config
    if config.model_type not in PACKED or config._attn_implementation not in ("sdpa", NAME):
        return False
    kinds = set(getattr(config, "layer_types", None) or ())
    slides = "sliding_attention" in kinds if kinds else getattr(config, "use_sliding_window", True)
    window = getattr(config, "sliding_window", None) if slides else None
    if kinds - {"full_attention", "sliding_attention"}:
        return False
    return window is None or longest <= window


def use_packed(model: Any) -> None:
    """Make `packed_attention` a model's attention, and its layers lean (`lean_layers`), for good: see `forward`."""
    if model.config._attn_implementation != NAME:
        from assay.models.attention.lean_layers import make_lean

        register()
        model.set_attn_implementation(NAME)
        make_lean(backbone(model))


def forward(model: Any, groups: Sequence[TokenGroup], images: ImageReader | None = None) -> PackedHidden:
    """Run the backbone of `model` over all groups in one pass; gradients flow. `images`: see `forward_rows`.

    On its first packed pass a model's attention implementation becomes `packed_attention.NAME`, for good: that is
    `sdpa` for every other use. Raises BadInputError for a model without a backbone, and for no groups.
    """
    if not groups:
        raise BadInputError("a forward pass needs at least one group of sequences")
    model = unwrapped(model)
    if not can_pack(model, max(group.longest for group in groups)):
        return forward_rows(model, groups, images=images)
    import torch

    network, device = backbone(model), model.device
    use_packed(model)
    layout, branches, prefixes = lay_out(groups)
    row, places = _row(groups, device)
    if (packed := packed_pass(network)) is not None:
        return PackedHidden(packed(row, places, layout)[0], branches, prefixes, padding=0)
    hidden = network(
        input_ids=row,
        position_ids=places,
        # A mask of four dimensions is taken as it is; ours is in the layout.
        attention_mask=torch.ones(1, 1, 1, 1, dtype=torch.bool, device=device),
        use_cache=False,
        packed_layout=layout,
    ).last_hidden_state
    return PackedHidden(hidden[0], branches, prefixes, padding=0)


def forward_ends(
    model: Any, groups: Sequence[TokenGroup], images: ImageReader | None = None
) -> tuple[torch.Tensor, int, int]:
    """Hidden states [branches, H] at the last tokens alone, positions computed, padding among them: see `forward`. A
    network that has a pass of its own computes less of its last layer."""
    network = backbone(unwrapped(model))
    if (packed := packed_pass(network)) is not None and can_pack(model, max(group.longest for group in groups)):
        row, places = _row(groups, model.device)
        return packed(row, places, lay_out(groups)[0], ends=True)[0], row.shape[1], 0
    passed = forward(model, groups, images)
    return passed.last(), passed.computed, passed.padding


def _row(groups: Sequence[TokenGroup], device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and positions [1, N] of the packed row."""
    import torch

    ids = np.concatenate([part for group in groups for part in (group.prefix, *group.branches)])
    positions = np.concatenate([np.arange(a, a + n) for a, n in _stretches(groups)])
    row, places = (to_device(torch.from_numpy(each).long()[None], device) for each in (ids, positions))
    return row, places


def forward_rows(
    model: Any, groups: Sequence[TokenGroup], *, pad_left: bool = False, images: ImageReader | None = None
) -> PackedHidden:
    """The plain way: each sequence a row of its own, padded on the right (or on the left) to the longest. `images`:
    reads those of the groups. Raises BadInputError where places of images have none: the model would read nothing."""
    import torch

    model = unwrapped(model)
    network, device = backbone(model), model.device
    rows = [row for group in groups for row in group.sequences()]
    width = max(map(len, rows))
    ids, mask = np.zeros((len(rows), width), dtype=np.int64), np.zeros((len(rows), width), dtype=np.int64)
    gaps = [width - len(row) if pad_left else 0 for row in rows]
    for number, (gap, row) in enumerate(zip(gaps, rows, strict=True)):
        ids[number, gap : gap + len(row)], mask[number, gap : gap + len(row)] = row, 1
    options = {"input_ids": torch.from_numpy(ids).to(device), "attention_mask": torch.from_numpy(mask).to(device)}
    references = [each for group in groups for each in group.images or ((),) * len(group.branches)]
    token = image_token_of(model.config)
    if any(token in row and not (images and each) for row, each in zip(rows, references, strict=True)):
        raise BadInputError("conversations with images, whose images this computation does not take")
    if images is not None:
        options |= images.inputs(network, options["input_ids"], references)
    # Positions of more than one dimension (Qwen2-VL) are the model's own matter.
    if takes_positions(network) and not hasattr(network, "get_rope_index"):
        places = torch.arange(width, device=device)[None] - torch.tensor(gaps, device=device)[:, None]
        options["position_ids"] = places.clamp_min(0)
    hidden = network(**options, use_cache=False).last_hidden_state
    shared = [len(group.prefix) for group in groups for _ in group.branches]
    starts = [n * width + gap for n, gap in enumerate(gaps)]
    branches = [(start + p, len(row) - p) for start, p, row in zip(starts, shared, rows, strict=True)]
    prefixes = list(zip(starts, shared, strict=True))
    padding = len(rows) * width - sum(map(len, rows))
    return PackedHidden(hidden.flatten(0, 1), branches, prefixes, padding)


def lay_out(groups: Sequence[TokenGroup]) -> tuple[Layout, list[tuple[int, int]], list[tuple[int, int]]]:
    """The row's layout; for each branch (start, length) of its own tokens and of its prefix."""
    spans: list[Span] = []
    branches: list[tuple[int, int]] = []
    prefixes: list[tuple[int, int]] = []
    start = 0
    for group in groups:
        spans.append(Span(start, len(group.prefix), tuple(map(len, group.branches))))
        prefixes += [(start, len(group.prefix))] * len(group.branches)
        start += len(group.prefix)
        for branch in group.branches:
            branches.append((start, len(branch)))
            start += len(branch)
    return Layout(spans), branches, prefixes


def _stretches(groups: Sequence[TokenGroup]) -> list[tuple[int, int]]:
    """First position and length of each stretch of the row that counts on by one."""
    spans = []
    for group in groups:
        spans.append((0, len(group.prefix)))
        spans += [(len(group.prefix), len(branch)) for branch in group.branches]
    return spans


def attention_of(model: Any) -> str:
    """The attention implementation that decides the model's numbers: a packed model's is `sdpa`."""
    name = str(getattr(model.config, "_attn_implementation", "") or "")
    return "sdpa" if name == NAME else name


def unwrapped(model: Any) -> Any:
    """The model inside an adapter's wrapper, with the adapter still in its layers."""
    return model.get_base_model() if hasattr(model, "peft_config") and hasattr(model, "get_base_model") else model


def packed_pass(network: Any) -> Callable[..., torch.Tensor] | None:
    """Token ids [1, N], positions [1, N] and a layout to states [1, N, H], of a network that has such a pass
    (`decoder_pass`) and needs no gradient now."""
    import torch

    attached: Callable[..., torch.Tensor] | None = network.__dict__.get(PACKED_PASS)
    return None if attached is None or torch.is_grad_enabled() or torch.is_autocast_enabled("cpu") else attached


def backbone(model: Any) -> Any:
    """The network below the head. Raises BadInputError for a model that has none."""
    network = getattr(model, model.base_model_prefix, None)
    if network is None:
        raise BadInputError(f"{type(model).__name__} has no backbone below its head; not supported")
    return network


def takes_positions(network: Any) -> bool:
    """Whether the backbone takes position ids (recurrent ones do not)."""
    return "position_ids" in inspect.signature(network.forward).parameters
