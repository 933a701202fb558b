"""Rollouts by transformers: the default sampler, and the reference that faster ones are compared with.

Covers: batched generation with temperature and top-p; each prompt is read once and its key/value cache copied to the
group; rows leave the batch when they end; the log-prob of each token under the distribution it was drawn from, taken
from the very logits it was drawn from. Leaves out: vLLM, stale weights, branching.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.models.packing import unwrapped
from assay.models.pooling import position_ids
from assay_policy_training.batch import RolloutBatch
from assay_policy_training.policy import Policy
from assay_policy_training.prompt_item import PromptItem
from assay_policy_training.samplers.assembly import assemble, generation_ids, pad_left
from assay_policy_training.samplers.sampling import Sampling, draw, prune, top_p_filter


class TransformersSampler:
    """S2 with the policy's own weights, so that mu = old up to rounding."""

    def __init__(self, policy: Policy, sampling: Sampling) -> None:
        self.policy = policy
        self.sampling = sampling

    def rollout(self, items: Sequence[PromptItem], group_size: int, *, seed: int, version: int) -> RolloutBatch:
        """`group_size` rollouts of each item, rows of a group together; one seed gives one draw.

        Tensors of the batch lie on the CPU.
        """
        parts = [generated for _, generated in self._parts(items, group_size, seed)]
        tokens, mask, logp = (torch.cat(column) for column in zip(*parts, strict=True))
        return assemble(self.policy, items, group_size, (tokens, mask, logp), version=version)

    def stream(
        self, items: Sequence[PromptItem], group_size: int, *, seed: int, version: int
    ) -> Iterator[RolloutBatch]:
        """The rows of `rollout` in parts, as soon as all rows of a part are done."""
        for own, generated in self._parts(items, group_size, seed):
            yield assemble(self.policy, own, group_size, generated, version=version)

    def _parts(
        self, items: Sequence[PromptItem], group_size: int, seed: int
    ) -> Iterator[tuple[Sequence[PromptItem], tuple[Tensor, Tensor, Tensor]]]:
        """Items that are generated from together, and what `generate` made of them, on the CPU."""
        ids, seen = pad_left(generation_ids(self.policy, items), int(self.policy.tokenizer.pad_token_id))
        generator = torch.Generator(device=self.policy.device).manual_seed(seed)
        rows = self.sampling.rows_at_once
        at_once = max(1, rows // group_size)
        for i in range(0, len(items), at_once):
            part = slice(i, i + at_once)
            # A group larger than what is generated at once is drawn in pieces; then `part` is one prompt.
            sizes = [min(rows, group_size - done) for done in range(0, group_size, rows)]
            drawn = [self.generate(ids[part], seen[part], size, generator) for size in sizes]
            tokens, mask, logp = (torch.cat(column).cpu() for column in zip(*drawn, strict=True))
            yield items[part], (tokens, mask, logp)

    @torch.no_grad()
    def generate(
        self, ids: Tensor, seen: Tensor, group_size: int, generator: torch.Generator, *, limit: int | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Tokens, mask and log-probs, each [P*G, limit], of P left-padded prompts [P,S]; None = max_new_tokens."""
        from assay_policy_training.samplers.key_value_cache import buffered_cache, compacted

        policy, width = self.policy, limit or self.sampling.max_new_tokens
        device = policy.device
        ends = torch.tensor(sorted(policy.end_ids), device=device)
        left = int((~seen).all(0).sum())
        ids, seen = ids[:, left:].to(device), seen[:, left:].to(device)
        rows = len(ids) * group_size
        tokens = torch.full((rows, width), int(policy.tokenizer.pad_token_id), device=device)
        mask = torch.zeros((rows, width), dtype=torch.bool, device=device)
        logp = torch.zeros((rows, width), device=device)
        cache = buffered_cache(unwrapped(policy.model).config)
        with policy.precision():
            logits = self._forward(ids, seen, position_ids(seen), cache)
            # The prompt is read once; its keys and values are copied to the rows of the group.
            cache.batch_repeat_interleave(group_size)
            logits, seen = logits.repeat_interleave(group_size, 0), seen.repeat_interleave(group_size, 0)
            active = torch.arange(rows, device=device)
            for step in range(width):
                choice, found = draw(self._scaled(logits.float()), generator)
                tokens[active, step], logp[active, step], mask[active, step] = choice, found, True
                going = ~torch.isin(choice, ends)
                if step == width - 1 or not going.any():
                    break
                if not going.all():
                    stay = compacted(going)
                    cache.batch_select_indices(stay)
                    active, choice, seen = active[stay], choice[stay], seen[stay]
                seen = torch.cat([seen, seen.new_ones(len(seen), 1)], 1)
                logits = self._forward(choice[:, None], seen, position_ids(seen)[:, -1:], cache)
        return tokens, mask, logp

    def _scaled(self, logits: Tensor) -> Tensor:
        """[rows,V] logits of the distribution that tokens are drawn from."""
        chosen = self.sampling
        scaled = self.adjusted(logits if chosen.temperature == 1 else logits / chosen.temperature)
        return top_p_filter(prune(scaled, chosen.prune_log_ratio), chosen.top_p)

    def adjusted(self, logits: Tensor) -> Tensor:
        """A hook for samplers that change the temperature token by token: logits [rows,V] over the temperature."""
        return logits

    def _forward(self, ids: Tensor, seen: Tensor, position: Tensor, cache: object) -> Tensor:
        """[rows,V] logits after the last column."""
        answer = self.policy.model(
            input_ids=ids,
            attention_mask=seen.long(),
            position_ids=position,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        logits: Tensor = answer.logits[:, -1]
        return logits


@dataclass(frozen=True)
class Transformers:
    """S2: the default sampler."""

    def open(self, policy: Policy, sampling: Sampling) -> TransformersSampler:
        return TransformersSampler(policy, sampling)
