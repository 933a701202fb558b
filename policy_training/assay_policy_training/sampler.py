"""Rollouts by transformers: the default sampler, and the reference that faster ones are compared with.

Covers: batched generation with temperature and top-p; each prompt is read once and its key/value cache copied to the
group; rows leave the batch when they end; the log-prob of each token under the distribution it was drawn from, taken
from the very logits it was drawn from. Leaves out: vLLM, stale weights, branching.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.errors import BadInputError
from assay.models.pooling import position_ids
from assay_policy_training.batch import RolloutBatch
from assay_policy_training.policy import Policy
from assay_policy_training.slots import PromptItem


@dataclass(frozen=True)
class Sampling:
    """How many rollouts a step has and how they are drawn."""

    prompts_per_step: int = 8
    group_size: int = 8
    max_new_tokens: int = 128
    max_prompt_tokens: int = 512  #: longer prompts lose their oldest turns
    temperature: float = 1.0
    top_p: float = 1.0
    rows_at_once: int = 64  #: rows generated in one batch; bounds memory, changes no probability

    def __post_init__(self) -> None:
        for name in ("prompts_per_step", "group_size", "max_new_tokens", "max_prompt_tokens", "rows_at_once"):
            if getattr(self, name) < 1:
                raise BadInputError(f"must be at least 1, not {getattr(self, name)}", field=f"sampling.{name}")
        if not self.temperature > 0:
            raise BadInputError(f"must be above 0, not {self.temperature}", field="sampling.temperature")
        if not 0 < self.top_p <= 1:
            raise BadInputError(f"must be in (0, 1], not {self.top_p}", field="sampling.top_p")


def top_p_filter(logits: Tensor, top_p: float) -> Tensor:
    """Logits [N,V] with -inf outside the smallest set of most likely tokens whose probability reaches `top_p`."""
    if top_p >= 1:
        return logits
    ordered, order = logits.sort(dim=-1, descending=True)
    probability = ordered.softmax(-1)
    outside = probability.cumsum(-1) - probability >= top_p  # the most likely token always stays
    return logits.masked_fill(outside.scatter(-1, order, outside), -torch.inf)


class TransformersSampler:
    """S2 with the policy's own weights, so that mu = old up to rounding."""

    def __init__(self, policy: Policy, sampling: Sampling) -> None:
        self.policy = policy
        self.sampling = sampling

    def rollout(self, items: Sequence[PromptItem], group_size: int, *, seed: int, version: int) -> RolloutBatch:
        """`group_size` rollouts of each item, rows of a group together; one seed gives one draw.

        Tensors of the batch lie on the CPU.
        """
        encoded = [self.policy.renderer.encode(item.prompt).ids for item in items]
        ids, seen = pad_left(encoded, int(self.policy.tokenizer.pad_token_id))
        generator = torch.Generator(device=self.policy.device).manual_seed(seed)
        at_once = max(1, self.sampling.rows_at_once // group_size)
        parts = [
            self._generate(ids[i : i + at_once], seen[i : i + at_once], group_size, generator)
            for i in range(0, len(items), at_once)
        ]
        tokens, mask, logp = (torch.cat(column).cpu() for column in zip(*parts, strict=True))
        ends = torch.tensor(sorted(self.policy.end_ids))
        last = tokens.gather(1, (mask.sum(1, keepdim=True) - 1)).squeeze(1)
        finished = torch.isin(last, ends)
        return RolloutBatch(
            uid=tuple(f"{version}.{number}" for number in range(len(items)) for _ in range(group_size)),
            prompts=tuple(item.prompt for item in items for _ in range(group_size)),
            responses=tuple(self._text(row[keep]) for row, keep in zip(tokens, mask, strict=True)),
            gen_input_ids=(contexts := ids.repeat_interleave(group_size, 0)),
            gen_mask=(context_mask := seen.repeat_interleave(group_size, 0)),
            train_input_ids=contexts,
            train_mask=context_mask,
            tokens=tokens,
            mask=mask,
            loss_mask=mask,
            logp_mu=logp,
            version=torch.full((len(tokens),), version),
            token_version=torch.where(mask, version, 0),
            finished=finished,
            truncated=~finished,
        )

    def _text(self, tokens: Tensor) -> str:
        text = self.policy.tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return str(text)

    @torch.no_grad()
    def _generate(
        self, ids: Tensor, seen: Tensor, group_size: int, generator: torch.Generator
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Tokens, mask and log-probs, each [P*G, max_new_tokens], of P left-padded prompts [P,S]."""
        from transformers import DynamicCache

        policy, width = self.policy, self.sampling.max_new_tokens
        device = policy.device
        ends = torch.tensor(sorted(policy.end_ids), device=device)
        left = int((~seen).all(0).sum())
        ids, seen = ids[:, left:].to(device), seen[:, left:].to(device)
        rows = len(ids) * group_size
        tokens = torch.full((rows, width), int(policy.tokenizer.pad_token_id), device=device)
        mask = torch.zeros((rows, width), dtype=torch.bool, device=device)
        logp = torch.zeros((rows, width), device=device)
        cache = DynamicCache(config=policy.model.config)
        with policy.precision():
            logits = self._forward(ids, seen, position_ids(seen), cache)
            # The prompt is read once; its keys and values are copied to the rows of the group.
            cache.batch_repeat_interleave(group_size)
            logits, seen = logits.repeat_interleave(group_size, 0), seen.repeat_interleave(group_size, 0)
            active = torch.arange(rows, device=device)
            for step in range(width):
                scaled = top_p_filter(logits.float() / self.sampling.temperature, self.sampling.top_p)
                distribution = scaled.log_softmax(-1)
                choice = torch.multinomial(distribution.exp(), 1, generator=generator)
                tokens[active, step] = choice.squeeze(1)
                logp[active, step] = distribution.gather(1, choice).squeeze(1)
                mask[active, step] = True
                going = ~torch.isin(choice.squeeze(1), ends)
                if step == width - 1 or not going.any():
                    break
                if not going.all():
                    stay = going.nonzero().squeeze(1)
                    cache.batch_select_indices(stay)
                    active, choice, seen = active[stay], choice[stay], seen[stay]
                seen = torch.cat([seen, seen.new_ones(len(seen), 1)], 1)
                logits = self._forward(choice, seen, position_ids(seen)[:, -1:], cache)
        return tokens, mask, logp

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


def pad_left(rows: Sequence[Sequence[int]], pad: int) -> tuple[Tensor, Tensor]:
    """Token lists as [B,S] int64 and their mask [B,S] bool."""
    width = max(len(row) for row in rows)
    ids = torch.full((len(rows), width), pad)
    mask = torch.zeros((len(rows), width), dtype=torch.bool)
    for number, row in enumerate(rows):
        ids[number, width - len(row) :] = torch.tensor(row)
        mask[number, width - len(row) :] = True
    return ids, mask
