"""Rollouts by transformers: the default sampler, and the reference that faster ones are compared with.

Covers: the distribution that tokens are drawn from (temperature, pruning, top-p) and their log-probs under it, taken
from the same logits; a bounded number of rows at once; groups yielded as they end. Leaves out: the generation itself
(`decoding`), vLLM, stale weights, branching.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from assay.models.attention.packing import unwrapped
from assay.models.chat.image_reader import references_of
from assay.models.devices import unused_memory
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.sampling import (
    Sampling,
    group_seeds,
    group_uniforms,
    prune,
    row_uniforms,
    top_p_filter,
)
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.core.stop_strings import StopStrings
from assay_policy_training.plugins.samplers.assembly import assemble, generation_ids, pad_left

if TYPE_CHECKING:
    from assay_policy_training.plugins.samplers.decoding import Decoding


class TransformersSampler:
    """S2 with the policy's own weights, so that mu = old up to rounding; with a `mixture`, see `Decoding`."""

    def __init__(self, policy: Policy, sampling: Sampling, *, mixture: float = 0.0) -> None:
        self.policy = policy
        self.sampling = sampling
        self.mixture = mixture

    def rollout(
        self, items: Sequence[PromptItem], group_size: int, *, seed: int | Sequence[int], version: int
    ) -> RolloutBatch:
        """`group_size` rollouts of each item, rows of a group together; one seed gives one draw.

        Tensors of the batch lie on the CPU.
        """
        decoding = self._decoding(items, group_size, seed)
        for _ in decoding.run():
            pass
        columns = (decoding.tokens, decoding.mask, decoding.logp)
        return assemble(self.policy, items, group_size, columns, version=version, stops=decoding.stops)

    def stream(
        self, items: Sequence[PromptItem], group_size: int, *, seed: int | Sequence[int], version: int
    ) -> Iterator[RolloutBatch]:
        """The rows of `rollout`, group by group, each as soon as it and those before it have ended."""
        decoding, yielded = self._decoding(items, group_size, seed), 0
        ended: set[int] = set()
        pieces = group_size // decoding.group_size
        for number in decoding.run():
            ended.add(number)
            while ended.issuperset(range(yielded * pieces, (yielded + 1) * pieces)):
                rows = slice(yielded * group_size, (yielded + 1) * group_size)
                columns = (decoding.tokens[rows], decoding.mask[rows], decoding.logp[rows])
                item = items[yielded : yielded + 1]
                yield assemble(self.policy, item, group_size, columns, version=version, stops=decoding.stops)
                yielded += 1

    def generate(self, ids: Tensor, seen: Tensor, group_size: int, uniforms: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Tokens, mask and log-probs, each [P*G, limit], of P left-padded prompts [P,S]; see `Decoding`."""
        decoding = self.decoding(ids, seen, group_size, uniforms)
        for _ in decoding.run():
            pass
        return decoding.tokens, decoding.mask, decoding.logp

    def turns(
        self,
        contexts: Sequence[Sequence[int]],
        group_size: int,
        places: Sequence[tuple[int, int]],
        turn_tokens: int | None,
    ) -> "Decoding":
        """See `TurnSampler`."""
        ids, seen = pad_left(contexts, int(self.policy.tokenizer.pad_token_id))
        uniforms = torch.stack([row_uniforms(*place, 0, self.sampling.max_new_tokens) for place in places])
        decoding = self.decoding(ids, seen, group_size, uniforms, in_turns=True, turn_tokens=turn_tokens)
        decoding.begin(range(len(decoding.ids)))
        return decoding

    def adjusted(self, logits: Tensor) -> Tensor:
        """A hook for samplers that change the temperature token by token: logits [rows,V] over the temperature."""
        return logits

    def _decoding(self, items: Sequence[PromptItem], group_size: int, seed: int | Sequence[int]) -> "Decoding":
        contexts = generation_ids(self.policy, items, images=True)
        ids, seen = pad_left(contexts, int(self.policy.tokenizer.pad_token_id))
        images = [references_of(item.generation_context) for item in items]
        uniforms = group_uniforms(group_seeds(seed, len(items)), group_size, self.sampling.max_new_tokens)
        return self.decoding(ids, seen, group_size, uniforms, images)

    def decoding(
        self,
        ids: Tensor,
        seen: Tensor,
        group_size: int,
        uniforms: Tensor,
        images: Sequence[tuple[str, ...]] = (),
        **turns: Any,
    ) -> "Decoding":
        from assay_policy_training.plugins.samplers.decoding import Decoding  # imports transformers

        most = min(self.sampling.rows_at_once, self._rows_that_fit(ids.shape[1] + uniforms.shape[1]))
        # A group larger than what may be generated at once is drawn as several equal ones of the same prompt.
        pieces = next(n for n in range(1, group_size + 1) if group_size % n == 0 and group_size // n <= most)
        size = group_size // pieces
        ids, seen = ids.repeat_interleave(pieces, 0), seen.repeat_interleave(pieces, 0)
        stops = StopStrings(self.policy.tokenizer, self.sampling.stop)
        options: dict[str, Any] = {"at_once": most // size, "stops": stops, "mixture": self.mixture, **turns}
        options["images"] = [references for references in images for _ in range(pieces)]
        return Decoding(self.policy, self._scaled, ids, seen, size, uniforms, **options)

    def _rows_that_fit(self, columns: int) -> int:
        """On a GPU, those whose keys and values have room when all are as long as they may be."""
        memory = unused_memory(self.policy.device)
        if memory is None:
            return self.sampling.rows_at_once
        from assay_policy_training.plugins.samplers.decoding_weights import cast_bytes
        from assay_policy_training.plugins.samplers.key_value_cache import rows_that_fit  # imports transformers

        config, autocast = unwrapped(self.policy.model).config, self.policy.autocast
        memory -= cast_bytes(self.policy.model) if autocast else 0
        return rows_that_fit(config, columns, memory // (2 if self.mixture else 1), autocast=autocast)

    def _scaled(self, logits: Tensor) -> Tensor:
        """[rows,V] logits of the distribution that tokens are drawn from."""
        chosen = self.sampling
        scaled = self.adjusted(logits if chosen.temperature == 1 else logits / chosen.temperature)
        return top_p_filter(prune(scaled, chosen.prune_log_ratio), chosen.top_p)


class Transformers(RecipeSettings, section="sampler"):
    """S2: the default sampler."""

    reads_images: ClassVar[bool] = True

    def open(self, policy: Policy, sampling: Sampling) -> TransformersSampler:
        return TransformersSampler(policy, sampling)
