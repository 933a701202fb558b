"""Rows under generation by transformers: prompts are let in as rows end, so that the batch stays full.

Covers: reading a prompt once for its group, one token a step for all rows, rows that leave when they end, others that
take their places; rows whose turn has ended and that go on after given tokens, with the keys and values that they had.
A row's context may lie at any columns: positions are counted from its own mask. On a GPU nothing is read at a token:
which rows have ended is asked every `UNREAD` tokens; until then those that have ended draw on, and nothing of it is
kept. Leaves out: the distribution that tokens are drawn from (the sampler's), prompts and responses as text
(`assembly`).
"""

import inspect
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from typing import Any

import torch
from torch import Tensor

from assay.errors import BadInputError
from assay.models.attention.packing import backbone, can_pack, unwrapped, use_packed
from assay.models.attention.prepacked import PackedProducts
from assay.models.devices import to_device
from assay.models.heads import position_ids
from assay.models.vision import image_token_of, without_image_places
from assay_policy_training.core.logprobs import ImageInputs
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.sampling import draw
from assay_policy_training.core.stop_strings import StopStrings
from assay_policy_training.plugins.samplers.assembly import pad_left
from assay_policy_training.plugins.samplers.decoding_weights import DecodingWeights
from assay_policy_training.plugins.samplers.key_value_cache import (
    ROOM,
    buffered_cache,
    compacted,
    join_columns,
    keep_rows,
    keys_and_values,
    plain,
)
from assay_policy_training.plugins.samplers.mixed_attention import MixedAttention, RowsAttention
from assay_policy_training.plugins.samplers.shared_prompts import SharedPrompts

UNREAD = 16  #: tokens of a row, at most, that are drawn on a GPU before it is asked whether the row has ended


class Decoding:
    """`group_size` responses to each of P left-padded prompts `ids` [P,S] under `seen` [P,S], of at most `limit`
    tokens, drawn at `uniforms` [P*G, limit].

    `tokens`, `mask` (drawn), `logp` [P*G, limit] fill while `run` is iterated, or `step` called. `scaled`: logits
    [rows,V] to those drawn from. `at_once`: prompts under generation at most; where the model's cache is not a plain
    one, the others wait for all of them. `stops`: texts that end a row. `mixture`: share of the reference's logits in
    those drawn from, a geometric mean of the two distributions. `images`: of each prompt, as an `ImageReader` reads
    them, empty where none has any; not with `in_turns`.

    `in_turns` (`turn_tokens`: of one, at most): the prompts are begun by `begin`, `step` gives the rows whose turn has
    ended, and `resume` lets one go on; the tokens that it is given are in `tokens` and off in `mask`.
    """

    def __init__(
        self,
        policy: Policy,
        scaled: Callable[[Tensor], Tensor],
        ids: Tensor,
        seen: Tensor,
        group_size: int,
        uniforms: Tensor,
        *,
        at_once: int,
        stops: StopStrings | None = None,
        mixture: float = 0.0,
        in_turns: bool = False,
        turn_tokens: int | None = None,
        images: Sequence[tuple[str, ...]] = (),
    ) -> None:
        self.policy, self.scaled, self.group_size, self.at_once = policy, scaled, group_size, at_once
        self.limit = limit = uniforms.shape[1]
        self.stops, self.mixture, self.in_turns, self.turn_tokens = stops, mixture, in_turns, turn_tokens
        self.images = images if any(images) else ()
        #: Tokens drawn before rows are asked whether they have ended. A processor does not wait for an answer.
        self.unread = 1 if policy.device.type == "cpu" else UNREAD
        self._due = 0  #: tokens until then
        self._weights: dict[int, DecodingWeights] = {}  #: under autocast, by model
        image_token = image_token_of(unwrapped(policy.model).config)
        if image_token is not None and not self.images and bool((ids.eq(image_token) & seen).any()):
            raise BadInputError("prompts with images, which this one does not give to the model", field="sampler")
        #: Whether rows may read on in the pass in which others draw.
        self._mixes = in_turns and not mixture and can_pack(policy.model)
        #: Whether its attention is ours in a pass of one token a row.
        self._packs = not mixture and can_pack(policy.model)
        if self._packs:
            use_packed(unwrapped(policy.model))
        #: Keys and values of prompts apart from their rows'; torch's kernel on a CPU says what joins the two.
        self._prompts = SharedPrompts()
        self._shares = self._packs and group_size > 1 and not in_turns and policy.device.type == "cpu"
        self._products = PackedProducts(policy.model, torch.bfloat16 if policy.autocast else None)
        device = policy.device
        self.uniforms = to_device(uniforms, device)
        self.ids, self.seen_prompts = to_device(ids, device), to_device(seen, device)
        self._paddings = (~seen).long().cumprod(1).sum(1).tolist()  #: of prompts
        self.ends = to_device(torch.tensor(sorted(policy.end_ids)), device)
        rows = len(ids) * group_size
        self.tokens = torch.full((rows, limit), int(policy.tokenizer.pad_token_id), device=device)
        self.mask = torch.zeros((rows, limit), dtype=torch.bool, device=device)
        self.logp = torch.zeros((rows, limit), device=device)
        self._lengths = torch.zeros(rows, dtype=torch.long, device=device)
        self._turn_starts = torch.zeros_like(self._lengths)
        #: From the number of a row's tokens to its positions, where images take fewer.
        self._offsets = torch.zeros_like(self._lengths)
        self._ended: list[int] = []  #: rows that have ended since the last step
        self._waiting: deque[int] = deque()  #: prompts
        self._resumed: deque[int] = deque()  #: rows
        self._cached: dict[int, list[tuple[Tensor, Tensor]]] = {}  #: of rows between turns: keys and values by layer
        self._rows = torch.zeros(0, dtype=torch.long, device=device)  #: under generation
        self._last = self._rows  #: their newest tokens
        self._going = torch.zeros(0, dtype=torch.bool, device=device)  #: which of them have not ended
        self._read: dict[int, int] = {}  #: tokens of a row up to which `stops` have been looked for
        self._seen = torch.zeros((0, 0), dtype=torch.bool, device=device)
        self._cache: Any = None

    def run(self) -> Iterator[int]:
        """Generate; yields each prompt's number when all its rows have ended."""
        self.begin(range(len(self.ids)))
        going = [self.group_size] * len(self.ids)
        while self.busy:
            for row in self.step():
                prompt = row // self.group_size
                going[prompt] -= 1
                if not going[prompt]:
                    yield prompt

    def begin(self, prompts: Iterable[int]) -> None:
        """Let the rows of these prompts begin when there is room."""
        self._waiting.extend(prompts)

    @property
    def busy(self) -> bool:
        """Whether a row waits or is under generation."""
        return bool(self._waiting or self._resumed or len(self._rows))

    def step(self) -> list[int]:
        """One more token of the rows that there is room for; returns those that have ended, or whose turn has."""
        advanced = False
        if (self._waiting or self._resumed) and (room := self._room()):
            if prompts := [self._waiting.popleft() for _ in range(min(room, len(self._waiting)))]:
                self._prefill(prompts)
            room = (room - len(prompts)) * self.group_size
            if rows := [self._resumed.popleft() for _ in range(min(room, len(self._resumed)))]:
                if self._mixes and len(self._rows):
                    self._advance(rows)
                    rows, advanced = [], True
                else:
                    self._read_on(rows)
        if len(self._rows) and not advanced:
            self._advance()
        ended, self._ended = self._ended, []
        return ended

    def turn(self, row: int) -> list[int]:
        """The tokens of its last turn."""
        turn: list[int] = self.tokens[row, int(self._turn_starts[row]) : int(self._lengths[row])].tolist()
        return turn

    def remaining(self, row: int) -> int:
        """Tokens that it may still have."""
        return self.limit - int(self._lengths[row])

    def resume(self, row: int, observed: Sequence[int]) -> None:
        """Another turn of a row whose turn has ended, after the tokens `observed`; fewer than are `remaining`."""
        start = int(self._lengths[row])
        self.tokens[row, start : start + len(observed)] = torch.tensor(observed, device=self.tokens.device)
        self._lengths[row] = self._turn_starts[row] = start + len(observed)
        self._resumed.append(row)

    def forget(self, row: int) -> None:
        """It has no further turn."""
        self._cached.pop(row, None)

    def close(self) -> None:
        """See `TurnGeneration`: it runs in the caller's thread."""

    def _room(self) -> int:
        """How many prompts may join now."""
        if len(self._rows) and not plain(self._cache):
            return 0
        return max(0, self.at_once - -(-len(self._rows) // self.group_size))

    def _prefill(self, prompts: Sequence[int]) -> None:
        """Prefill the prompts, sample the first token of each of their rows, and add those to the running batch."""
        padding = min(self._paddings[prompt] for prompt in prompts)
        numbers = to_device(torch.tensor(prompts), self.ids.device)
        ids, seen = self.ids[numbers, padding:], self.seen_prompts[numbers, padding:]
        cache = self._new_cache()
        images = self.policy.image_inputs([self.images[prompt] for prompt in prompts]) if self.images else None
        positions, offset = self._positions(ids, seen, images)
        logits = self._forward(ids, seen, positions, cache, images)
        size = self.group_size
        rows = (numbers[:, None] * size + torch.arange(size, device=ids.device)).flatten()
        if self._shares and plain(cache):
            if not len(self._rows):
                self._prompts = SharedPrompts()
            self._prompts.append(prompts, seen, cache)
            offset, seen, cache = offset + seen.sum(1), seen[:, :0], self._new_cache()
            for layer in cache.layers:
                layer.room = min(ROOM, self.limit)
        else:
            cache.batch_repeat_interleave(size)
        self._offsets[rows] = offset.repeat_interleave(size)
        self._join(rows, logits.repeat_interleave(size, 0), seen.repeat_interleave(size, 0), cache)

    def _read_on(self, rows: Sequence[int]) -> None:
        """Read what rows have that is not in their keys and values, sample the next token of each, and add them to the
        running batch."""
        device = self.tokens.device
        unread, cached, held = self._taken_up(rows)
        new, new_seen = (part.to(device) for part in pad_left(unread, int(self.policy.tokenizer.pad_token_id)))
        cache, seen = self._stacked(cached, held, [0] * len(rows))
        width = seen.shape[1]
        seen = torch.cat([seen, new_seen], 1)
        logits = self._forward(new, seen, position_ids(seen)[:, width:], cache)
        self._join(torch.tensor(rows, device=device), logits, seen, cache)

    def _taken_up(self, rows: Sequence[int]) -> tuple[list[list[int]], list[list[tuple[Tensor, Tensor]]], list[int]]:
        """Of each row: its tokens that are not in its keys and values, these, and how many they are of."""
        contexts = [
            [
                *self.ids[prompt][self.seen_prompts[prompt]].tolist(),
                *self.tokens[row, : int(self._lengths[row])].tolist(),
            ]
            for row in rows
            for prompt in [row // self.group_size]
        ]
        cached = [self._cached.pop(row, []) for row in rows]
        held = [layers[0][0].shape[-2] if layers else 0 for layers in cached]
        return [context[n:] for context, n in zip(contexts, held, strict=True)], cached, held

    def _stacked(
        self, cached: Sequence[list[tuple[Tensor, Tensor]]], held: Sequence[int], room: Sequence[int]
    ) -> tuple[Any, Tensor]:
        """A cache of rows with these keys and values and columns for `room` further tokens each, ending together, and
        the columns that they have [rows, width]."""
        device = self.tokens.device
        lengths = torch.tensor(held, device=device) + torch.tensor(room, device=device)
        cache, width = self._new_cache(), int(lengths.max())
        for number, layer in enumerate(cache.layers if width else ()):
            some = next((layers[number] for layers in cached if layers), None)
            if some is None:
                keys, values = keys_and_values(self._cache.layers[number])
                some = (keys[0], values[0])
            pairs = [layers[number] if layers else (some[0][:, :0], some[1][:, :0]) for layers in cached]
            layer.update(
                *(
                    torch.stack([_placed(pair[n], width, more) for pair, more in zip(pairs, room, strict=True)])
                    for n in (0, 1)
                )
            )
        return cache, torch.arange(width, device=device) >= width - lengths[:, None]

    def _join(self, rows: Tensor, logits: Tensor, seen: Tensor, cache: Any) -> None:
        """Sample a token of each of `rows` from `logits`; those that continue join the batch."""
        chosen, going = self._sample(rows, logits, torch.ones_like(rows, dtype=torch.bool))
        order, remaining = self._settled(rows, going, seen, cache)
        if order:
            stay = keep_rows(cache, order, rows)
            if not len(self._rows):
                self._due = min(self.unread, remaining)
            self._append(rows[stay], chosen[stay], seen[stay], cache)
        self._arrange()

    def _arrange(self) -> None:
        """Let the shared prompts know which rows there are."""
        if self._prompts.numbers and len(self._rows):
            self._prompts.arrange((self._rows // self.group_size).tolist())

    def _append(self, rows: Tensor, last: Tensor, seen: Tensor, cache: Any) -> None:
        """Add rows to the running batch, with their newest tokens and what they have in columns and cache."""
        going = torch.ones_like(rows, dtype=torch.bool)
        if not len(self._rows):
            self._rows, self._last, self._seen, self._cache, self._going = rows, last, seen, cache, going
            if self.unread > 1 and plain(cache):
                most = min(self.at_once, len(self.ids)) * self.group_size, self.ids.shape[1] + self.limit + ROOM
                for layer in cache.layers:
                    layer.reserved = most
            return
        if self._prompts.numbers:
            for layer, running in zip(cache.layers, self._cache.layers, strict=True):
                layer.begin(len(rows), running)
        self._seen = join_columns(self._cache, self._seen, cache, seen)
        self._rows, self._last = torch.cat([self._rows, rows]), torch.cat([self._last, last])
        self._going = torch.cat([self._going, going])

    def _advance(self, resumed: Sequence[int] = ()) -> None:
        """One more token of every row; in the same pass, rows that are `resumed` read on to theirs."""
        generating, unread = len(self._rows), list[list[int]]()
        if resumed:
            unread, cached, held = self._taken_up(resumed)
            cache, own = self._stacked(cached, held, [len(tokens) - 1 for tokens in unread])
            rows, last = (torch.tensor(part, device=own.device) for part in (resumed, [ids[-1] for ids in unread]))
            self._append(rows, last, own, cache)
        seen = torch.cat([self._seen, self._going[:, None]], 1)
        positions = position_ids(seen)
        if resumed:
            logits = self._mixed_logits(generating, unread, seen, positions)
        else:
            positions = positions[:, -1:] + self._offsets[self._rows, None]
            logits = self._forward(self._last[:, None], seen, positions, self._cache)
        self._last, self._going = self._sample(self._rows, logits, self._going)
        self._seen = seen
        self._due -= 1
        if self._due <= 0:
            order, remaining = self._settled(self._rows, self._going, seen, self._cache)
            self._due = min(self.unread, remaining)
            if len(order) < len(self._rows):
                stay = keep_rows(self._cache, order, self._rows)
                self._rows, self._last, self._seen = self._rows[stay], self._last[stay], self._seen[stay]
                self._going = self._going[stay]
                self._arrange()

    @torch.no_grad()
    def _mixed_logits(self, generating: int, unread: Sequence[list[int]], seen: Tensor, positions: Tensor) -> Tensor:
        """[rows,V] of a pass over the newest tokens of `generating` rows and the `unread` ones of those after them."""
        attention = MixedAttention(generating, [len(tokens) for tokens in unread], seen)
        read = torch.tensor([token for tokens in unread for token in tokens], device=seen.device)
        for layer in self._cache.layers:
            layer.places = (attention.rows, attention.columns)
        try:
            with self.policy.precision(), self._products:
                answer = self._cast(self.policy.model)(
                    input_ids=torch.cat([self._last[:generating], read])[None],
                    attention_mask=seen.new_ones(1, 1, 1, 1),  # of four dimensions: taken as it is
                    position_ids=positions[attention.rows, attention.columns][None],
                    past_key_values=self._cache,
                    use_cache=True,
                    logits_to_keep=attention.last,
                    packed_layout=attention,
                )
        finally:
            for layer in self._cache.layers:
                layer.places = None
        logits: Tensor = answer.logits[0]
        return logits

    def _positions(self, ids: Tensor, seen: Tensor, images: ImageInputs | None) -> tuple[Tensor, Tensor]:
        """Positions of prompts [P,S], and what each one's later tokens are moved by [P]: not 0 where the model counts
        an image by its height and width (Qwen2-VL)."""
        network = backbone(unwrapped(self.policy.model))
        if images is None or not hasattr(network, "get_rope_index"):
            return position_ids(seen), seen.new_zeros(len(seen), dtype=torch.long)
        takes = inspect.signature(network.get_rope_index).parameters
        options = {name: value for name, value in images(network, ids).items() if name in takes}
        positions, offset = network.get_rope_index(ids, attention_mask=seen.long(), **options)
        return positions, offset[:, 0]

    def _sample(self, rows: Tensor, logits: Tensor, going: Tensor) -> tuple[Tensor, Tensor]:
        """Sample and store a token for each of `rows` that is `going`; returns the tokens, and which of them go on."""
        before = self._lengths[rows]
        position = before.clamp(max=self.limit - 1)
        chosen, logp = draw(self.scaled(logits.float()), self.uniforms[rows, position])
        for column, values in ((self.tokens, chosen), (self.logp, logp), (self.mask, going)):
            column[rows, position] = torch.where(going, values, column[rows, position])
        self._lengths[rows] = before + going
        return chosen, going & ~(chosen[:, None] == self.ends).any(1) & (self._remaining(rows) > 0)

    def _remaining(self, rows: Tensor) -> Tensor:
        """[rows] tokens that they may still have, in this turn."""
        remaining = self.limit - self._lengths[rows]
        if self.turn_tokens is not None:
            remaining = torch.minimum(remaining, self._turn_starts[rows] + self.turn_tokens - self._lengths[rows])
        return remaining

    def _settled(self, rows: Tensor, going: Tensor, seen: Tensor, cache: Any) -> tuple[list[int], int]:
        """Read which of `rows` are `going`: the indices of those, as `compacted` puts them, and the most tokens that
        one of them may still have. Notes those that have ended. `seen`, `cache`: of these rows."""
        remaining, numbers, goes = torch.stack([self._remaining(rows), rows, going.long()]).tolist()
        goes = [bool(each) for each in goes]
        if self.stops:
            self._stop(rows, numbers, goes, seen)
        for index, row in enumerate(numbers):
            if goes[index]:
                continue
            self._ended.append(row)
            self._read.pop(row, None)
            if self.in_turns and plain(cache):
                columns = seen[index].nonzero().squeeze(1)
                self._cached[row] = [
                    (layer.keys[index].index_select(1, columns), layer.values[index].index_select(1, columns))
                    for layer in cache.layers
                ]
        return compacted(goes), max((most for most, goes_on in zip(remaining, goes, strict=True) if goes_on), default=0)

    def _stop(self, rows: Tensor, numbers: Sequence[int], goes: list[bool], seen: Tensor) -> None:
        """End the rows (`numbers`) whose newest tokens complete one of `stops`, after the token that does. What was
        drawn since is as if it had not been."""
        assert self.stops is not None
        # Of each row's last tokens: those since it was asked, and what is before.
        width = self.stops.tail + self.unread
        places = self._lengths[rows, None] + torch.arange(-width, 0, device=rows.device)
        newest = self.tokens[rows[:, None], places.clamp(min=0)]
        for index, (length, start, *tokens) in enumerate(
            torch.cat([torch.stack([self._lengths[rows], self._turn_starts[rows]], 1), newest], 1).tolist()
        ):
            row = numbers[index]
            first = start + self._read.get(row, 0) + 1
            begin = max(start, first - self.stops.tail)
            tokens = tokens[width - (length - begin) :]
            self._read[row] = length - start
            ends = range(first, length + goes[index])  # a row that has ended needs no text at its last token
            end = next((end for end in ends if self.stops.reached(tokens[: end - begin])), None)
            if end is None:
                continue
            goes[index] = False
            if end < length:
                self.tokens[row, end:length] = int(self.policy.tokenizer.pad_token_id)
                self.mask[row, end:length], self.logp[row, end:length] = False, 0.0
                self._lengths[row] = end
                counted = seen[index].cumsum(0)
                seen[index] &= counted <= counted[-1] - (length - end)

    @torch.no_grad()
    def longest(self, *, on_cpu: bool = True) -> Tensor:
        """[rows,V] of the last token of as many rows as are generated at once, were all to have every token that they
        may: what generation takes at most. Changes nothing. `on_cpu`: where it is planned for."""
        ids, seen = self.ids[: self.at_once], self.seen_prompts[: self.at_once]
        cache = self._new_cache()
        self._forward(ids, seen, position_ids(seen), cache)
        rows, prompts = len(ids) * self.group_size, cache
        if shared := self._shares and on_cpu and plain(cache):
            cache = self._new_cache()
        else:
            cache.batch_repeat_interleave(self.group_size)
        for layer, prompt in zip(cache.layers, prompts.layers, strict=True):
            shape = (rows, prompt.keys.shape[1], self.limit - 1, prompt.keys.shape[3])
            layer.update(prompt.keys.new_zeros(shape), prompt.values.new_zeros(shape))
        seen = seen.new_ones(rows, self.limit if shared else ids.shape[1] + self.limit)
        last = ids[:1, -1:].expand(rows, 1)
        places = torch.full_like(last, ids.shape[1] + self.limit - 1)
        return self.scaled(self._forward(last, seen, places, cache).float())

    def _new_cache(self) -> Any:
        cache = buffered_cache(unwrapped(self.policy.model).config)
        if self.mixture:  # the reference's layers behind the policy's, so that rows join and leave in both
            cache.layers += buffered_cache(unwrapped(self.policy.model).config).layers
        return cache

    @torch.no_grad()
    def _forward(
        self, ids: Tensor, seen: Tensor, position: Tensor, cache: Any, images: ImageInputs | None = None
    ) -> Tensor:
        """[rows,V] logits after the last column."""
        if not self.mixture:
            return self._logits(self.policy.model, ids, seen, position, cache, images)
        policy_cache, reference = split_cache(cache, len(cache.layers) // 2)
        logits = self._logits(self.policy.model, ids, seen, position, policy_cache, images)
        with self.policy.reference_model() as model:
            other = self._logits(model, ids, seen, position, reference, images)
        return (1 - self.mixture) * logits + self.mixture * other

    def _logits(
        self, model: Any, ids: Tensor, seen: Tensor, position: Tensor, cache: object, images: ImageInputs | None
    ) -> Tensor:
        options: dict[str, Any] = {} if images is None else dict(images(unwrapped(model), ids))
        options["attention_mask"] = seen.long()
        if self._packs and ids.shape[1] == 1 and plain(cache):
            options["attention_mask"] = seen.new_ones(1, 1, 1, 1)  # of four dimensions: taken as it is
            shares = self._prompts.numbers and cache is self._cache
            options["packed_layout"] = self._prompts.attention(seen) if shares else RowsAttention(seen)
        with self.policy.precision(), self._products:
            answer = self._cast(model)(
                input_ids=ids,
                position_ids=position,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
                **options,
            )
        return without_image_places(answer.logits[:, -1], unwrapped(model).config)

    def _cast(self, model: Any) -> Any:
        """The model, its weights cast once where autocast would cast them at every token and none is packed."""
        if not self.policy.autocast or (self._products and model is self.policy.model):
            return model
        return self._weights.setdefault(id(model), DecodingWeights(model))


def _placed(states: Tensor, width: int, more: int) -> Tensor:
    """[heads, columns, d] with zeros before them and `more` columns of them after, `width` columns."""
    return torch.nn.functional.pad(states, (0, 0, width - more - states.shape[1], more))


def split_cache(cache: Any, depth: int) -> tuple[Any, Any]:
    """Views of the cache that hold its first `depth` layers, and the others: those of two models."""
    first, second = copy(cache), copy(cache)
    first.layers, second.layers = cache.layers[:depth], cache.layers[depth:]
    return first, second
