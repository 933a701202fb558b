"""Rows under generation by transformers: prompts are let in as rows end, so that the batch stays full.

Covers: reading a prompt once for its group, one token a step for all rows, rows that leave when they end, groups that
take their places. A row's context may lie at any columns: positions are counted from its own mask. Leaves out: the
distribution that tokens are drawn from (the sampler's), prompts and responses as text (`assembly`).
"""

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from typing import Any

import torch
from torch import Tensor

from assay.models.attention.packing import unwrapped
from assay.models.heads import position_ids
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.sampling import draw
from assay_policy_training.core.stop_strings import StopStrings
from assay_policy_training.plugins.samplers.key_value_cache import BufferedLayer, buffered_cache, compacted


class Decoding:
    """`group_size` responses to each of P left-padded prompts `ids` [P,S] under `seen` [P,S], of at most `limit`
    tokens, drawn at `uniforms` [P*G, limit].

    `tokens`, `mask`, `logp` [P*G, limit] fill while `run` is iterated. `scaled`: logits [rows,V] to those drawn from.
    `at_once`: prompts under generation at most; where the model's cache is not a plain one, the others wait for all
    of them. `stops`: texts that end a row. `mixture`: share of the reference's logits in those drawn from, a geometric
    mean of the two distributions.
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
    ) -> None:
        self.policy, self.scaled, self.group_size, self.at_once = policy, scaled, group_size, at_once
        self.limit = limit = uniforms.shape[1]
        self.stops, self.mixture = stops, mixture
        device = policy.device
        self.uniforms = uniforms.to(device)
        self.ids, self.seen_prompts = ids.to(device), seen.to(device)
        self.ends = torch.tensor(sorted(policy.end_ids), device=device)
        rows = len(ids) * group_size
        self.tokens = torch.full((rows, limit), int(policy.tokenizer.pad_token_id), device=device)
        self.mask = torch.zeros((rows, limit), dtype=torch.bool, device=device)
        self.logp = torch.zeros((rows, limit), device=device)
        self._lengths = torch.zeros(rows, dtype=torch.long, device=device)
        self._going = [group_size] * len(ids)  #: rows of each prompt that have not ended
        self._ended: list[int] = []  #: prompts whose rows have all ended since the last yield
        self._rows = torch.zeros(0, dtype=torch.long, device=device)  #: under generation
        self._last = self._rows  #: their newest tokens
        self._seen = torch.zeros((0, 0), dtype=torch.bool, device=device)
        self._cache: Any = None

    def run(self) -> Iterator[int]:
        """Generate; yields each prompt's number when all its rows have ended."""
        waiting = list(range(len(self.ids)))
        while waiting or len(self._rows):
            if waiting and (room := self._room()):
                self._prefill(waiting[:room])
                waiting = waiting[room:]
            if len(self._rows):
                self._advance()
            yield from self._ended
            self._ended = []

    def _room(self) -> int:
        """How many prompts may join now."""
        plain = self._cache is None or all(isinstance(layer, BufferedLayer) for layer in self._cache.layers)
        if len(self._rows) and not plain:
            return 0
        return max(0, self.at_once - -(-len(self._rows) // self.group_size))

    def _prefill(self, prompts: Sequence[int]) -> None:
        """Prefill the prompts, sample the first token of each of their rows, and add those to the running batch."""
        ids, seen = self.ids[prompts], self.seen_prompts[prompts]
        padding = int((~seen).all(0).sum())
        ids, seen = ids[:, padding:], seen[:, padding:]
        cache = self._new_cache()
        logits = self._forward(ids, seen, position_ids(seen), cache)
        size = self.group_size
        first = torch.tensor(prompts, device=ids.device) * size
        rows = (first[:, None] + torch.arange(size, device=ids.device)).flatten()
        chosen, stay = self._sample(rows, logits.repeat_interleave(size, 0))
        if not len(stay):
            return
        cache.batch_repeat_interleave(size)
        cache.batch_select_indices(stay)
        rows, chosen, seen = rows[stay], chosen[stay], seen.repeat_interleave(size, 0)[stay]
        if not len(self._rows):
            self._rows, self._last, self._seen, self._cache = rows, chosen, seen, cache
            return
        unused = int((~self._seen).all(0).sum())
        for layer, joining in zip(self._cache.layers, cache.layers, strict=True):
            layer.join(joining, drop=unused)
        held = self._seen[:, unused:]
        width = max(held.shape[1], seen.shape[1])
        self._seen = torch.cat([torch.nn.functional.pad(m, (width - m.shape[1], 0)) for m in (held, seen)])
        self._rows, self._last = torch.cat([self._rows, rows]), torch.cat([self._last, chosen])

    def _advance(self) -> None:
        """One more token of every row."""
        seen = torch.cat([self._seen, self._seen.new_ones(len(self._seen), 1)], 1)
        logits = self._forward(self._last[:, None], seen, position_ids(seen)[:, -1:], self._cache)
        chosen, stay = self._sample(self._rows, logits)
        if len(stay) < len(self._rows):
            self._cache.batch_select_indices(stay)
            self._rows, chosen, seen = self._rows[stay], chosen[stay], seen[stay]
        self._last, self._seen = chosen, seen

    def _sample(self, rows: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Sample and store a token for each of `rows`; returns the tokens, and the indices of the rows that
        continue."""
        position = self._lengths[rows]
        chosen, logp = draw(self.scaled(logits.float()), self.uniforms[rows, position])
        self.tokens[rows, position], self.logp[rows, position], self.mask[rows, position] = chosen, logp, True
        self._lengths[rows] = position + 1
        going = ~torch.isin(chosen, self.ends) & (position + 1 < self.limit)
        if self.stops:
            for index, row in enumerate(rows.tolist()):
                if going[index] and self.stops.reached(self.tokens[row, : int(self._lengths[row])].tolist()):
                    going[index] = False
        for row in rows[~going].tolist():
            prompt = row // self.group_size
            self._going[prompt] -= 1
            if not self._going[prompt]:
                self._ended.append(prompt)
        return chosen, compacted(going)

    def _new_cache(self) -> Any:
        cache = buffered_cache(unwrapped(self.policy.model).config)
        if self.mixture:  # the reference's layers behind the policy's, so that rows join and leave in both
            cache.layers += buffered_cache(unwrapped(self.policy.model).config).layers
        return cache

    @torch.no_grad()
    def _forward(self, ids: Tensor, seen: Tensor, position: Tensor, cache: Any) -> Tensor:
        """[rows,V] logits after the last column."""
        if not self.mixture:
            return self._logits(self.policy.model, ids, seen, position, cache)
        own, reference = split_cache(cache, len(cache.layers) // 2)
        logits = self._logits(self.policy.model, ids, seen, position, own)
        with self.policy.reference_model() as model:
            other = self._logits(model, ids, seen, position, reference)
        return (1 - self.mixture) * logits + self.mixture * other

    def _logits(self, model: Any, ids: Tensor, seen: Tensor, position: Tensor, cache: object) -> Tensor:
        with self.policy.precision():
            answer = model(
                input_ids=ids,
                attention_mask=seen.long(),
                position_ids=position,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            )
        logits: Tensor = answer.logits[:, -1]
        return logits


def split_cache(cache: Any, depth: int) -> tuple[Any, Any]:
    """Views of the cache that hold its first `depth` layers, and the others: those of two models."""
    first, second = copy(cache), copy(cache)
    first.layers, second.layers = cache.layers[:depth], cache.layers[depth:]
    return first, second
