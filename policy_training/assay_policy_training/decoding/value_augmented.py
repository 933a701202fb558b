"""Value Augmented Sampling: a value model steers each token of a policy that stays as it is.

Among the `top_k` most likely next tokens the logits become logits + beta (V(s, a) - mean V), the others keep theirs;
V(s, a) is the value after the token. With values of the optimal policy at that beta, and all tokens as candidates, this
is policy * exp(beta Q) / Z; values of the policy itself make it one step of improvement.

Covers: the values of all candidates in one pass (each sees the row before it and itself), the exact KL of every token's
distribution. Leaves out: training the values (`token_values`), several values at once.

Source: arXiv 2405.06639.
"""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import torch
from annotated_types import Ge
from torch import Tensor

from assay.errors import BadInputError
from assay.models.attention.packing import can_pack, unwrapped
from assay.models.heads import head_outputs, position_ids
from assay_policy_training.core.logprobs import ImageInputs, full_kl, trunk
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.sampling import group_uniforms
from assay_policy_training.core.settings import Finite
from assay_policy_training.core.stop_strings import StopStrings
from assay_policy_training.decoding.best_of_n import sampled_texts
from assay_policy_training.decoding.kind import DecodedResponse, DecodePrompts, DecodingInputs
from assay_policy_training.decoding.token_values import ValueTraining, value_critic
from assay_policy_training.plugins.critics.value_model import ValueCritic
from assay_policy_training.plugins.samplers.assembly import assemble, generation_ids, pad_left
from assay_policy_training.plugins.samplers.decoding import Decoding, split_cache
from assay_policy_training.plugins.samplers.key_value_cache import buffered_cache
from assay_policy_training.plugins.samplers.transformers import TransformersSampler


def steered(logits: Tensor, candidates: Tensor, values: Tensor, beta: float) -> Tensor:
    """Logits [N,V] with beta (value - mean of the candidates' values) added at `candidates` [N,k]; `values` [N,k]."""
    return logits.scatter_add(-1, candidates, beta * (values - values.mean(-1, keepdim=True)))


class ValueAugmented(ValueTraining, section="decoder"):
    """`beta` in 1 / reward: 0 is the policy itself. The other settings are those of the value model's training, which
    another `beta` or `top_k` does not repeat."""

    beta: Annotated[Finite, Ge(0)] = 3.0
    top_k: Annotated[int, Ge(1)] = 20

    rows_a_response: ClassVar[int] = 1

    def open(self, inputs: DecodingInputs) -> DecodePrompts:
        """Raises BadInputError for a model that cannot value several next tokens in one pass, before values are
        trained."""
        sampling, model = inputs.sampling, inputs.policy.model
        longest = sampling.max_prompt_tokens + sampling.max_new_tokens + self.top_k
        if not can_pack(model, longest):
            name = type(unwrapped(model)).__name__
            problem = (
                f"cannot value {self.top_k} next tokens in one pass of a {name} with up to {longest} tokens in all"
            )
            raise BadInputError(problem, field="POLICY")
        training = ValueTraining(**{name: getattr(self, name) for name in ValueTraining.__dataclass_fields__})
        critic, inputs.facts["values"] = value_critic(training, inputs)
        sampler = SteeredSampler(inputs, critic, self.beta, self.top_k)

        def decode(items: Sequence[PromptItem], seeds: Sequence[int]) -> list[DecodedResponse]:
            decoding = sampler.steered(items, seeds)
            columns = (decoding.tokens, decoding.mask, decoding.logp)
            batch = assemble(inputs.policy, items, 1, columns, version=0, stops=decoding.stops)
            texts = inputs.rewarded(batch.items, sampled_texts(batch))
            kl = (decoding.kl * decoding.mask).double().sum(1).tolist()
            return [DecodedResponse(text, kl[row], "by_token", text.tokens, 1) for row, text in enumerate(texts)]

        return decode


class SteeredSampler(TransformersSampler):
    """Draws from the sampler's distribution, steered by `critic`."""

    def __init__(self, inputs: DecodingInputs, critic: ValueCritic, beta: float, top_k: int) -> None:
        super().__init__(inputs.policy, inputs.sampling)
        self.critic, self.beta, self.top_k = critic, beta, top_k

    def steered(self, items: Sequence[PromptItem], seeds: Sequence[int]) -> "SteeredDecoding":
        """A response to each item, generated."""
        ids, seen = pad_left(generation_ids(self.policy, items), int(self.policy.tokenizer.pad_token_id))
        uniforms = group_uniforms(seeds, 1, self.sampling.max_new_tokens)
        stops = StopStrings(self.policy.tokenizer, self.sampling.stop)
        decoding = SteeredDecoding(self, ids, seen, 1, uniforms, at_once=self.sampling.rows_at_once, stops=stops)
        for _ in decoding.run():
            pass
        return decoding


class SteeredDecoding(Decoding):
    """`kl` [rows, limit] fills as `logp` does. The value model's keys and values lie behind the policy's in the cache,
    so that rows join and leave in both."""

    def __init__(self, sampler: SteeredSampler, *prompts: Any, **options: Any) -> None:
        super().__init__(sampler.policy, lambda logits: logits, *prompts, **options)
        self.sampler = sampler
        self.kl = torch.zeros_like(self.logp)
        self._step_kl = self.kl[:, 0]

    def _new_cache(self) -> Any:
        cache = super()._new_cache()
        self._depth = len(cache.layers)
        cache.layers += buffered_cache(unwrapped(self.sampler.critic.model).config).layers
        return cache

    @torch.no_grad()
    def _forward(
        self, ids: Tensor, seen: Tensor, position: Tensor, cache: Any, images: ImageInputs | None = None
    ) -> Tensor:
        policy_cache, critic_cache = split_cache(cache, self._depth)
        base = self.sampler._scaled(self._logits(self.policy.model, ids, seen, position, policy_cache, images).float())
        candidates = base.topk(min(self.sampler.top_k, base.shape[-1])).indices
        values = self._candidate_values(ids, seen, position, candidates, critic_cache)
        logits = steered(base, candidates, values, self.sampler.beta)
        self._step_kl = full_kl(logits, base)
        return logits

    def _sample(self, rows: Tensor, logits: Tensor, going: Tensor) -> tuple[Tensor, Tensor]:
        position = self._lengths[rows].clamp(max=self.limit - 1)
        self.kl[rows, position] = torch.where(going, self._step_kl, self.kl[rows, position])
        return super()._sample(rows, logits, going)

    def _candidate_values(self, ids: Tensor, seen: Tensor, position: Tensor, candidates: Tensor, cache: Any) -> Tensor:
        """[rows,k] values after each candidate; afterwards the cache holds the columns of `ids` and no candidate."""
        critic, (rows, k) = self.sampler.critic, candidates.shape
        network = trunk(critic.model)
        with self.policy.precision():
            network(
                input_ids=ids,
                attention_mask=seen.long(),
                position_ids=position,
                past_key_values=cache,
                use_cache=True,
            )
            itself = torch.eye(k, dtype=torch.bool, device=ids.device).expand(rows, k, k)
            allowed = torch.cat([seen[:, None].expand(rows, k, seen.shape[1]), itself], -1)[:, None]
            states = network(
                input_ids=candidates,
                attention_mask=allowed,  # of four dimensions: taken as it is
                position_ids=position_ids(seen)[:, -1:].expand(rows, k) + 1,
                past_key_values=cache,
                use_cache=True,
            ).last_hidden_state
        for layer in cache.layers:
            layer.crop(-k)
        return critic.head.value(head_outputs(critic.score, states))
